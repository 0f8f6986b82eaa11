
// The engine as it is now: its metrics, asked for each second while the page is seen.

const SAMPLES = 60;
const SVG = 'http://www.w3.org/2000/svg';
let past;

function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** A figure with its line of the last minute. */
function gauge(id, title) {
  const line = svg('polyline', { points: '' });
  const value = make('span', { id: `${id}-value`, class: 'value' }, '–');
  const more = make('span', { id: `${id}-more`, class: 'quiet' });
  const spark = svg('svg', { viewBox: '0 0 120 28', preserveAspectRatio: 'none', 'aria-hidden': 'true', class: 'spark' }, line);
  byId('gauges').append(make('div', { class: 'gauge' }, make('dt', {}, title), make('dd', {}, value, ' ', more, spark)));
  const samples = [];
  return (sample, text, extra = '') => {
    samples.push(sample);
    if (samples.length > SAMPLES) samples.shift();
    const top = Math.max(...samples) || 1;
    const x = (n) => 120 - ((samples.length - 1 - n) * 120) / (SAMPLES - 1);
    line.setAttribute('points', samples.map((it, n) => `${x(n).toFixed(1)},${(26 - (24 * it) / top).toFixed(1)}`).join(' '));
    value.textContent = text;
    more.textContent = extra;
  };
}

const gauges = {
  speed: gauge('speed', 'Tokens a second'),
  running: gauge('running', 'Requests running'),
  first: gauge('first', 'Time to first token'),
  prefix: gauge('prefix', 'Prefix reuse'),
};

/** Prometheus' text as a map from name, with labels, to number. */
function readMetrics(text) {
  const lines = text.split('\n').filter((line) => line && !line.startsWith('#'));
  return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]));
}

function showBlocks({ total, used, cached, free }) {
  const part = (name, count) => {
    const element = make('span', { class: name });
    element.style.flexGrow = String(count);
    return element;
  };
  byId('blocks').replaceChildren(part('used', used), part('cached', cached), part('free', free));
  byId('blocks-text').replaceChildren(
    make('span', { class: 'key used' }), `${used} used `, make('span', { class: 'key cached' }), `${cached} kept for reuse `,
    make('span', { class: 'key free' }), `${free} free, of ${total} blocks`,
  );
}

function showEngine(metrics, loads) {
  const now = performance.now();
  const get = (name) => metrics.get(name) ?? 0;
  const name = 'kipp_time_to_first_token_seconds';
  const next = {
    now, tokens: get('kipp_generation_tokens_total'), sum: get(`${name}_sum`), count: get(`${name}_count`),
    prompt: get('kipp_prompt_tokens_total'), reused: get('kipp_prefix_tokens_reused_total'),
    hits: get('kipp_prefix_hits_total'), queries: get('kipp_prefix_queries_total'), first: past?.first,
  };
  const before = past ?? { ...next, now: now - 1000 };
  const rate = Math.max(0, ((next.tokens - before.tokens) * 1000) / (now - before.now));
  if (next.count > before.count) next.first = (next.sum - before.sum) / (next.count - before.count);
  next.first ??= next.count ? next.sum / next.count : undefined;
  gauges.speed(rate, rate ? rate.toFixed(rate < 10 ? 1 : 0) : '0', `${next.tokens.toLocaleString('en')} so far`);
  gauges.running(loads.running, String(loads.running), `${loads.waiting} waiting`);
  gauges.first(next.first ?? 0, next.first === undefined ? '–' : seconds(next.first * 1000), `over ${next.count} answers`);
  const share = next.prompt ? next.reused / next.prompt : 0;
  gauges.prefix(share, `${Math.round(share * 100)} %`, `${next.hits} hits of ${next.queries}`);
  showBlocks(loads.kv_blocks);
  past = next;
}

function showState(text, kind) {
  const state = byId('state');
  if (state.textContent !== text) state.textContent = text;
  state.className = `state ${kind}`;
  byId('engine-note').textContent = kind === 'good' ? '' : `${text}.${past ? ' The figures are the last ones known.' : ''}`;
  byId('engine-note').hidden = kind === 'good';
}

/** One look at the engine; a server without our key is not asked again until there is one. */
async function look() {
  try {
    const [metrics, loads] = await Promise.all([
      call('/metrics').then((response) => response.text()), call('/v1/loads').then((response) => response.json()),
    ]);
    showEngine(readMetrics(metrics), loads);
    showState(loads.draining ? 'About to end' : 'Ready', loads.draining ? 'bad' : 'good');
    byId('key-button').hidden = true;
    if (!byId('model').textContent) {
      const models = await call('/v1/models').then((response) => response.json());
      byId('model').textContent = models.data[0].id;
    }
    return true;
  } catch (fault) {
    if (fault.status === 401) {
      showState('Key needed', 'bad');
      return false;
    }
    showState(fault.status === 503 ? 'Not ready' : 'Not reachable', 'bad');
    return true;
  }
}
