
// What a person sets, and what a request takes from it.

const SETTINGS = 'kipp-settings';
const NUMBERS = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed'];
const FIELDS = ['system', 'thinking', 'tools', 'tool_choice', ...NUMBERS];

function keepSettings() {
  const values = Object.fromEntries(FIELDS.map((id) => [id, byId(id).value]));
  sessionStorage.setItem(SETTINGS, JSON.stringify(values));
}

function recallSettings() {
  const values = JSON.parse(sessionStorage.getItem(SETTINGS) ?? '{}');
  for (const id of FIELDS) if (values[id] !== undefined) byId(id).value = values[id];
}

/** The tools, or undefined for none; a fault is shown beside the field, and thrown. */
function readTools() {
  const field = byId('tools');
  const fault = byId('tools-fault');
  const refuse = (message) => {
    fault.textContent = message;
    fault.hidden = !message;
    field.toggleAttribute('aria-invalid', Boolean(message));
  };
  refuse('');
  if (!field.value.trim()) return undefined;
  let tools;
  try {
    tools = JSON.parse(field.value);
  } catch (error) {
    refuse(`This is no JSON: ${error.message}`);
  }
  if (tools && !Array.isArray(tools)) refuse('Tools are a list, in square brackets.');
  if (!fault.hidden) throw new Fault('The tools in the settings cannot be read.');
  return tools.length ? tools : undefined;
}

/** The fields of a request that the settings give. */
function requestFields() {
  const fields = {};
  for (const id of NUMBERS) {
    const input = byId(id);
    if (!input.checkValidity()) throw new Fault(`${input.labels[0].textContent}: ${input.validationMessage}`);
    if (input.value !== '') fields[id] = Number(input.value);
  }
  const tools = readTools();
  if (tools) Object.assign(fields, { tools, tool_choice: byId('tool_choice').value });
  const thinking = byId('thinking').value;
  if (thinking) fields.chat_template_kwargs = { enable_thinking: thinking === 'on' };
  return fields;
}

function systemMessages() {
  const content = byId('system').value.trim();
  return content ? [{ role: 'system', content }] : [];
}
