// The list of exchanges: filters, a table, pages.

import { RefusedError, askJson } from './ask.js';
import { byId, el, fill, setAttribute, setText, show } from './dom.js';
import { draw, toEvents } from './drawing.js';
import { link, toExchange } from './view.js';
import { about, duration, moment, outcome, took } from './words.js';

const FILTERS = ['state', 'status', 'event', 'model', 'response_id'];
const PAGE = 25;

export const exchanges = {
  name: 'exchanges',
  title: () => 'Exchanges',
  every: 3000,

  open(params) {
    for (const label of document.querySelectorAll('#filters .between')) show(label, params.get('last') === 'between');
    setText(byId('list-fault'), '');
  },

  async refresh(params, signal) {
    await suggest(signal);
    try {
      const page = await askJson('interlock/exchanges', toQuery(params), signal);
      setText(byId('list-fault'), '');
      showPage(page, params);
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
      setText(byId('list-fault'), error.message);
      showPage({ data: [], has_more: false }, params);
    }
  },
};

function toQuery(params) {
  const query = Object.fromEntries(FILTERS.map((name) => [name, params.get(name)]));
  return { ...query, ...toSpan(params), limit: PAGE, after: params.get('after') };
}

function toSpan(params) {
  const last = params.get('last');
  if (last === 'between') return { since: toStamp(params.get('since')), until: toStamp(params.get('until')) };
  return last ? { since: (Date.now() / 1000 - Number(last)).toFixed(3) } : {};
}

// A time of this place, or what else stands there: the server says what is wrong with it.
function toStamp(text) {
  const ms = Date.parse(text ?? '');
  return Number.isNaN(ms) ? text : ms / 1000;
}

async function suggest(signal) {
  const told = await askJson('interlock/live', { seconds: 60 }, signal);
  show(byId('untraced'), !told.tracing);
  suggestIn(byId('model-names'), told.models.map((model) => model.name));
  if (byId('events').childElementCount) return;
  suggestIn(byId('events'), [...toEvents(await draw('exchange', signal))]);
}

function suggestIn(list, words) {
  fill(list, words, (word) => word, () => el('option'), (option, word) => setAttribute(option, 'value', word));
}

function showPage(page, params) {
  show(byId('list'), page.data.length > 0);
  show(byId('list-none'), page.data.length === 0);
  fill(byId('list').tBodies[0], page.data, (trace) => trace.id, makeRow, updateRow);
  const shown = page.data.length === 1 ? '1 shown' : `${page.data.length} shown`;
  setText(byId('found'), page.has_more ? `${shown}, and there are older ones` : shown);
  const filters = Object.fromEntries(params);
  turnTo(byId('newest'), params.has('after') && { ...filters, after: '' });
  turnTo(byId('older'), page.has_more && { ...filters, after: page.last_id });
}

function turnTo(anchor, values) {
  const hadFocus = anchor === document.activeElement;
  show(anchor, Boolean(values));
  if (values) setAttribute(anchor, 'href', link(values));
  else if (hadFocus) byId('exchanges').querySelector('h1').focus();
}

const cell = (name, kind = '') => el('td', { role: 'cell', 'data-label': name, class: kind });

function makeRow(trace) {
  const row = el('tr', { role: 'row' }, cell('Began'), cell('Outcome'), cell('Last event', 'code'), cell('Model'),
    cell('Request', 'code quiet'), cell('Took', 'number'), cell('First token', 'number'), cell('Tokens/s', 'number'));
  const name = el('a', { href: toExchange(trace.id), 'data-exchange': trace.id });
  row.cells[0].append(name);
  row.cells[1].append(el('span', { class: 'badge' }));
  return row;
}

function updateRow(row, trace) {
  const { ink, words } = outcome(trace);
  const { first_token_ms: first, tokens_per_second: rate } = trace.facts;
  const [began, how, event, model, request, whole, start, pace] = row.cells;
  setText(began.firstElementChild, moment(trace.started_at));
  setAttribute(began.firstElementChild, 'aria-label', `${moment(trace.started_at)}, ${words}, exchange ${trace.id}`);
  setAttribute(how.firstElementChild, 'class', `badge ${ink}`);
  setText(how.firstElementChild, words);
  setText(event, trace.event);
  setText(model, trace.model ?? '');
  setText(request, `${trace.method} ${trace.path}`);
  setText(whole, duration(took(trace)));
  setText(start, first === undefined ? '' : duration(first));
  setText(pace, rate === undefined ? '' : about(rate));
}
