// A `kipp serve` on kipp-tiny and a free port, ended by its own process.

import { spawn } from 'node:child_process';

export async function serve(kipp, ...flags) {
  const child = spawn(kipp, ['serve', '--port', '0', ...flags], { stdio: ['ignore', 'ignore', 'pipe'] });
  // However we end, no server is left behind.
  process.on('exit', () => child.kill());
  let said = '';
  const origin = await new Promise((resolve, reject) => {
    const patience = setTimeout(() => reject(new Error(`the server does not listen:\n${said}`)), 60_000);
    child.stderr.on('data', (piece) => {
      said += piece;
      const found = said.match(/listening on (http:\/\/[\w.:]+)/);
      if (found) { clearTimeout(patience); resolve(found[1]); }
    });
    child.on('exit', (code) => reject(new Error(`the server ended with ${code}:\n${said}`)));
  });
  return {
    origin,
    async end() {
      const over = new Promise((resolve) => { child.on('exit', resolve); });
      child.kill('SIGTERM');
      await over;
    },
  };
}
