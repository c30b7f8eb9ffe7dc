// What the client does to its host in Node: connections, copies and leftovers: node --test test
import assert from "node:assert/strict";
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { Client, FileStorage } from "../dist/node.js";
import { newDirectory } from "../test-directories.mjs";

const DAY = 86_400_000;
const NOON = Date.UTC(2026, 10, 23, 12);
const DARK = { name: "dark", kind: "boolean", num_bits: 1, num_hashes: 1, num_cohorts: 1, hash_scheme: "one-hot", categories: [], other: null, period: "day", hold: null, prob_p: 0.25, prob_q: 0.75, prob_f: 0.5 };

async function started(storage, options = {}) {
  const client = new Client({ definitions: [DARK], url: "http://127.0.0.1:9", pauseWhenAutomated: false, clock: () => NOON, storage, ...options });
  await client.started;
  return client;
}

test("each report has a connection of its own", async () => {
  let [now, connections] = [NOON, 0];
  const bodies = [];
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (part) => (text += part)).on("end", () => {
      bodies.push(text);
      response.writeHead(202, { "Content-Type": "application/json", Date: new Date(now).toUTCString() });
      response.end(JSON.stringify({ batch_id: JSON.parse(text).batch_id, status: "stored" }));
    });
  });
  server.on("connection", () => connections++).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.on("listening", resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  const client = await started(new FileStorage(newDirectory()), { url, clock: () => now });
  await client.setConsent("on");
  for (let day = 0; day < 8; day++) {
    now += DAY;
    await client.flush(5);
  }
  await client.close();
  server.close();
  assert.ok(bodies.length >= 6);
  assert.equal(connections, bodies.length);
});

test("a copy of the state on another machine is noticed, until it has a secret of its own", async () => {
  const [original, copy] = [newDirectory(), newDirectory()];
  const first = await started(new FileStorage(original, "machine 1"));
  await first.setConsent("on");
  await first.flush(1);
  await first.record("dark", true);
  await first.close();
  cpSync(original, copy, { recursive: true });
  for (const [place, machineId, isCopied] of [[original, "machine 1", false], [copy, "machine 2", true], [copy, "machine 1", false], [copy, "", false]]) {
    const client = await started(new FileStorage(place, machineId));
    assert.equal((await client.inspect()).isCopied, isCopied, `${place === copy} ${machineId}`);
    await client.close();
  }
  assert.doesNotMatch(readFileSync(join(copy, "journal.jsonl"), "utf8"), /machine [12]/);
  const second = await started(new FileStorage(copy, "machine 2"));
  await second.setConsent("off");
  assert.equal((await second.inspect()).isCopied, false);
  await second.setConsent("on");
  await second.flush(1);
  await second.record("dark", true);
  assert.equal((await second.inspect()).isCopied, false);
  await second.close();
});

test("files that a kill left are deleted at the next start, also one that goes on", async () => {
  const place = newDirectory();
  const journal = join(place, "journal.jsonl");
  let client = await started(new FileStorage(place));
  await client.setConsent("on");
  await client.record("dark", true);
  await client.close();
  const text = readFileSync(journal, "utf8");
  const last = text.trimEnd().split("\n").at(-1);
  const next = "journal-0123456789abcdef.jsonl";
  writeFileSync(join(place, next), `${JSON.stringify({ ...JSON.parse(last), at: 0 })}\n`);
  writeFileSync(journal, `${text}${JSON.stringify({ by: "00", at: text.length, next })}\n`);
  for (const name of ["1111111111111111", "2222222222222222"]) writeFileSync(join(place, `journal-${name}.jsonl`), last);
  writeFileSync(join(place, "journal-of-the-app.jsonl"), "");
  client = await started(new FileStorage(place));
  assert.deepEqual(readdirSync(place).sort(), ["journal-of-the-app.jsonl", "journal.jsonl"]);
  assert.equal((await client.inspect()).counts.chosen, 1);
  await client.close();
});
