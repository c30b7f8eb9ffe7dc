// The client in histories that go wrong: node --test test
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { mock, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { build } from "esbuild";
import { Client, FileStorage } from "../dist/node.js";
import { newDirectory } from "../test-directories.mjs";

const DAY = 86_400_000;
const NOON = Date.UTC(2026, 10, 23, 12);
const NOISE = { prob_p: 0.25, prob_q: 0.75, prob_f: 0.5 };
const SIZES = { num_bits: 1, num_hashes: 1, num_cohorts: 1, hash_scheme: "one-hot", categories: [], other: null, period: "day", hold: null };
const DARK = { name: "dark", kind: "boolean", ...SIZES, ...NOISE };
const THEME = { ...DARK, name: "theme", kind: "categorical", num_bits: 3, categories: ["a", "b", "c"] };
const WORDS = { ...DARK, name: "words", kind: "string", num_bits: 64, num_hashes: 2, num_cohorts: 128, hash_scheme: "murmur3-v1", discover: { longest: 8 } };

/** A state in memory that fails, waits or does not last, as a test asks. */
class Memory {
  state;
  fails = false;
  wait = 0;
  persistent = true;
  onSync = () => undefined;

  async read() {
    return structuredClone(this.state ?? (await this.update((state) => [state, false])));
  }

  async update(change) {
    if (this.wait) await sleep(this.wait);
    if (this.fails) throw new Error("ENOSPC");
    const directory = newDirectory();
    const state = structuredClone(this.state) ?? (await new FileStorage(directory).read());
    const [result, write] = change(state);
    if (write) this.state = state;
    return result;
  }

  async sync() {
    await this.onSync();
  }

  async isPersistent() {
    return this.persistent;
  }

  async persist() {}

  close() {}
}

async function started(options = {}) {
  const world = { now: NOON, sent: [], answer: () => ({}) };
  const storage = options.storage ?? new Memory();
  const transport = async (body) => {
    const batch = JSON.parse(body);
    world.sent.push(batch);
    return { status: 202, problem: "", batchId: batch.batch_id, retryAfter: "", date: new Date(world.now).toUTCString(), ...world.answer() };
  };
  const client = new Client({ definitions: [DARK, THEME], url: "http://127.0.0.1:9", pauseWhenAutomated: false, clock: () => world.now, transport, ...options, storage });
  await client.started;
  return Object.assign(world, { client, storage });
}

/** Sends all that is due until some days later. */
async function pass(world, days) {
  for (let step = 0; step < 4 * days; step++) {
    world.now += DAY / 4;
    await world.client.flush(5);
  }
}

test("a withdrawal that cannot be saved holds at once, and is saved later", async () => {
  const world = await started();
  await world.client.setConsent("on");
  await world.client.record("dark", true);
  world.storage.fails = true;
  assert.equal(await world.client.setConsent("off"), false);
  assert.equal(await world.client.record("dark", true), "consent");
  world.storage.fails = false;
  await pass(world, 3);
  assert.deepEqual(world.sent, []);
  assert.equal((await world.client.inspect()).consent, "off");
  await world.client.close();
});

test("a withdrawal does not wait for an app that records all the time", async () => {
  const world = await started();
  await world.client.setConsent("on");
  world.storage.wait = 20;
  const recording = setInterval(() => world.client.record("dark", true), 5);
  await sleep(100);
  const withdrawn = await Promise.race([world.client.setConsent("off"), sleep(2000, "late")]);
  clearInterval(recording);
  assert.equal(withdrawn, true);
  await world.client.close();
});

test("nothing is sent after a withdrawal that comes while a batch is made durable", async () => {
  const world = await started();
  await world.client.setConsent("on");
  await world.client.record("dark", true);
  world.now += 3 * DAY;
  let withdrawn = false;
  world.storage.onSync = async () => {
    world.storage.onSync = () => undefined;
    withdrawn = await world.client.setConsent("off");
  };
  await world.client.flush(1);
  assert.ok(withdrawn);
  assert.deepEqual(world.sent, []);
  await world.client.close();
});

test("a value that cannot be read is invalid, and costs the caller nothing", async () => {
  const world = await started();
  await world.client.setConsent("on");
  const cyclic = {};
  cyclic.self = cyclic;
  const throwing = { get theme() { throw new Error("betrayed"); } };
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  for (const value of [cyclic, throwing, proxy, new Map(), new Date(), () => 1, Symbol("s"), 1n]) {
    assert.equal(await world.client.record("theme", value), "invalid");
  }
  await world.client.close();
});

test("no unit is spent beyond the reservation after a clock that was set back", async () => {
  const world = await started({ policy: { epsilonMetric: 2.3 } });
  world.now += DAY;
  await world.client.setConsent("on");
  await world.client.record("theme", "a");
  world.now -= DAY; // over midnight
  await world.client.record("dark", true);
  world.now += DAY;
  await pass(world, 4);
  for (const account of (await world.client.inspect()).ledger) assert.ok(account.units <= account.reservedUnits, JSON.stringify(account));
  await world.client.close();
});

test("periods without persistent storage are not reported as empty", async () => {
  const storage = Object.assign(new Memory(), { persistent: false });
  const world = await started({ storage });
  await world.client.setConsent("on");
  await pass(world, 10);
  assert.equal(await world.client.record("dark", true), "not-persistent");
  storage.persistent = true;
  await pass(world, 2);
  assert.ok(world.sent.length > 0);
  for (const { period } of world.sent) assert.ok(Date.parse(period) >= NOON + 9 * DAY, period);
  await world.client.close();
});

test("a clock that was ahead loses no day that it did not send, and sends none twice, whatever was answered", async () => {
  const world = await started();
  await world.client.setConsent("on");
  world.now += 10 * DAY;
  world.answer = () => ({ status: 422, problem: "period-not-started", date: new Date(NOON).toUTCString() });
  await world.client.flush(5);
  assert.ok(world.sent.length > 0);
  world.answer = () => ({});
  world.now -= 10 * DAY;
  await pass(world, 1);
  await world.client.flush(5);
  assert.equal(await world.client.record("dark", true), "recorded");
  await pass(world, 14);
  const batches = new Map(world.sent.map(({ batch_id, metric, period }) => [batch_id, metric + period]));
  const periods = [...batches.values()];
  assert.equal(new Set(periods).size, periods.length);
  assert.ok(periods.length >= 2 * 13, `${periods.length} reports`);
  await world.client.close();
});

test("a visit of two minutes sends what became due since the last one", async () => {
  const storage = new Memory();
  for (const days of [0, 2, 9, 27]) {
    mock.timers.enable({ apis: ["Date", "setTimeout"], now: NOON + days * DAY });
    const visit = await started({ storage, clock: () => Date.now() });
    visit.now = Date.now();
    await visit.client.setConsent("on");
    assert.equal(await visit.client.record("dark", true), "recorded");
    for (let tick = 0; tick < 60; tick++) {
      mock.timers.tick(2000);
      for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
    }
    await visit.client.close();
    mock.timers.reset();
    const dayBefore = new Date(NOON + (days - 2) * DAY).toISOString().slice(0, 10);
    const due = storage.state.queue.filter(({ period }) => period <= dayBefore);
    assert.deepEqual(due, [], `${days} days after the first visit`);
    assert.equal(visit.sent.length > 0, days > 0);
  }
});

test("after an outage a flush sends no burst", async () => {
  const world = await started();
  await world.client.setConsent("on");
  world.now += 3 * DAY;
  world.answer = () => ({ status: 503 });
  await world.client.flush(5);
  world.answer = () => ({});
  world.now += 2 * 3_600_000;
  world.sent.length = 0;
  await world.client.flush(5);
  assert.equal(world.sent.length, 1);
  await world.client.close();
});

test("reports of a month are due before they are too old", async () => {
  const definitions = Array.from({ length: 60 }, (_, number) => ({ ...DARK, name: `m${number}`, period: "month" }));
  const world = await started({ definitions, policy: { epsilonEnrollment: 1e6, epsilonMetric: 1e6, epsilonTotal: 1e6 } });
  await world.client.setConsent("on");
  world.now = Date.UTC(2026, 11, 1);
  await world.client.flush(5);
  const waits = world.storage.state.queue.map(({ sendAt, periodEnd }) => sendAt - periodEnd);
  assert.equal(waits.length, 60);
  assert.ok(Math.max(...waits) <= 28 * DAY);
  await world.client.close();
});

test("an answer with a hostile type costs nothing", async () => {
  let world;
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(400, { "Content-Type": "application/problem+json", Date: new Date(world.now).toUTCString() }).end(JSON.stringify({ type: `/problems/${"/".repeat(60_000)}x`, status: 400 }));
  }).listen(0, "127.0.0.1");
  server.unref();
  await new Promise((resolve) => server.on("listening", resolve));
  world = await started({ transport: undefined, url: `http://127.0.0.1:${server.address().port}` });
  await world.client.setConsent("on");
  const before = process.cpuUsage();
  await pass(world, 3);
  const { user } = process.cpuUsage(before);
  assert.ok(user < 2_000_000, `${user} us`);
  const { counts } = await world.client.inspect();
  assert.equal(counts.quarantined, 0);
  assert.ok(counts.failedUploads.unrecognized > 0);
  await world.client.close();
});

const { answers } = JSON.parse(readFileSync(new URL("../../../client/hubbub/conformance/vectors.json", import.meta.url), "utf8"));

test("each answer of the conformance kit has its action", async () => {
  const compiled = async (name) => {
    const { outputFiles } = await build({ entryPoints: [`src/${name}.ts`], bundle: true, format: "esm", write: false });
    return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].text).toString("base64")}`);
  };
  const [{ readAnswer }, { decide }] = await Promise.all(["transport", "retry_policy"].map(compiled));
  const id = "7f4df1a6-4f0c-4a33-9d7e-6b3f9f6c1c55";
  let own = 0;
  for (const { body, media_type: mediaType, text, actions } of answers.bodies) {
    const bytes = Buffer.from(text.replaceAll("BATCH_ID", id), "latin1");
    for (const status of answers.statuses) {
      let decoded = "";
      try {
        decoded = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      } catch {
        // as the transport does: no answer
      }
      const action = decide({ status, ...readAnswer(status, mediaType ?? "", decoded) }, id);
      assert.equal(action ?? "retry", actions[status] ?? "retry", `${status} with ${body}`);
      own += action !== undefined;
    }
  }
  assert.ok(own > 29 && own < 50, `${own} answers are an aggregator's own`);
});

/** Server whose answers to uploads a test sets: [status, media type, text, headers]. */
async function serving(answer) {
  const world = { now: NOON };
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part)).on("end", () => {
      const [status, mediaType, text, headers = {}] = answer(JSON.parse(body));
      response.writeHead(status, { "Content-Type": mediaType, Date: new Date(world.now).toUTCString(), ...headers }).end(text);
    });
  }).listen(0, "127.0.0.1");
  server.unref();
  await new Promise((resolve) => server.on("listening", resolve));
  return { world, url: `http://127.0.0.1:${server.address().port}` };
}

for (const [name, answer] of Object.entries({
  "a page": [413, "text/html", "<h1>nginx</h1>"],
  "a portal": [200, "text/html", "<h1>welcome</h1>"],
  "a problem of 70 kB": [400, "application/problem+json", JSON.stringify({ type: "/problems/malformed", status: 400, detail: "d".repeat(70_000) })],
  "half an answer": [400, "application/problem+json", JSON.stringify({ type: "/problems/malformed", status: 400 }), { "Content-Length": 999 }],
  "bytes that are not UTF-8": [400, "application/problem+json", Buffer.from('{"type":"/problems/malformed","status":400,"detail":"\xff"}', "latin1")],
})) {
  test(`${name} ends nothing: the report arrives once the proxy is right`, async () => {
    let isRight = false;
    const taken = [];
    const { world, url } = await serving((batch) => {
      if (!isRight) return answer;
      taken.push(batch.batch_id);
      return [202, "application/json", JSON.stringify({ batch_id: batch.batch_id, status: "stored" })];
    });
    const { client } = await started({ transport: undefined, url, clock: () => world.now, definitions: [DARK] });
    world.client = client;
    await client.setConsent("on");
    await client.record("dark", true);
    await pass(world, 3);
    let { counts, queued, lastError } = await client.inspect();
    assert.deepEqual([counts.quarantined, counts.acknowledged, counts.dropped], [0, 0, {}]);
    assert.equal(queued.length, counts.formed);
    assert.ok((counts.failedUploads.unrecognized ?? 0) + (counts.failedUploads["no-response"] ?? 0) >= 3);
    assert.match(lastError, /unrecognized answer|no answer/);
    isRight = true;
    const formed = counts.formed;
    await pass(world, 3);
    ({ counts } = await client.inspect());
    assert.ok(counts.acknowledged >= formed, JSON.stringify(counts));
    assert.equal(new Set(taken).size, taken.length);
    await client.close();
  });
}

test("a batch that always fails does not hold up the others", async () => {
  const world = await started();
  await world.client.setConsent("on");
  world.answer = () => (world.sent.at(-1).metric === "dark" ? { status: 403, batchId: "" } : {});
  await pass(world, 16); // each report leaves within a day, or two after a failure
  const { counts, queued } = await world.client.inspect();
  assert.ok(counts.acknowledged >= 8, JSON.stringify(counts));
  assert.ok(queued.some((body) => JSON.parse(body).metric === "dark"));
  await world.client.close();
});

test("a refusal settles a batch that may have been delivered, and the clock of a portal confirms nothing", async () => {
  const world = await started({ definitions: [DARK] });
  await world.client.setConsent("on");
  world.answer = () => ({ status: 504, batchId: "", date: "Sat, 01 Jan 2000 00:00:00 GMT" });
  await pass(world, 2);
  assert.equal(world.storage.state.confirmedAt, 0);
  assert.ok(world.storage.state.queue.some((batch) => batch.attempted));
  world.answer = () => ({ status: 422, batchId: "", problem: "wrong-size" });
  await pass(world, 2);
  const { counts, queued } = await world.client.inspect();
  assert.ok(counts.quarantined >= 2, JSON.stringify(counts));
  assert.equal(counts.quarantined + queued.length, counts.formed);
  await world.client.close();
});

test("a string of 8 MB is recorded", async () => {
  const world = await started({ definitions: [WORDS] });
  await world.client.setConsent("on");
  assert.equal(await world.client.record("words", "x".repeat(8_000_000)), "recorded");
  await world.client.close();
});

test("a withdrawal deletes files that a kill left", async () => {
  const directory = newDirectory();
  const world = await started({ storage: new FileStorage(directory) });
  await world.client.setConsent("on");
  writeFileSync(join(directory, "journal-0123456789abcdef.jsonl"), '{"state":{"secret":"aa"}}\n');
  await world.client.setConsent("off");
  assert.deepEqual(readdirSync(directory), ["journal.jsonl"]);
  assert.ok(!/"secret":"[0-9a-f]/.test(readFileSync(join(directory, "journal.jsonl"), "utf8")));
  await world.client.close();
});

for (const [damage, change] of Object.entries({
  "a file that goes on and is missing": (text) => `${text}${JSON.stringify({ by: "00", at: text.length, next: "journal-0123456789abcdef.jsonl" })}\n`,
  "a line without its end": (text) => text.slice(0, -1),
  "half a line": (text) => `${text}${text.slice(0, 100)}`,
  "other bytes": (text) => `${text}\u0000\n\n{}\n[]\n`,
})) {
  test(`the ledger survives ${damage}`, async () => {
    const directory = newDirectory();
    const path = join(directory, "journal.jsonl");
    let world = await started({ storage: new FileStorage(directory) });
    await world.client.setConsent("on");
    await world.client.record("dark", true);
    await world.client.close();
    writeFileSync(path, change(readFileSync(path, "latin1")), "latin1");
    world = await started({ storage: new FileStorage(directory) });
    assert.equal(await world.client.record("dark", true), "recorded");
    const { counts } = await world.client.inspect();
    assert.equal(counts.chosen + counts.superseded, 2);
    await world.client.close();
  });
}

test("a state of a newer format is left alone, and inspect says why", async () => {
  const directory = newDirectory();
  writeFileSync(join(directory, "journal.jsonl"), `${JSON.stringify({ by: "00", at: 0, state: { format: 2 } })}\n`);
  const world = await started({ storage: new FileStorage(directory) });
  assert.equal(await world.client.record("dark", true), "no-state");
  assert.match((await world.client.inspect()).paused, /format 2/);
  await world.client.close();
});
