// Runs a script's checks, a line each, and ends with 1 if any failed.

export async function run(checks) {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    const started = performance.now();
    try {
      await check();
      console.log(`ok ${name} (${((performance.now() - started) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}\n${error.stack}`);
    }
  }
  process.exit(failed ? 1 : 0);
}
