
// Markdown to nodes. What is no known mark stays as it was written; nothing is ever parsed as HTML.

/** The blocks of a text: each has its kind and its lines. */
function blocksOf(text) {
  const blocks = [];
  const lines = text.split('\n');
  const last = () => blocks[blocks.length - 1];
  const grow = (kind, line) => {
    if (last()?.kind === kind && !last().closed) last().lines.push(line);
    else blocks.push({ kind, lines: [line] });
  };
  for (let n = 0; n < lines.length; n += 1) {
    const line = lines[n];
    const fence = line.match(/^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/);
    if (fence) {
      const code = [];
      const end = fence[1];
      for (n += 1; n < lines.length && !lines[n].trim().startsWith(end); n += 1) code.push(lines[n]);
      blocks.push({ kind: 'code', lines: code, language: fence[2] });
    } else if (!line.trim()) {
      if (last()) last().closed = last().kind !== 'list';
    } else if (/^#{1,6}\s/.test(line)) blocks.push({ kind: 'heading', lines: [line], closed: true });
    else if (/^ {0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) blocks.push({ kind: 'rule', lines: [line], closed: true });
    else if (/^ {0,3}>/.test(line)) grow('quote', line.replace(/^ {0,3}> ?/, ''));
    else if (/^\s*([-*+]|\d{1,9}[.)])\s/.test(line) || (last()?.kind === 'list' && /^\s{2,}/.test(line))) grow('list', line);
    else if (/^\s*\|.*\|\s*$/.test(line)) grow('table', line);
    else grow('text', line);
  }
  return blocks;
}

const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|\*([^\s*][^*]*?)\*|~~(.+?)~~|\[([^\]\n]+)\]\(([^)\s]+)\)/s;

/** Nodes of a text with marks inside of lines. */
function inline(text) {
  const nodes = [];
  let rest = text;
  for (let found = INLINE.exec(rest); found; found = INLINE.exec(rest)) {
    nodes.push(rest.slice(0, found.index));
    const [all, , code, bold, italic, struck, label, address] = found;
    if (code !== undefined) nodes.push(make('code', {}, code));
    else if (bold !== undefined) nodes.push(make('strong', {}, ...inline(bold)));
    else if (italic !== undefined) nodes.push(make('em', {}, ...inline(italic)));
    else if (struck !== undefined) nodes.push(make('s', {}, ...inline(struck)));
    // Other schemes could run something.
    else if (/^https?:/i.test(address)) nodes.push(make('a', { href: address, rel: 'noopener noreferrer', target: '_blank' }, label));
    else nodes.push(all);
    rest = rest.slice(found.index + all.length);
  }
  return [...nodes, rest].filter((node) => node !== '');
}

/** A list, with lists inside by indentation. */
function list(lines) {
  const mark = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
  const first = lines[0].match(mark);
  const ordered = /\d/.test(first[2]);
  const root = make(ordered ? 'ol' : 'ul', ordered ? { start: String(parseInt(first[2], 10)) } : {});
  let n = 0;
  while (n < lines.length) {
    const own = lines[n].match(mark);
    const item = make('li', {}, ...inline(own ? own[3] : lines[n].trim()));
    const inner = [];
    const depth = own ? own[1].length : 0;
    for (n += 1; n < lines.length && /^\s*/.exec(lines[n])[0].length > depth; n += 1) inner.push(lines[n]);
    if (inner.length) item.append(...(mark.test(inner[0]) ? [list(inner)] : [' ', ...inline(inner.map((line) => line.trim()).join(' '))]));
    root.append(item);
  }
  return root;
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, '').split('|').map((cell) => cell.trim());
  if (!lines[1] || !/^[\s|:-]+$/.test(lines[1])) return make('p', {}, ...inline(lines.join('\n')));
  const row = (line, name) => make('tr', {}, ...cells(line).map((cell) => make(name, {}, ...inline(cell))));
  const body = make('tbody', {}, ...lines.slice(2).map((line) => row(line, 'td')));
  return make('div', { class: 'wide', tabindex: '0' }, make('table', {}, make('thead', {}, row(lines[0], 'th')), body));
}

function nodeOf({ kind, lines, language }) {
  const text = lines.join('\n');
  switch (kind) {
    case 'code': {
      const head = make('div', { class: 'code-head' }, make('span', {}, language || 'text'), copyButton(() => text, 'Copy code'));
      return make('div', { class: 'code' }, head, make('pre', { tabindex: '0' }, make('code', {}, text)));
    }
    // The page's own headings end at the third level, and a level that a model leaves out must not be missing in ours.
    case 'heading': return make('h4', { class: text.search(/[^#]/) < 3 ? 'large' : 'small' }, ...inline(text.replace(/^#+\s+|\s+#+\s*$/g, '')));
    case 'rule': return make('hr');
    case 'quote': return make('blockquote', {}, ...blocksOf(text).map(nodeOf));
    case 'list': return list(lines);
    case 'table': return table(lines);
    default: return make('p', {}, ...inline(text));
  }
}

/** Shows a text that grows: blocks that have not changed keep their nodes, and a selection in them stays. */
function showMarkdown(element, text) {
  const blocks = blocksOf(text.trim());
  const known = element.shownBlocks ?? [];
  const keys = blocks.map((block) => JSON.stringify([block.kind, block.lines, block.language]));
  let same = 0;
  while (same < keys.length && keys[same] === known[same]) same += 1;
  while (element.childNodes.length > same) element.lastChild.remove();
  element.append(...blocks.slice(same).map(nodeOf));
  element.shownBlocks = keys;
}
