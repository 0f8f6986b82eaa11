
// The server as this page calls it: the key, streams of events, and what went wrong in words.

const KEY = 'kipp-key';
let key = sessionStorage.getItem(KEY) ?? '';

function keepKey(value) {
  key = value;
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

/** Something that a person is told. */
class Fault extends Error {
  constructor(message, status = 0, retrySeconds = 0) {
    super(message);
    this.status = status;
    this.retrySeconds = retrySeconds;
  }
}

const UNREACHABLE = 'The server does not answer. Is it still running?';

async function faultOf(response) {
  const said = await response.json().then((body) => body.error?.message, () => '');
  const status = response.status;
  const seconds = Number(response.headers.get('retry-after')) || 0;
  const later = seconds ? ` It suggests to try again in ${seconds} s.` : '';
  if (status === 401) return new Fault('The server asks for a key.', status);
  if (status === 429) return new Fault(`The server is busy, and its queue is full.${later}`, status, seconds);
  if (status === 503) return new Fault(`The server takes no requests now: ${said || 'it is loading or about to end'}.${later}`, status, seconds);
  if (status === 400) return new Fault(`The server refuses this request: ${said}`, status);
  return new Fault(`The server answers with status ${status}${said ? `: ${said}` : ''}.`, status);
}

async function call(path, options = {}) {
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Fault(UNREACHABLE);
  }
  if (!response.ok) throw await faultOf(response);
  return response;
}

/** The events of a streamed chat. One that breaks off before its end is a fault, not an answer. */
async function* chatEvents(body, signal) {
  const response = await call('/v1/chat/completions', {
    method: 'POST', signal, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Fault('The connection broke off in the middle of the answer.');
    }
    if (piece.done) throw new Fault('The answer broke off before its end.');
    text += piece.value;
    const lines = text.split('\n');
    text = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data:')) continue;
      const data = line.slice(5).trim();
      if (data === '[DONE]') return;
      const event = JSON.parse(data);
      if (event.error) throw new Fault(`The server gave up: ${event.error.message}`);
      yield event;
    }
  }
}
