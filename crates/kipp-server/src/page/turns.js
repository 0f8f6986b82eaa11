
// Turns of the conversation, as they are shown and as they are sent. A turn holds its message; `view` holds its nodes.

const turns = [];

/** What goes back to the server of a turn. */
function messageOf({ role, content, thinking, calls, callId }) {
  if (role === 'tool') return { role, content, tool_call_id: callId };
  const message = { role, content };
  if (thinking) message.reasoning_content = thinking;
  if (calls?.length) message.tool_calls = calls;
  return message;
}

function addTurn(turn, handlers) {
  const name = { user: 'You', assistant: 'Model', tool: 'Tool' }[turn.role];
  const view = {
    item: make('li', { class: `turn ${turn.role}` }),
    text: make('div', { class: 'text' }),
    note: make('p', { class: 'note quiet' }),
    fault: make('div', { class: 'fault-box', hidden: true }),
    actions: make('p', { class: 'actions' }),
    calls: make('div', { class: 'calls' }),
  };
  view.item.append(make('h3', { class: 'who' }, name));
  if (turn.role === 'assistant') {
    view.summary = make('summary', {}, 'Thinking');
    view.thought = make('div', { class: 'text' });
    view.thinking = make('details', { class: 'thinking', hidden: true }, view.summary, view.thought);
    view.item.append(view.thinking);
  }
  view.item.append(view.text, view.calls, view.fault, make('div', { class: 'foot' }, view.actions, view.note));
  view.actions.append(copyButton(() => turn.content, `Copy this ${turn.role === 'user' ? 'message' : 'answer'}`));
  if (turn.role === 'user') view.actions.append(button('Edit', () => handlers.edit(turn), { 'aria-label': 'Edit this message' }));
  if (turn.role === 'assistant') view.actions.append(button('Retry', () => handlers.retry(turn), { 'aria-label': 'Retry this answer' }));
  turn.view = view;
  turns.push(turn);
  byId('turns').append(view.item);
  byId('empty').hidden = true;
  showTurn(turn);
  return turn;
}

/** Removes a turn and all after it. */
function cutAt(turn) {
  const from = turns.indexOf(turn);
  if (from < 0) return;
  for (const gone of turns.splice(from)) gone.view.item.remove();
  byId('empty').hidden = turns.length > 0;
}

function showTurn(turn) {
  const { view } = turn;
  if (turn.role !== 'assistant') {
    view.text.textContent = turn.content;
    return;
  }
  showMarkdown(view.text, turn.content);
  view.thinking.hidden = !turn.thinking;
  if (turn.thinking) {
    showMarkdown(view.thought, turn.thinking);
    view.summary.textContent = turn.thoughtMs === undefined ? 'Thinking…' : `Thought for ${seconds(turn.thoughtMs)}`;
  }
  view.item.classList.toggle('running', Boolean(turn.running));
  view.actions.hidden = Boolean(turn.running) || (turn.fault !== undefined && !turn.content);
}

const seconds = (ms) => (ms < 995 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

/** Shows the calls of an answer, each with a field for its result; `answered` gets the turns that the results make. */
function showCalls(turn, answered) {
  const forms = turn.calls.map((call, n) => {
    const field = make('textarea', { rows: '2', id: `result-${call.id}`, required: true });
    const label = make('label', { for: `result-${call.id}` }, `Result of ${call.function.name}`);
    const title = make('p', { class: 'call-title' }, make('span', {}, `Call ${n + 1}`), ' ', make('code', {}, call.function.name));
    return { call, field, card: make('div', { class: 'call' }, title, make('pre', { tabindex: '0' }, make('code', {}, pretty(call.function.arguments))), label, field) };
  });
  const form = make('form', {
    onsubmit: (event) => {
      event.preventDefault();
      form.querySelectorAll('textarea, button').forEach((element) => { element.disabled = true; });
      answered(forms.map(({ call, field }) => ({ role: 'tool', content: field.value, callId: call.id })));
    },
  }, ...forms.map(({ card }) => card), make('button', { type: 'submit' }, forms.length > 1 ? 'Send results' : 'Send result'));
  turn.view.calls.replaceChildren(form);
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/** Shows what went wrong with an answer, and how to try again. */
function showFault(turn, message, retry) {
  turn.view.fault.hidden = false;
  turn.view.fault.replaceChildren(make('p', { role: 'alert' }, message), button('Try again', retry));
}

/** Takes one event of the stream into its turn. */
function grow(turn, event) {
  if (event.timings) Object.assign(turn, { usage: event.usage, timings: event.timings });
  const choice = event.choices[0];
  if (!choice) return;
  turn.finish = choice.finish_reason ?? turn.finish;
  const { reasoning_content: thought, content, tool_calls: calls } = choice.delta;
  if (thought || content || calls) turn.firstMs ??= performance.now() - turn.begun;
  if (thought) turn.thoughtFrom ??= performance.now();
  turn.thinking += thought ?? '';
  if ((content || calls) && turn.thinking) turn.thoughtMs ??= performance.now() - turn.thoughtFrom;
  turn.content += content ?? '';
  for (const piece of calls ?? []) {
    const call = turn.calls[piece.index] ??= { id: '', type: 'function', function: { name: '', arguments: '' } };
    call.id ||= piece.id ?? '';
    call.function.name += piece.function?.name ?? '';
    call.function.arguments += piece.function?.arguments ?? '';
  }
}

/** Figures of an answer that has ended. */
function noteOf({ usage, timings, firstMs, finish }) {
  const parts = [];
  if (finish === 'stopped') parts.push('stopped');
  if (finish === 'length') parts.push('cut at the limit of tokens');
  if (usage) parts.push(`${usage.completion_tokens} tokens`);
  if (timings?.decode_tok_s) parts.push(`${timings.decode_tok_s.toFixed(1)} tokens/s`);
  if (firstMs !== undefined) parts.push(`first after ${seconds(firstMs)}`);
  if (timings?.cached_tokens) parts.push(`${timings.cached_tokens} of ${timings.prompt_tokens} prompt tokens known`);
  return parts.join(' · ');
}
