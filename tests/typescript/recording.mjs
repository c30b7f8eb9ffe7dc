// Records values one after the other, and prints a line for each that is acknowledged: node recording.mjs BUNDLE DIRECTORY DEFINITIONS URL NUMBER
import process from "node:process";

const [bundle, directory, definitions, url, number] = process.argv.slice(2);
const { Client, FileStorage } = await import(bundle);
const client = new Client({ definitions: JSON.parse(definitions), url, storage: new FileStorage(directory), pauseWhenAutomated: false });
await client.setConsent("on");
for (let recording = 0; recording < Number(number); recording++) {
  const outcome = await client.record(recording % 2 ? "page" : "dark", recording % 2 ? `v${recording % 7}` : true);
  process.stdout.write(`${outcome}\n`);
}
await client.close();
