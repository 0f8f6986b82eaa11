
// The page at work: sending, stopping, keys, and what is kept while the tab is open.

const CONVERSATION = 'kipp-conversation';
let running;
let lookTimer;

const scrolledDown = () => window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
const scrollDown = () => window.scrollTo({ top: document.body.scrollHeight });

function setRunning(controller) {
  running = controller;
  const hadFocus = [byId('send'), byId('stop')].includes(document.activeElement);
  byId('send').hidden = Boolean(controller);
  byId('stop').hidden = !controller;
  if (hadFocus) (controller ? byId('stop') : byId('prompt')).focus();
}

function keepConversation() {
  const kept = turns.map(({ view, ...turn }) => turn);
  try {
    sessionStorage.setItem(CONVERSATION, JSON.stringify(kept));
  } catch {
    // Full: a conversation of megabytes is not kept over a reload.
  }
}

function recallConversation() {
  for (const turn of JSON.parse(sessionStorage.getItem(CONVERSATION) ?? '[]')) finishTurn(addTurn({ ...turn, running: false }, handlers));
}

/** Asks the model for the next turn. */
async function answer() {
  const turn = { role: 'assistant', content: '', thinking: '', calls: [], running: true, begun: performance.now() };
  const messages = [...systemMessages(), ...turns.map(messageOf)];
  addTurn(turn, handlers);
  scrollDown();
  const controller = new AbortController();
  setRunning(controller);
  let frame = 0;
  const show = () => {
    frame = 0;
    const follow = scrolledDown();
    showTurn(turn);
    if (follow) scrollDown();
  };
  try {
    const body = { messages, stream: true, stream_options: { include_usage: true }, ...requestFields() };
    for await (const event of chatEvents(body, controller.signal)) {
      grow(turn, event);
      frame ||= requestAnimationFrame(show);
    }
  } catch (fault) {
    if (fault.name === 'AbortError') turn.finish = 'stopped';
    else turn.fault = fault instanceof Fault ? fault.message : `This page failed: ${fault.message}`;
    if (fault.status === 401) askKey(() => handlers.retry(turn));
  } finally {
    cancelAnimationFrame(frame);
    const follow = scrolledDown();
    turn.running = false;
    if (turn.thinking) turn.thoughtMs ??= performance.now() - turn.thoughtFrom;
    finishTurn(turn);
    if (running === controller) setRunning(undefined);
    keepConversation();
    if (follow) scrollDown();
  }
  if (turn.fault === undefined) byId('spoken').textContent = `Answer ${turn.finish === 'stopped' ? 'stopped' : 'finished'}. ${spoken(turn)}`;
}

const spoken = (turn) => (turn.calls.length ? `It calls ${turn.calls.map((call) => call.function.name).join(', ')}.` : turn.view.text.textContent);

/** Shows a turn that does not grow any more. */
function finishTurn(turn) {
  showTurn(turn);
  if (turn.role !== 'assistant') return;
  turn.view.note.textContent = noteOf(turn);
  if (turn.fault !== undefined) showFault(turn, turn.fault, () => handlers.retry(turn));
  // The server streams whole calls only: those of an answer that was cut are as good as others.
  if (turn.calls.length) showCalls(turn, (results) => {
    for (const result of results) addTurn(result, handlers);
    answer();
  });
}

const handlers = {
  retry(turn) {
    running?.abort();
    cutAt(turn);
    answer();
  },
  edit(turn) {
    running?.abort();
    cutAt(turn);
    keepConversation();
    byId('prompt').value = turn.content;
    fitPrompt();
    byId('prompt').focus();
  },
};

function send() {
  const content = byId('prompt').value;
  if (running || !content.trim()) return;
  byId('prompt').value = '';
  byId('spoken').textContent = '';
  fitPrompt();
  addTurn({ role: 'user', content }, handlers);
  answer();
}

function fitPrompt() {
  const field = byId('prompt');
  field.style.height = 'auto';
  field.style.height = `${Math.min(field.scrollHeight + 2, 240)}px`;
}

let afterKey;

function askKey(then) {
  afterKey = then;
  byId('key-button').hidden = false;
  byId('key-fault').textContent = key ? 'The key that was used is not accepted.' : '';
  if (!byId('key-dialog').open) byId('key-dialog').showModal();
}

async function useKey(event) {
  event.preventDefault();
  keepKey(byId('key').value.trim());
  try {
    await call('/v1/models');
  } catch (fault) {
    if (fault.status === 401) keepKey('');
    byId('key-fault').textContent = fault.status === 401 ? 'This key is not accepted.' : fault.message;
    return;
  }
  byId('key').value = '';
  byId('key-dialog').close();
  watch();
  byId('prompt').focus();
  afterKey?.();
  afterKey = undefined;
}

/** Looks at the engine each second, while somebody may see it. */
async function watch() {
  clearTimeout(lookTimer);
  if (document.hidden) return;
  if (await look()) {
    clearTimeout(lookTimer);
    lookTimer = setTimeout(watch, 1000);
  } else askKey(afterKey);
}

byId('composer').addEventListener('submit', (event) => { event.preventDefault(); send(); });
byId('prompt').addEventListener('input', fitPrompt);
byId('prompt').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener('keydown', (event) => { if (event.key === 'Escape' && !byId('key-dialog').open) running?.abort(); });
byId('stop').addEventListener('click', () => running?.abort());
byId('clear').addEventListener('click', () => {
  running?.abort();
  if (turns.length) cutAt(turns[0]);
  keepConversation();
  byId('spoken').textContent = 'A new chat.';
  byId('prompt').focus();
});
byId('settings').addEventListener('submit', (event) => event.preventDefault());
byId('settings').addEventListener('input', keepSettings);
byId('settings').addEventListener('reset', () => setTimeout(() => { keepSettings(); readTools(); }));
byId('tools').addEventListener('change', () => { try { readTools(); } catch { /* shown beside the field */ } });
byId('side-button').addEventListener('click', () => {
  const open = document.body.classList.toggle('side-open');
  byId('side-button').setAttribute('aria-expanded', String(open));
  byId('side-button').textContent = open ? 'Chat' : 'Settings';
  window.scrollTo({ top: open ? 0 : document.body.scrollHeight });
});
byId('key-form').addEventListener('submit', useKey);
byId('key-cancel').addEventListener('click', () => byId('key-dialog').close());
byId('key-button').addEventListener('click', () => askKey(afterKey));
document.addEventListener('visibilitychange', watch);

recallSettings();
recallConversation();
watch();
byId('prompt').focus();
