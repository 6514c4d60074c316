// A plot of points over time, with lines at their medians.

import { shape } from './dom.js';
import { clock } from './words.js';

const HEIGHT = 220;
const [LEFT, RIGHT, TOP, BOTTOM] = [58, 12, 10, 26];
const PARTS = 12; // of the time, each with a median

export function rank(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
}

// `points` have x in Unix seconds, y from 0, and a title; `words` says a y in words.
export function plot(holder, { points, from, to, words, title }) {
  const width = Math.max(holder.clientWidth, 240);
  const top = toTop(Math.max(...points.map((point) => point.y), 0) || 1);
  const x = (at) => LEFT + ((width - LEFT - RIGHT) * (at - from)) / (to - from);
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * value) / top;
  const size = { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT };
  const dots = points.map((point) => toDot(x(point.x), y(point.y), point.title));
  const axes = [...toGrid(top, width, y, words), ...toTimes(from, to, width, x)];
  holder.replaceChildren(shape('svg', { ...size, role: 'img', 'aria-label': title },
    ...axes, ...dots, toMedians(points, from, to, x, y)));
}

// The next of 1, 2 and 5 times a power of ten.
function toTop(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= most);
}

const toDot = (x, y, title) => (
  shape('circle', { cx: x.toFixed(1), cy: y.toFixed(1), r: 3, class: 'dot' }, shape('title', {}, title)));

function toGrid(top, width, y, words) {
  return [0, 0.5, 1].map((part) => part * top).flatMap((value) => [
    shape('line', { x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value), class: 'grid' }),
    shape('text', { x: LEFT - 8, y: y(value) + 4, 'text-anchor': 'end' }, value ? words(value) : '0'),
  ]);
}

function toTimes(from, to, width, x) {
  const parts = width < 420 ? [0, 1] : [0, 0.25, 0.5, 0.75, 1];
  const anchors = { 0: 'start', 1: 'end' };
  return parts.map((part) => {
    const at = from + part * (to - from);
    return shape('text', { x: x(at), y: HEIGHT - 6, 'text-anchor': anchors[part] ?? 'middle' }, clock(at));
  });
}

// A level line for each part of the time that has points.
function toMedians(points, from, to, x, y) {
  const step = (to - from) / PARTS;
  const toPart = (point) => Math.min(PARTS - 1, Math.floor((point.x - from) / step));
  const levels = [...Array(PARTS).keys()].map((part) => {
    const values = points.filter((point) => toPart(point) === part).map((point) => point.y);
    if (!values.length) return '';
    const [start, end] = [part, part + 1].map((edge) => x(from + edge * step).toFixed(1));
    return `M${start} ${y(rank(values, 0.5)).toFixed(1)}H${end}`;
  });
  return shape('path', { d: levels.join('') || 'M0 0', class: 'median' });
}
