// One exchange: why it ended as it did, its path, and what was measured.

import { RefusedError, askJson } from './ask.js';
import { byId, el, fill, setAttribute, setText, show } from './dom.js';
import { draw, drawLit, time, toWords } from './drawing.js';
import { link } from './view.js';
import { about, duration, moment, number, outcome, queued, took, written } from './words.js';

const LEADING = { Model: 'model', Response: 'response_id' }; // facts that lead to a list, by its filter

let known = ''; // the exchange that is shown, and how many moves of it

export const exchange = {
  name: 'exchange',
  title: (params) => `Exchange ${params.get('exchange')}`,
  every: 1000,

  open(params) {
    known = '';
    setText(byId('one-id'), params.get('exchange'));
    setText(byId('one-fault'), '');
    show(byId('one'), false);
  },

  async refresh(params, signal) {
    const id = params.get('exchange');
    try {
      const trace = await askJson(`interlock/exchanges/${encodeURIComponent(id)}`, {}, signal);
      show(byId('one'), true);
      showWhole(trace);
      await showPath(trace, signal);
      return { every: trace.ended_at === null ? this.every : 0, said: `${outcome(trace).words} by ${trace.event}` };
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      show(byId('one'), false);
      setText(byId('one-fault'), error.message);
      return { every: 0 };
    }
  },
};

function showWhole(trace) {
  const { ink, words } = outcome(trace);
  setText(byId('one-outcome'), words);
  setAttribute(byId('one-outcome'), 'class', `badge ${ink}`);
  setText(byId('one-request'), `${trace.method} ${trace.path}`);
  setText(byId('one-took'), `${moment(trace.started_at)} here, for ${duration(took(trace))}`);
  show(byId('one-why'), trace.message !== null);
  setAttribute(byId('one-why'), 'class', ink);
  setText(byId('one-sentence'), trace.message ?? '');
  const code = trace.code ? `, with the code ${trace.code}` : '';
  setText(byId('one-row'), `The row ${toLeading(trace)} of the table ${trace.machine} says so${code}.`);
  fill(byId('one-facts'), toFacts(trace), (fact) => fact.name, makeFact, updateFact);
}

// The event of the row that refused it, or of the one that made it fail.
function toLeading({ event, moves }) {
  return moves.findLast((move) => move.to === 'FAILING')?.event ?? event;
}

function toFacts(trace) {
  const { facts } = trace;
  const count = (name) => (facts[name] === undefined ? null : number(facts[name]));
  const share = Math.round((100 * facts.cached_tokens) / Math.max(1, facts.prompt_tokens));
  const shown = {
    Began: new Date(trace.started_at * 1000).toISOString(),
    'Last event': trace.event,
    Model: trace.model,
    Response: trace.response_id,
    'In the queue': queued(facts),
    'Prompt tokens': count('prompt_tokens'),
    'of them cached': facts.cached_tokens === undefined ? null : `${count('cached_tokens')} (${share} %)`,
    'Output tokens': count('output_tokens'),
    'First token': facts.first_token_ms === undefined ? null : `after ${duration(facts.first_token_ms)}`,
    'Tokens/s': facts.tokens_per_second === undefined ? null : about(facts.tokens_per_second),
    Row: written(trace),
    'Retry after': facts.retry_after === undefined ? null : `${facts.retry_after} s`,
  };
  return Object.entries(shown).filter(([, value]) => value !== null).map(([name, value]) => ({ name, value }));
}

const makeFact = ({ name }) => el('div', {}, el('dt', {}, name), el('dd', {}, name in LEADING ? el('a') : ''));

function updateFact(node, { name, value }) {
  const anchor = node.querySelector('a');
  if (anchor) setAttribute(anchor, 'href', link({ view: 'exchanges', [LEADING[name]]: value }));
  setText(anchor ?? node.lastElementChild, value);
}

async function showPath(trace, signal) {
  const steps = toSteps(trace);
  const now = `${trace.id} ${trace.moves.length}`;
  if (known !== now) {
    const [words, lit] = await Promise.all([draw(trace.machine, signal), drawLit(trace.id, signal)]);
    byId('one-drawing').replaceChildren(lit);
    scrollToEnd(byId('one-drawing'), trace);
    const names = toWords(words);
    byId('one-path').replaceChildren(...steps.map((step) => makeStep(step, names.get(step.state))));
    known = now;
  }
  const longest = Math.max(1, ...steps.map((step) => step.ms ?? 0));
  steps.forEach((step, place) => updateStep(byId('one-path').children[place], step, longest));
  time(byId('one-drawing').firstElementChild, toSpent(steps));
}

// Shows the part of the drawing where the path stands now, or where it ended.
function scrollToEnd(holder, { event, moves }) {
  const from = moves.at(-1)?.from;
  const edge = holder.querySelector(`.edge[data-event="${CSS.escape(event)}"][data-from="${CSS.escape(from ?? '')}"]`);
  if (!edge) return;
  const [inner, outer] = [edge.getBoundingClientRect(), holder.getBoundingClientRect()];
  holder.scrollTop += inner.top - outer.top - holder.clientHeight * 0.6;
  holder.scrollLeft += Math.max(0, inner.right - outer.right + 24);
}

// The states it was in; the last one has no event that left it.
function toSteps({ moves, state, ended_at: ended, facts }) {
  const left = moves.map((move) => ({ state: move.from, ms: move.ms, event: move.event }));
  return [...left, { state, ms: ended === null ? facts.in_state_ms ?? 0 : null, event: '' }];
}

function toSpent(steps) {
  const spent = new Map();
  for (const { state, ms } of steps.filter((step) => step.ms !== null)) spent.set(state, (spent.get(state) ?? 0) + ms);
  return spent;
}

function makeStep({ state, event, ms }, words) {
  return el('li', {},
    el('span', { class: 'state code' }, state), el('span', { class: 'number' }),
    el('span', { class: 'quiet' }, words ?? ''), el('span', { class: 'event code' }, event),
    ms === null ? '' : el('span', { class: 'bar' }, el('span')));
}

function updateStep(node, { ms }, longest) {
  if (ms === null) return;
  setText(node.querySelector('.number'), duration(ms));
  node.querySelector('.bar > span').style.width = `${((100 * ms) / longest).toFixed(1)}%`;
}
