// The models: bindings, queues, pools of KV caches; and the writes that have not landed.

import { askJson } from './ask.js';
import { byId, el, fill, setAttribute, setText, show } from './dom.js';
import { draw, toWords } from './drawing.js';
import { link } from './view.js';
import { bytes, duration, number, plural } from './words.js';

const INKS = { READY: 'done', LOADING: 'progress', BROKEN: 'failed', RETIRED: 'abandoned' };
const WRITES = { IN_FLIGHT: 'progress', LATE: 'delayed', WEDGED: 'failed', EXPIRED: 'failed', FAILED: 'failed' };

export const models = {
  name: 'models',
  title: () => 'Models',
  every: 2000,

  async refresh(_, signal) {
    const told = await askJson('interlock/live', {}, signal);
    fill(byId('model-list'), told.models, (model) => model.name, makeModel, updateModel);
    const words = toWords(await draw('write', signal));
    show(byId('writes'), told.writes.length > 0);
    show(byId('writes-none'), told.writes.length === 0);
    const update = (row, write) => updateWrite(row, write, words.get(write.state));
    fill(byId('writes').tBodies[0], told.writes, (write) => write.id, makeWrite, update);
  },
};

function makeModel({ name }) {
  const anchor = el('a', { href: link({ view: 'exchanges', model: name }) }, name);
  const heading = el('h2', {}, anchor, ' ', el('span', { class: 'badge' }));
  return el('li', { class: 'panel' }, heading, el('dl', { class: 'facts' }));
}

function updateModel(node, model) {
  setText(node.querySelector('.badge'), model.state);
  setAttribute(node.querySelector('.badge'), 'class', `badge ${INKS[model.state] ?? 'delayed'}`);
  fill(node.querySelector('dl'), toFacts(model), (fact) => fact.name, makeFact, updateFact);
}

function toFacts({ running, capacity, waiting, queue_limit: limit, cache, instance, step_seconds: step, ...held }) {
  const holders = [[held.leases, 'request'], [held.retains, 'write'], [held.tombstones, 'tombstone']];
  return [
    { name: 'Decoding', value: `${number(running)} of ${number(capacity)}`, part: running / capacity },
    { name: 'Waiting', value: `${number(waiting)} of ${number(limit)}`, part: waiting / limit },
    {
      name: 'KV caches',
      value: cache ? `${number(cache.entries)} in ${bytes(cache.bytes)} of ${bytes(cache.limit)}` : 'none',
      part: cache?.limit ? cache.bytes / cache.limit : 0,
    },
    { name: 'Step under way', value: step ? `for ${duration(step * 1000)}` : 'none' },
    { name: 'Held by', value: holders.filter(([n]) => n).map(([n, word]) => plural(n, word)).join(', ') || 'nobody' },
    { name: 'Instance', value: String(instance) },
  ];
}

function makeFact({ name, part }) {
  const bar = part === undefined ? '' : el('span', { class: 'bar' }, el('span'));
  return el('div', {}, el('dt', {}, name), el('dd', {}, el('span'), bar));
}

function updateFact(node, { value, part }) {
  setText(node.querySelector('dd > span'), value);
  const level = node.querySelector('.bar > span');
  if (level) level.style.width = `${Math.min(100, 100 * part).toFixed(1)}%`;
}

const cell = (name, ...children) => el('td', { role: 'cell', 'data-label': name }, ...children);

function makeWrite({ id }) {
  const anchor = el('a', { class: 'code', href: link({ view: 'exchanges', response_id: id }) }, id);
  const row = el('tr', { role: 'row' }, cell('Response', anchor), cell('State'), cell('For'));
  row.cells[1].append(el('span', { class: 'badge' }), ' ', el('span', { class: 'quiet' }));
  row.cells[2].classList.add('number');
  return row;
}

function updateWrite(row, { state, seconds }, words) {
  setText(row.querySelector('.badge'), state);
  setAttribute(row.querySelector('.badge'), 'class', `badge ${WRITES[state] ?? 'progress'}`);
  setText(row.querySelector('.quiet'), words ?? '');
  setText(row.lastElementChild, duration(seconds * 1000));
}
