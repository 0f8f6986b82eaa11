// A tab that watches over what every check demands: nothing but our server is asked, and the console stays silent.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { chromium } from 'playwright-core';

const PATIENCE_MS = 30_000;

export async function openBrowser() {
  // Containers run as root, where Chromium's own sandbox does not start.
  const running = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  const axe = readFileSync(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8');
  return { chromium: running, axe };
}

/** A fresh tab on the page. `expected` names console errors that a check provokes itself. */
export async function openTab({ chromium, axe }, origin, { expected, viewport, ...options } = {}) {
  const context = await chromium.newContext({ viewport: viewport ?? { width: 1280, height: 860 }, ...options });
  await context.addInitScript(axe);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const faults = [];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type()) && !expected?.test(message.text())) faults.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => faults.push(`script: ${error.message}`));
  await context.route('**/*', (route) => {
    const url = route.request().url();
    if (url.startsWith(`${origin}/`) || url.startsWith('data:')) return route.fallback();
    faults.push(`asks ${url}`);
    return route.abort();
  });
  const close = async () => {
    await context.close();
    assert.deepEqual(faults, []);
  };
  return { page, context, close, load: () => page.goto(`${origin}/`) };
}

/** No rule of WCAG 2.2 A and AA, or of good practice, is broken in what is shown now. */
export async function accessible(page, where) {
  const { violations } = await page.evaluate(() => window.axe.run());
  const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html.slice(0, 120)} ${node.failureSummary}`).join('; ')}`);
  assert.deepEqual(told, [], where);
}

/** Sends a message and waits for the end of its answer. */
export async function ask(page, text) {
  await page.getByLabel('Message', { exact: true }).fill(text);
  await page.getByRole('button', { name: 'Send', exact: true }).click();
  await finished(page);
}

export async function finished(page) {
  await page.locator('.turn.assistant').last().waitFor();
  await page.waitForFunction(() => !document.querySelector('.running'));
}

/** A stubbed stream: what kipp-tiny is too small to say on demand. */
export function stream(deltas, finish = 'stop') {
  const event = (choice) => `data: ${JSON.stringify({ choices: [{ index: 0, finish_reason: null, ...choice }] })}\n\n`;
  const body = deltas.map((delta) => event({ delta })).join('') + event({ delta: {}, finish_reason: finish });
  return { status: 200, contentType: 'text/event-stream', body: `${body}data: [DONE]\n\n` };
}
