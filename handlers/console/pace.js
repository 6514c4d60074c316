// How soon answers begin, and how fast they go on: plots, and figures by model.

import { askJson } from './ask.js';
import { byId, el, fill, setAttribute, setText, show } from './dom.js';
import { plot, rank } from './plot.js';
import { toExchange } from './view.js';
import { about, duration, moment, number, plural } from './words.js';

const MOST = 500; // answers that are looked at

let redraw = () => {};

export const pace = {
  name: 'pace',
  title: () => 'Pace',
  every: 10_000,

  async refresh(params, signal) {
    const last = Number(params.get('last') ?? 900);
    const to = Date.now() / 1000;
    const from = to - last;
    const query = { state: 'DONE', model: params.get('model'), since: from.toFixed(3), limit: MOST };
    const [page, told] = await Promise.all([
      askJson('interlock/exchanges', query, signal), askJson('interlock/live', { seconds: 60 }, signal),
    ]);
    const answers = page.data.filter((trace) => trace.facts.first_token_ms !== undefined);
    offer(told.models.map((model) => model.name));
    setText(byId('pace-of'), toScope(answers, page.has_more));
    redraw = () => plotBoth(answers, { from: page.has_more ? answers.at(-1)?.started_at ?? from : from, to });
    redraw();
    showModels(answers);
  },
};

new ResizeObserver(([entry]) => { if (entry.contentRect.width) redraw(); }).observe(byId('plot-first'));

function offer(names) {
  const select = document.querySelector('#pace [name=model]');
  for (const name of names) {
    if (![...select.options].some((option) => option.value === name)) select.add(new Option(name, name));
  }
}

function toScope(answers, hasMore) {
  const count = plural(answers.length, 'answer');
  return hasMore ? `The last ${count}; there are older ones in this time.` : `${count} in this time.`;
}

function plotBoth(answers, span) {
  plotFact(byId('plot-first'), answers, 'first_token_ms', { ...span, words: duration, name: 'Time to first token' });
  plotFact(byId('plot-rate'), answers, 'tokens_per_second', { ...span, words: about, name: 'Tokens per second' });
}

function plotFact(holder, answers, fact, { name, words, ...span }) {
  const points = answers.filter(({ facts }) => facts[fact] !== undefined).map(({ facts, model, started_at: began }) => (
    { x: began, y: facts[fact], title: `${words(facts[fact])}, ${model}, ${moment(began)}` }));
  const title = `${name} of ${plural(points.length, 'answer')}; the table has the figures`;
  plot(holder, { ...span, points, words, title });
}

function showModels(answers) {
  const byModel = new Map();
  for (const trace of answers) byModel.set(trace.model, [...(byModel.get(trace.model) ?? []), trace]);
  show(byId('paces'), byModel.size > 0);
  fill(byId('paces').tBodies[0], byModel, ([name]) => name, makeRow, updateRow);
}

const cell = (name, kind, ...children) => el('td', { role: 'cell', 'data-label': name, class: kind }, ...children);

function makeRow() {
  return el('tr', { role: 'row' }, cell('Model', ''), cell('Answers', 'number'), cell('First token, median', 'number'),
    cell('95 of 100 within', 'number'), cell('Tokens/s, median', 'number'), cell('Slowest to begin', '', el('a')));
}

function updateRow(row, [name, answers]) {
  const firsts = answers.map(({ facts }) => facts.first_token_ms);
  const rates = answers.map(({ facts }) => facts.tokens_per_second).filter((rate) => rate !== undefined);
  const starts = [0.5, 0.95].map((share) => duration(rank(firsts, share)));
  const rate = rates.length ? about(rank(rates, 0.5)) : '';
  [name ?? '', number(answers.length), ...starts, rate].forEach((text, place) => setText(row.cells[place], text));
  const slowest = answers[firsts.indexOf(Math.max(...firsts))];
  const anchor = row.querySelector('a');
  setAttribute(anchor, 'href', toExchange(slowest.id));
  setText(anchor, `${duration(slowest.facts.first_token_ms)}, ${moment(slowest.started_at)}`);
}
