
// Elements: made here, found here. Text is always a text node.

const byId = (id) => document.getElementById(id);

/** An element with properties or attributes and children, which are elements or text. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key in element && typeof value !== 'string') element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const button = (text, onclick, attributes = {}) => make('button', { type: 'button', onclick, ...attributes }, text);

/** A button that copies, and says for a moment that it did. */
function copyButton(text, label) {
  const it = button('Copy', async () => {
    try {
      await navigator.clipboard.writeText(text());
      it.textContent = 'Copied';
    } catch {
      it.textContent = 'Not allowed';
    }
    setTimeout(() => { it.textContent = 'Copy'; }, 1500);
  }, { 'aria-label': label });
  return it;
}
