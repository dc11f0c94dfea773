// Requests to our own server. Each carries a header that a page of another site cannot send.

import { claimStream } from "./streams.js";

const HEADERS = { "X-Requested-With": "squall-ui" };

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// In a secured cluster a session ends: the form leads back here.
function logInAgain(status) {
  if (status === 401 && document.documentElement.dataset.user !== undefined) {
    location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
}

export async function request(path, { method = "GET", body, signal } = {}) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      signal,
      headers: body === undefined ? HEADERS : { ...HEADERS, "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The UI's server does not answer.");
  }
  const value = await answer.json().catch(() => null);
  if (!answer.ok) logInAgain(answer.status);
  if (!answer.ok) throw new ApiError(answer.status, value?.errorMessage ?? answer.statusText);
  return value;
}

// Follow a state: `onState(state)` is called with each version. Ends with the signal. A page that is
// not seen follows nothing: browsers open only six connections to a server, for all of its pages. Of
// those that are seen, some keep a stream open, and the others ask for changes (`streams.js`).
export async function follow(path, onState, onStatus, signal) {
  let pause = 500;
  let version = null;
  let state = null;
  while (!signal.aborted) {
    try {
      if (state === null) {
        const whole = await request(`${path}/state`, { signal });
        ({ version, state } = whole);
        onState(state);
      }
      onStatus("live");
      pause = 500;
      const seen = whileSeen(signal);
      for await (const event of changes(path, () => version, seen)) {
        state = event.state ?? merged(state, event.change);
        version = event.version;
        onState(state);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (document.hidden) {
        await untilSeen(signal);
        continue;
      }
      if (error.status === 404) {
        onStatus("gone", error.message);
        return;
      }
      state = null;
      onStatus("away", error.message);
    }
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, 5000);
  }
}

// A signal that ends with another one, or when the page is hidden.
function whileSeen(signal) {
  const hidden = new AbortController();
  const look = () => document.hidden && hidden.abort();
  document.addEventListener("visibilitychange", look, { signal: AbortSignal.any([signal, hidden.signal]) });
  look();
  return AbortSignal.any([signal, hidden.signal]);
}

function untilSeen(signal) {
  return new Promise((done) => {
    const ended = new AbortController();
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      ended.abort();
      done();
    };
    document.addEventListener("visibilitychange", look, { signal: ended.signal });
    signal.addEventListener("abort", look, { signal: ended.signal });
    look();
  });
}

function merged(state, change) {
  const next = { ...state, ...change };
  if (change.components && state.components) {
    next.components = { ...state.components, ...change.components };
    for (const [name, one] of Object.entries(change.components)) {
      if (one === null) delete next.components[name];
    }
  }
  return next;
}

const ASK_MS = 250;
const CLAIM_AGAIN_MS = 10_000;

// The changes after a version: from a stream, or from one request after the other.
async function* changes(path, version, signal) {
  for (;;) {
    const release = await claimStream();
    if (release) {
      try {
        yield* events(`${path}?since=${version()}`, signal);
      } finally {
        release();
      }
      return;
    }
    const until = performance.now() + CLAIM_AGAIN_MS;
    while (performance.now() < until) {
      yield* events(`${path}?since=${version()}&wait=no`, signal);
      await new Promise((done) => setTimeout(done, ASK_MS));
    }
  }
}

async function* events(path, signal) {
  const answer = await fetch(path, { headers: HEADERS, signal });
  if (!answer.ok) logInAgain(answer.status);
  if (!answer.ok) throw new ApiError(answer.status, (await answer.json()).errorMessage);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const event = text.slice(0, end);
      text = text.slice(end + 2);
      if (event.startsWith("data: ")) yield JSON.parse(event.slice(6));
    }
  }
}
