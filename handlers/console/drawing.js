// The drawings of the machines: fetched, looked through, and written on with counts and times.

import { ToldError, askText } from './ask.js';
import { shape } from './dom.js';
import { about, duration, number } from './words.js';

const SVG = 'http://www.w3.org/2000/svg';
const ELEMENTS = ['svg', 'title', 'defs', 'marker', 'path', 'rect', 'g', 'text', 'polyline'];
const SHAPING = 'd|height|points|rx|viewBox|width|x|y|orient|refX|refY|marker-end|markerHeight|markerUnits|markerWidth';
const ATTRIBUTES = new RegExp(`^(xmlns|class|id|role|data-[a-z]+|${SHAPING})$`);
const NARROWEST = 3;
const WIDEST = 16; // how wide the busiest way is
const LETTERS = { event: 7.02, code: 6.41 }; // how wide one is, as the drawing reckons

const drawings = new Map();

// Takes what drawings are made of and nothing else. Their style stands in diagram.css: the page allows no other.
export function parse(text) {
  const unstyled = text.replace(/<style>[^<]*<\/style>/, '');
  const root = new DOMParser().parseFromString(unstyled, 'image/svg+xml').documentElement;
  for (const node of [root, ...root.querySelectorAll('*')]) {
    const attribute = [...node.attributes].find(({ name }) => !ATTRIBUTES.test(name));
    if (node.namespaceURI !== SVG || !ELEMENTS.includes(node.localName) || attribute) {
      const found = attribute ? `<${node.localName}> with ${attribute.name}` : `<${node.localName}>`;
      throw new ToldError(`The drawing is not shown: it has ${found}.`);
    }
  }
  return document.importNode(root, true);
}

export async function draw(machine, signal) {
  if (!drawings.has(machine)) {
    drawings.set(machine, parse(await askText(`interlock/diagrams/${encodeURIComponent(machine)}.svg`, signal)));
  }
  return drawings.get(machine).cloneNode(true);
}

export async function drawLit(id, signal) {
  return parse(await askText(`interlock/exchanges/${encodeURIComponent(id)}.svg`, signal));
}

// The words of each state, as the drawing has them: "QUEUED: waiting for the model".
export function toWords(root) {
  const titles = [...root.querySelectorAll('[data-state] > title')].map((title) => title.textContent.split('\n')[0]);
  return new Map(titles.map((title) => title.split(/: (.*)/)));
}

export function toEvents(root) {
  return [...new Set([...root.querySelectorAll('[data-event]')].map((node) => node.dataset.event))].sort();
}

// Makes each way as wide as its traffic, and writes the counts beside the events.
export function weigh(root, moves, here) {
  const ways = [...root.querySelectorAll('.way')].map((way) => [way, sum(moves, way.dataset)]);
  const most = Math.max(1, ...ways.map(([, count]) => count));
  for (const [way, count] of ways) widen(way, count, most);
  const marks = [...root.querySelectorAll('.edge, .way[data-event]')].map((edge) => [edge, sum(moves, edge.dataset)]);
  for (const [edge, count] of marks) edge.classList.toggle('unused', count === 0);
  const tallies = marks.filter(([, count]) => count > 0).map(([edge, count]) => tally(edge, about(count)));
  const present = [...here].map(([state, count]) => note(root, state, `${number(count)} now`, 'here'));
  writeOver(root, [...tallies, ...present]);
}

// Writes how long each state lasted, all its visits together.
export function time(root, spent) {
  writeOver(root, [...spent].map(([state, ms]) => note(root, state, duration(ms), 'time')));
}

function sum(moves, { event, from, to }) {
  const isSame = (mine, given) => mine === undefined || mine === given;
  return moves
    .filter((move) => isSame(event, move.event) && isSame(from, move.from) && isSame(to, move.to))
    .reduce((total, move) => total + move.count, 0);
}

function widen(way, count, most) {
  const arrow = way.querySelector('.arrow');
  let flow = way.querySelector('.flow');
  if (!flow) {
    const kind = arrow.getAttribute('class').replace('arrow', 'flow');
    flow = shape('polyline', { points: arrow.getAttribute('points'), class: kind });
    way.prepend(flow);
  }
  const width = count ? NARROWEST + (WIDEST - NARROWEST) * Math.sqrt(count / most) : 0;
  flow.style.strokeWidth = `${width.toFixed(1)}px`;
  way.classList.toggle('unused', count === 0);
}

function writeOver(root, marks) {
  root.querySelector('.notes')?.remove();
  root.append(shape('g', { class: 'notes' }, ...marks.filter(Boolean)));
}

// At the corner of a chip, or behind the word of an event. The chip of many edges has their sum.
function tally(edge, words) {
  const chip = edge.querySelector('rect.chip');
  const kind = edge.classList.contains('way') ? 'sum' : 'tally';
  if (chip) return pill(corner(chip, 'x', 'width') - 4, corner(chip, 'y'), words, kind);
  const word = edge.querySelector('text');
  const length = word.textContent.length * LETTERS[word.classList[0]];
  return pill(corner(word, 'x') + length + 16, corner(word, 'y') - 4, words, kind);
}

function note(root, state, words, kind) {
  const box = root.querySelector(`[data-state="${CSS.escape(state)}"] rect`);
  return box && pill(corner(box, 'x', 'width') - 8 - words.length * 3, corner(box, 'y'), words, kind);
}

const corner = (node, ...names) => names.reduce((total, name) => total + Number(node.getAttribute(name)), 0);

function pill(x, y, words, kind) {
  const width = words.length * 6.2 + 10;
  const box = shape('rect', { x: x - width / 2, y: y - 8, width, height: 16, rx: 8 });
  return shape('g', { class: `pill ${kind}` }, box, shape('text', { x, y: y + 4 }, words));
}
