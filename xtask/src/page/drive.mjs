// Drives the page in headless Chromium: node drive.mjs KIPP TOOLS PICTURES. Prints a line for each check that held; the first
// that does not ends it.

import path from 'node:path';

import { openBrowser } from './browser.mjs';
import { checks } from './checks.mjs';
import { serve } from './server.mjs';

const KEY = 'sk-page';
const [kipp, tools, pictures] = process.argv.slice(2);

const open = await serve(kipp);
const locked = await serve(kipp, '--api-key', KEY);
const tools_ = await openBrowser(tools);
try {
  for (const [name, check] of Object.entries(checks)) {
    const started = performance.now();
    const picture = (page, file) => page.screenshot({ path: path.join(pictures, `${file}.png`) });
    try {
      await check({ tools: tools_, origin: open.origin, locked: locked.origin, key: KEY, picture });
    } catch (error) {
      throw new Error(`${name}: ${error.message}`, { cause: error });
    }
    console.log(`${name}: ${((performance.now() - started) / 1000).toFixed(1)} s`);
  }
} finally {
  await tools_.browser.close();
  await Promise.all([open.end(), locked.end()]);
}
