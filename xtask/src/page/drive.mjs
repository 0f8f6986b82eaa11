// Drives the page in headless Chromium: node drive.mjs KIPP PICTURES [PART OF A CHECK'S NAME]. Prints a line for
// each check that held; the first that does not ends it, with a picture.

import path from 'node:path';

import { openBrowser } from './browser.mjs';
import { checks } from './checks.mjs';
import { serve } from './server.mjs';

const KEY = 'sk-page';
const [kipp, pictures, only = ''] = process.argv.slice(2);

const open = await serve(kipp);
const locked = await serve(kipp, '--api-key', KEY);
const browser = await openBrowser();
try {
  for (const [name, check] of Object.entries(checks).filter(([name]) => name.includes(only))) {
    const started = performance.now();
    const picture = (page, file) => page.screenshot({ path: path.join(pictures, `${file}.png`) });
    try {
      await check({ tools: browser, origin: open.origin, locked: locked.origin, key: KEY, picture });
    } catch (error) {
      const [tab] = browser.chromium.contexts().at(-1)?.pages() ?? [];
      if (tab) await picture(tab, 'failed');
      throw new Error(`${name}: ${error.message}`, { cause: error });
    }
    console.log(`${name}: ${((performance.now() - started) / 1000).toFixed(1)} s`);
  }
} finally {
  await browser.chromium.close();
  await Promise.all([open.end(), locked.end()]);
}
