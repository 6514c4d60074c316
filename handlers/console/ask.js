// Questions to the server that sent this page, and to no other. The token stays in this tab.

const KEPT = 'interlock-token';
const PATIENCE = 10_000; // ms

// An error whose message is for the reader of the page.
export class ToldError extends Error {}
export class AwayError extends ToldError {}
export class TokenError extends ToldError {}
export class RefusedError extends ToldError {}

export const hasToken = () => sessionStorage.getItem(KEPT) !== null;

export const keepToken = (token) => sessionStorage.setItem(KEPT, token);

export const forgetToken = () => sessionStorage.removeItem(KEPT);

export const askJson = async (path, query, signal) => (await ask(path, query, signal)).json();

export const askText = async (path, signal) => (await ask(path, {}, signal)).text();

// Raises AwayError, TokenError or RefusedError; an AbortError is for whoever aborted.
async function ask(path, query, signal) {
  const given = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  const address = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  const reply = await reach(address, signal);
  if (reply.ok) return reply;
  const message = await toMessage(reply);
  if (reply.status === 401) throw new TokenError(hasToken() ? message : '');
  if (reply.status >= 502) throw new AwayError(message);
  throw new RefusedError(message);
}

async function reach(address, signal) {
  try {
    return await fetch(address, {
      headers: toHeaders(),
      cache: 'no-store',
      redirect: 'error',
      signal: AbortSignal.any([signal, AbortSignal.timeout(PATIENCE)]),
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new AwayError('The server does not answer.');
  }
}

// A header takes one byte a character, and the server knows its tokens in UTF-8.
function toHeaders() {
  if (!hasToken()) return {};
  const bytes = new TextEncoder().encode(sessionStorage.getItem(KEPT));
  return { Authorization: `Bearer ${String.fromCharCode(...bytes)}` };
}

async function toMessage(reply) {
  try {
    return (await reply.json()).error.message;
  } catch {
    return `The server answers with status ${reply.status}.`;
  }
}
