// The page: which view is shown, when it asks again, and what is said when the server is away or wants a token.

import { AwayError, ToldError, TokenError, forgetToken, hasToken, keepToken } from './ask.js';
import { byId, setText, show } from './dom.js';
import { exchange } from './exchange.js';
import { exchanges } from './exchanges.js';
import { live } from './live.js';
import { models } from './models.js';
import { pace } from './pace.js';
import { fromFields, link, nameOf, read, setFields } from './view.js';
import { clock } from './words.js';

const VIEWS = [live, exchanges, exchange, models, pace];
const NAMES = VIEWS.map((view) => view.name).filter((name) => name !== 'exchange');
const AGAIN = 3000; // ms until a server that is away is asked again

let shown = null; // the view, and what it was opened with
let asking = new AbortController();
let timer = 0;
let lastSeen = 0;

function open() {
  const params = read();
  const view = VIEWS.find(({ name }) => name === nameOf(params, NAMES));
  const before = shown;
  shown = { view, params, said: null };
  for (const form of document.querySelectorAll('form[data-view]')) {
    if (form.dataset.view === view.name) setFields(form, params);
  }
  view.open?.(params);
  document.title = `${view.title(params)} · Interlock`;
  for (const anchor of document.querySelectorAll('header nav a')) mark(anchor, view);
  reveal(view.name);
  if (before && before.view !== view) focusOn(before, view);
  refresh();
}

function mark(anchor, view) {
  if (anchor.hash === link({ view: view.name })) anchor.setAttribute('aria-current', 'page');
  else anchor.removeAttribute('aria-current');
}

function reveal(name) {
  for (const section of document.querySelectorAll('main > section')) show(section, section.id === name);
}

// Back in the list, the focus is on the exchange that was looked at.
function focusOn(before, view) {
  const from = before.params.get('exchange');
  const row = view === exchanges && from && document.querySelector(`[data-exchange="${CSS.escape(from)}"]`);
  (row || byId(view.name).querySelector('h1')).focus();
}

async function refresh() {
  clearTimeout(timer);
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  try {
    const { every = shown.view.every, said = null } = await shown.view.refresh(shown.params, signal) ?? {};
    if (signal.aborted) return;
    settle();
    announce(said);
    askAgain(every);
  } catch (error) {
    if (!signal.aborted) fail(error);
  }
}

const isPaused = () => byId('pause').getAttribute('aria-pressed') === 'true';

function askAgain(ms) {
  if (ms && !isPaused() && !document.hidden) timer = setTimeout(refresh, ms);
}

function settle() {
  if (!byId('news').hidden) setText(byId('said'), 'The server answers again.');
  show(byId('news'), false);
  show(byId('forget'), hasToken());
  reveal(shown.view.name);
  lastSeen = Date.now() / 1000;
}

// What changed since the last look is said, not what was there at first.
function announce(words) {
  if (shown.said !== null && words !== shown.said) setText(byId('said'), words);
  shown.said = words;
}

function fail(error) {
  if (error instanceof TokenError) {
    wantToken(error.message);
    return;
  }
  const since = lastSeen ? ` What is shown is from ${clock(lastSeen)}.` : '';
  setText(byId('news'), error instanceof AwayError ? `${error.message} Asking again.${since}` : error.message);
  show(byId('news'), true);
  askAgain(AGAIN);
  if (!(error instanceof ToldError)) console.error(error);
}

function wantToken(fault) {
  show(byId('news'), false);
  show(byId('forget'), hasToken());
  setText(byId('token-fault'), fault);
  byId('token-text').setAttribute('aria-invalid', String(fault !== ''));
  reveal('token');
  byId('token-text').focus();
}

function useToken(event) {
  event.preventDefault();
  keepToken(byId('token-text').value.trim());
  byId('token-text').value = '';
  reveal(shown.view.name); // what is hidden has no size to reckon with
  refresh().then(() => byId('token').hidden && byId(shown.view.name).querySelector('h1').focus());
}

function find(event) {
  event.preventDefault();
  const id = byId('find-id').value.trim();
  location.hash = link(id.startsWith('resp_') ? { view: 'exchanges', response_id: id } : { exchange: id });
  byId('find-id').value = '';
}

function pause() {
  byId('pause').setAttribute('aria-pressed', String(!isPaused()));
  wake();
}

function wake() {
  clearTimeout(timer);
  if (!isPaused() && !document.hidden) refresh();
}

function forget() {
  forgetToken();
  refresh();
}

function listen() {
  window.addEventListener('hashchange', open);
  document.addEventListener('visibilitychange', wake);
  byId('skip').addEventListener('click', () => byId('main').focus());
  byId('token-form').addEventListener('submit', useToken);
  byId('find').addEventListener('submit', find);
  byId('pause').addEventListener('click', pause);
  byId('forget').addEventListener('click', forget);
  for (const form of document.querySelectorAll('form[data-view]')) {
    form.addEventListener('submit', (event) => event.preventDefault());
    form.addEventListener('change', () => { if (form.reportValidity()) location.hash = fromFields(form); });
  }
}

listen();
open();
