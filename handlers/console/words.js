// Numbers, times and outcomes as people read them.

const whole = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });
const UNITS = ['B', 'KB', 'MB', 'GB', 'TB'];

const ENDS = { DONE: 'done', REFUSED: 'refused', FAILED: 'failed', ABANDONED: 'abandoned' };
const DELAYS = ['AWAITING_WRITE', 'HELD'];

export const number = (n) => whole.format(n);

export const plural = (n, word) => `${number(n)} ${word}${n === 1 ? '' : 's'}`;

export const about = (n) => short.format(n);

export function duration(ms) {
  if (ms < 1) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(2)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function bytes(n) {
  const power = n < 1 ? 0 : Math.min(Math.floor(Math.log2(n) / 10), UNITS.length - 1);
  return `${about(n / 1024 ** power)} ${UNITS[power]}`;
}

const pad = (n, digits = 2) => String(n).padStart(digits, '0');

const toDay = (date) => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;

const toTime = (date) => `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;

// The time here, with its day unless that is today.
export function moment(seconds) {
  const date = new Date(seconds * 1000);
  const time = `${toTime(date)}.${pad(date.getMilliseconds(), 3)}`;
  return toDay(date) === toDay(new Date()) ? time : `${toDay(date)} ${time}`;
}

export const clock = (seconds) => toTime(new Date(seconds * 1000)).slice(0, 5);

// As a field of type datetime-local has it.
export const toLocal = (seconds) => `${toDay(new Date(seconds * 1000))}T${toTime(new Date(seconds * 1000))}`;

// One of the inks of the diagrams, and words for how an exchange went.
export function outcome(trace) {
  const ink = ENDS[trace.state] ?? (DELAYS.includes(trace.state) ? 'delayed' : 'progress');
  if (trace.ended_at === null) return { ink, words: `under way, ${trace.state}` };
  if (ink === 'refused') return { ink, words: `refused ${trace.status}` };
  return { ink, words: ink === 'abandoned' ? 'given up' : ink };
}

export const took = (trace) => trace.moves.reduce((sum, move) => sum + move.ms, 0) + (trace.facts.in_state_ms ?? 0);

// What became of the row of a response, by the move that told it.
export function written({ moves, facts }) {
  const told = moves.findLast((move) => move.event.startsWith('row_'));
  if (!told) return null;
  const ms = duration(told.ms);
  return {
    row_written: `on the disk after ${duration(facts.write_ms ?? told.ms)}`,
    row_late: `late: not on the disk after ${ms}, and went on by itself`,
    row_lost: `lost: it failed after ${ms}`,
    row_unwanted: 'not wanted (store is false)',
  }[told.event] ?? told.event;
}

export function queued({ ahead, running }) {
  if (ahead === undefined) return null;
  const before = ahead === 0 ? 'nobody ahead' : `${number(ahead)} ahead`;
  return running === undefined ? before : `${before}, ${number(running)} decoding`;
}
