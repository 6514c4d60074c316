// What goes on now: counts of moves on the diagram of a machine, and what is under way.

import { askJson } from './ask.js';
import { byId, el, fill, setAttribute, setText, show } from './dom.js';
import { draw, weigh } from './drawing.js';
import { link } from './view.js';
import { number } from './words.js';

const TRACED = ['exchange', 'durable'];
const ENDS = { DONE: 'done', REFUSED: 'refused', FAILED: 'failed', ABANDONED: 'given up' };
const INKS = { DONE: 'done', REFUSED: 'refused', FAILED: 'failed', ABANDONED: 'abandoned' };

const MOST = 100; // of what is under way, and of writes, are told of
const STUCK = ['WEDGED', 'EXPIRED', 'FAILED'];

let drawn = '';

export const live = {
  name: 'live',
  title: () => 'Live',
  every: 2000,

  async refresh(params, signal) {
    const machine = params.get('machine') ?? 'exchange';
    const told = await askJson('interlock/live', { seconds: params.get('seconds') ?? 300 }, signal);
    await showDrawing(machine, signal);
    showTiles(told);
    const moves = told.moves.filter((move) => move.machine === machine).sort((a, b) => b.count - a.count);
    weigh(byId('live-drawing').firstElementChild, moves, toHere(told.under_way, machine));
    showMoves(moves, told.window_seconds);
  },
};

async function showDrawing(machine, signal) {
  if (drawn === machine) return;
  byId('live-drawing').replaceChildren(await draw(machine, signal));
  setAttribute(byId('live-drawing'), 'aria-label', `Diagram of ${machine}, with counts`);
  drawn = machine;
}

function toHere(traces, machine) {
  const here = new Map();
  for (const trace of traces) {
    if (trace.machine === machine) here.set(trace.state, (here.get(trace.state) ?? 0) + 1);
  }
  return here;
}

function showTiles(told) {
  const last = told.window_seconds;
  const ended = (state) => told.moves
    .filter((move) => TRACED.includes(move.machine) && move.to === state)
    .reduce((total, move) => total + move.count, 0);
  const stuck = told.writes.some((write) => STUCK.includes(write.state)) ? 'failed' : 'delayed';
  const waiting = told.models.reduce((total, model) => total + model.waiting, 0);
  const tiles = [
    { name: 'under way', count: told.under_way.length, most: MOST, ink: 'progress', href: link({ view: 'exchanges' }) },
    { name: 'waiting for a model', count: waiting, ink: 'delayed', href: link({ view: 'models' }) },
    ...Object.entries(ENDS).map(([state, name]) => (
      { name, count: ended(state), ink: INKS[state], href: link({ view: 'exchanges', state, last }) })),
    { name: 'writes not landed', count: told.writes.length, most: MOST, ink: stuck, href: link({ view: 'models' }) },
  ];
  fill(byId('tiles'), tiles, (tile) => tile.name, makeTile, updateTile);
}

const makeTile = ({ name }) => el('li', {}, el('a', {}, el('strong'), el('span', {}, name)));

function updateTile({ firstElementChild: anchor }, { count, most, ink, href }) {
  setAttribute(anchor, 'href', href);
  setAttribute(anchor, 'class', `tile panel ${ink}${count ? '' : ' zero'}`);
  setText(anchor.firstElementChild, count === most ? `${number(count)} or more` : number(count));
}

function showMoves(moves, last) {
  show(byId('moves'), moves.length > 0);
  show(byId('moves-none'), moves.length === 0);
  const toKey = ({ machine, event, from }) => `${machine} ${event} ${from}`;
  fill(byId('moves').tBodies[0], moves, toKey, makeMove, (row, { event, count }) => {
    const anchor = row.querySelector('a');
    if (anchor) setAttribute(anchor, 'href', link({ view: 'exchanges', event, last }));
    setText(row.lastElementChild, number(count));
  });
}

function makeMove({ machine, event, from, to }) {
  const name = TRACED.includes(machine) ? el('a', {}, event) : event;
  return el('tr', {},
    el('td', { class: 'code' }, name, el('div', { class: 'quiet' }, `${from} → ${to}`)),
    el('td', { class: 'number' }));
}
