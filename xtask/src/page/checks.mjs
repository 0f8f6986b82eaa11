// What the page must do, one function a promise.

import assert from 'node:assert/strict';

import { accessible, ask, finished, openTab, stream } from './browser.mjs';

const TOOLS = JSON.stringify([{
  type: 'function',
  function: { name: 'weather', description: 'Weather of a city', parameters: { type: 'object', properties: { days: { type: 'integer', minimum: 1, maximum: 7 } }, required: ['days'], additionalProperties: false } },
}]);
const CHAT = '**/v1/chat/completions';
const MARKDOWN = `## A plan\n\nSome **bold**, *quiet* and \`code\`, a [link](https://example.org) and <img src=x onerror=alert(1)>.\n\n1. First\n2. Second\n   - inner\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n\`\`\`rust\nfn main() {\n    println!("a line that is long enough to be wider than the narrow view of a phone, by far");\n}\n\`\`\`\n\n> said so`;

const last = (page) => page.locator('.turn.assistant').last();

async function streams({ tools, origin, picture }) {
  const { page, close, load } = await openTab(tools, origin, { colorScheme: 'light' });
  await load();
  await page.getByText('Ready').waitFor();
  await picture(page, 'empty-light');
  await accessible(page, 'empty');
  await page.getByLabel('Max tokens').fill('200');
  await page.getByLabel('Temperature').fill('0');
  await page.evaluate(() => {
    window.lengths = new Set();
    new MutationObserver(() => window.lengths.add(document.querySelector('.assistant')?.textContent.length))
      .observe(document.getElementById('turns'), { childList: true, subtree: true, characterData: true });
  });
  await ask(page, 'Tell me a story about a small boat.');
  assert.ok(await page.evaluate(() => window.lengths.size) > 3, 'the answer came at once, not in pieces');
  assert.match(await last(page).locator('.note').textContent(), /\d+ tokens · .*first after/);
  assert.match(await page.locator('#spoken').textContent(), /^Answer finished\. ./);
  await ask(page, 'And then?');
  assert.equal(await page.locator('.turn').count(), 4);
  await page.waitForFunction(() => /^\d/.test(document.getElementById('first-value').textContent));
  assert.match(await page.locator('#blocks-text').textContent(), /\d+ used .*\d+ kept for reuse .*\d+ free, of \d+ blocks/);
  await picture(page, 'chat-light');
  await accessible(page, 'chat, light');
  await last(page).getByRole('button', { name: 'Retry this answer' }).click();
  await finished(page);
  assert.equal(await page.locator('.turn').count(), 4);
  // The same prompt again is known.
  await page.waitForFunction(() => parseInt(document.getElementById('prefix-more').textContent, 10) > 0);
  await page.getByRole('button', { name: 'Edit this message' }).first().click();
  assert.equal(await page.locator('.turn').count(), 0);
  assert.equal(await page.getByLabel('Message', { exact: true }).inputValue(), 'Tell me a story about a small boat.');
  await close();
}

async function stops({ tools, origin }) {
  const { page, close, load } = await openTab(tools, origin);
  await load();
  await page.route(CHAT, (route) => {
    const body = { ...route.request().postDataJSON(), ignore_eos: true, max_tokens: 1500 };
    return route.fallback({ postData: JSON.stringify(body) });
  });
  await page.getByLabel('Message', { exact: true }).fill('Go on for long.');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('.assistant')?.textContent.length > 40);
  await page.getByRole('button', { name: 'Stop' }).click();
  await finished(page);
  assert.match(await last(page).locator('.note').textContent(), /^stopped/);
  // The engine's blocks are free again.
  await page.waitForFunction(() => document.getElementById('running-value').textContent === '0');
  await close();
}

async function folds_thinking({ tools, origin, picture }) {
  const { page, close, load } = await openTab(tools, origin, { colorScheme: 'dark' });
  await load();
  await page.route(CHAT, (route) => route.fulfill(stream([{ reasoning_content: 'They ask for a *plan*.' }, { content: MARKDOWN }])));
  await ask(page, 'A plan, please.');
  const thinking = last(page).locator('details');
  assert.equal(await thinking.getAttribute('open'), null);
  await thinking.locator('summary').click();
  assert.ok(await thinking.getByText('They ask for a plan.').isVisible());
  assert.equal(await page.locator('#turns img').count(), 0);
  assert.ok(await last(page).getByText('<img src=x onerror=alert(1)>').isVisible());
  assert.equal(await last(page).locator('pre code').textContent().then((text) => text.split('\n').length), 3);
  assert.equal(await last(page).locator('td').count(), 2);
  await picture(page, 'markdown-dark');
  await accessible(page, 'markdown, dark');
  await close();
}

async function asks_for_thinking({ tools, origin }) {
  const { page, close, load } = await openTab(tools, origin);
  await load();
  await page.getByLabel('Thinking', { exact: true }).selectOption('off');
  await page.getByLabel('Max tokens').fill('8');
  await page.getByLabel('System prompt').fill('You are brief.');
  const sent = page.waitForRequest(CHAT);
  await ask(page, 'Hello');
  const body = (await sent).postDataJSON();
  assert.deepEqual(body.chat_template_kwargs, { enable_thinking: false });
  assert.equal(body.max_tokens, 8);
  assert.deepEqual(body.messages, [{ role: 'system', content: 'You are brief.' }, { role: 'user', content: 'Hello' }]);
  await close();
}

async function shows_calls({ tools, origin, picture }) {
  const { page, close, load } = await openTab(tools, origin, { colorScheme: 'light' });
  await load();
  await page.getByLabel('Functions, as a JSON list').fill('[{');
  await page.getByLabel('Max tokens').fill('100');
  await page.getByLabel('Seed').fill('1');
  await ask(page, 'What is the weather?');
  assert.ok(await last(page).getByText('The tools in the settings cannot be read.').isVisible());
  await page.getByLabel('Functions, as a JSON list').fill(TOOLS);
  await page.getByLabel('Calls', { exact: true }).selectOption('required');
  await last(page).getByRole('button', { name: 'Try again' }).click();
  await finished(page);
  const call = last(page).locator('.call').first();
  assert.match(await call.textContent(), /weather[^]*"days": \d/);
  await picture(page, 'tool-call-light');
  await accessible(page, 'call');
  await page.getByLabel('Calls', { exact: true }).selectOption('none');
  for (const field of await last(page).getByLabel('Result of weather').all()) await field.fill('{"sky": "clear"}');
  const sent = page.waitForRequest(CHAT);
  await last(page).getByRole('button', { name: /Send result/ }).click();
  const messages = (await sent).postDataJSON().messages;
  const tool = messages.findLast((message) => message.role === 'tool');
  assert.equal(tool.tool_call_id, messages.findLast((message) => message.tool_calls).tool_calls.at(-1).id);
  await finished(page);
  assert.ok((await last(page).locator('.text').last().textContent()).length > 0);
  await close();
}

async function asks_for_the_key({ tools, locked, key, picture }) {
  const { page, close, load } = await openTab(tools, locked, { expected: /401/ });
  await load();
  const dialog = page.getByRole('dialog', { name: 'This server asks for a key' });
  await dialog.waitFor();
  await picture(page, 'key');
  await accessible(page, 'key');
  await dialog.getByLabel('Key').fill('wrong');
  await page.keyboard.press('Enter');
  await dialog.getByText('This key is not accepted.').waitFor();
  await dialog.getByLabel('Key').fill(key);
  await page.keyboard.press('Enter');
  await page.getByText('Ready').waitFor();
  await page.reload();
  await page.getByText('Ready').waitFor();
  await page.getByLabel('Max tokens').fill('16');
  await ask(page, 'Hello');
  assert.match(await last(page).locator('.note').textContent(), /tokens/);
  assert.deepEqual(await page.evaluate(() => [localStorage.length, document.cookie]), [0, '']);
  await close();
}

async function tells_faults({ tools, origin, picture }) {
  const { page, close, load } = await openTab(tools, origin, { colorScheme: 'light', expected: /429|503|400|ERR_FAILED/ });
  await load();
  const error = (status, message, headers) => ({ status, headers, contentType: 'application/json', body: JSON.stringify({ error: { message } }) });
  const cases = [
    [(route) => route.fulfill(error(429, 'full', { 'retry-after': '3' })), /busy, and its queue is full.*in 3 s/],
    [(route) => route.fulfill(error(503, 'the model is being loaded')), /takes no requests now: the model is being loaded/],
    [(route) => route.fulfill({ ...stream([{ content: 'Half an' }]), body: 'data: {"choices":[{"index":0,"delta":{"content":"Half an"}}]}\n\n' }), /broke off/],
    [(route) => route.abort(), /does not answer/],
  ];
  await page.getByLabel('Message', { exact: true }).fill('Hello');
  await page.keyboard.press('Enter');
  await finished(page);
  for (const [answer, words] of cases) {
    await page.route(CHAT, answer);
    await (await last(page).locator('.fault-box').isVisible() ? last(page).getByRole('button', { name: 'Try again' }) : last(page).getByRole('button', { name: 'Retry this answer' })).click();
    await finished(page);
    assert.match(await last(page).getByRole('alert').textContent(), words);
    await page.unroute(CHAT);
  }
  await picture(page, 'fault-light');
  await accessible(page, 'fault');
  // A real refusal, in the server's own words.
  await page.getByLabel('Temperature').evaluate((input) => { input.removeAttribute('min'); input.value = '-1'; });
  await last(page).getByRole('button', { name: 'Try again' }).click();
  await finished(page);
  assert.match(await last(page).getByRole('alert').textContent(), /refuses this request: .*temperature/);
  await page.getByLabel('Temperature').fill('');
  await page.getByLabel('Max tokens').fill('8');
  await last(page).getByRole('button', { name: 'Try again' }).click();
  await finished(page);
  assert.equal(await last(page).getByRole('alert').count(), 0);
  await close();
}

async function needs_no_mouse({ tools, origin }) {
  const { page, close, load } = await openTab(tools, origin, { reducedMotion: 'reduce' });
  await load();
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent);
  assert.equal(await focused(), 'prompt');
  await page.getByLabel('Max tokens').fill('16');
  await page.getByLabel('Thinking', { exact: true }).selectOption('off');
  await page.locator('#prompt').focus();
  await page.keyboard.type('Hello');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('there');
  await page.keyboard.press('Tab');
  assert.equal(await focused(), 'send');
  await page.keyboard.press('Space');
  await finished(page);
  assert.equal(await focused(), 'prompt');
  assert.equal(await page.locator('.turn.user .text').textContent(), 'Hello\nthere');
  for (const expected of ['Retry', 'Copy', 'Edit', 'Copy', 'clear']) {
    await page.keyboard.press('Shift+Tab');
    assert.equal(await focused(), expected);
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), 'none');
  }
  await page.keyboard.press('Space');
  assert.equal(await page.locator('.turn').count(), 0);
  await page.evaluate(() => document.activeElement.blur());
  await page.locator('.skip').focus();
  assert.ok(await page.locator('.skip').evaluate((link) => link.getBoundingClientRect().top >= 0 || getComputedStyle(link).top !== '-64px'));
  await page.keyboard.press('Enter');
  assert.equal(await focused(), 'prompt');
  await close();
}

async function fits_a_phone({ tools, origin, picture }) {
  const { page, close, load } = await openTab(tools, origin, { viewport: { width: 360, height: 740 }, colorScheme: 'dark' });
  await load();
  await page.route(CHAT, (route) => route.fulfill(stream([{ reasoning_content: 'Short.' }, { content: MARKDOWN }])));
  await ask(page, 'A plan, please.');
  const overflow = () => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  assert.ok(await overflow() <= 0, 'wider than the screen');
  await picture(page, 'phone-dark');
  await accessible(page, 'phone');
  await page.getByRole('button', { name: 'Settings', exact: true }).click();
  await page.getByLabel('System prompt').waitFor();
  assert.ok(await overflow() <= 0, 'settings wider than the screen');
  await picture(page, 'phone-settings-dark');
  await accessible(page, 'phone, settings');
  await page.getByRole('button', { name: 'Chat', exact: true }).click();
  await page.getByLabel('Message', { exact: true }).waitFor();
  await close();
}

export const checks = {
  'an answer streams, the figures move, retry and edit': streams,
  'stop': stops,
  'thinking is folded, and text stays text': folds_thinking,
  'settings are sent': asks_for_thinking,
  'calls of tools and their results': shows_calls,
  'the key': asks_for_the_key,
  'faults in words': tells_faults,
  'by keyboard': needs_no_mouse,
  'a phone, in the dark': fits_a_phone,
};
