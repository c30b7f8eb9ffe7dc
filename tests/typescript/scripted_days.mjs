// Runs a client at the given times on one machine, and prints what it inspects at the end: node scripted_days.mjs BUNDLE OPTIONS
// OPTIONS is JSON: directory, definitions, url, groups, days: [[time, [[metric, value], ...]], ...]
import process from "node:process";

const [bundle, options] = process.argv.slice(2);
const { Client, FileStorage } = await import(bundle);
const { directory, days, ...given } = JSON.parse(options);
let now = Date.parse(days[0][0]);
const storage = new FileStorage(directory, "one machine");
const client = new Client({ ...given, storage, pauseWhenAutomated: false, requirePersistence: false, clock: () => now });
for (const [time, recordings] of days) {
  now = Date.parse(time);
  if (recordings.length) await client.setConsent("on");
  for (const [metric, value] of recordings) await client.record(metric, value);
  await client.flush(5);
}
process.stdout.write(JSON.stringify(await client.inspect()));
await client.close();
