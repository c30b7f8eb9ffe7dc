// Recordings that pages leave in lines when they end: node --test test
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, FileStorage, IndexedDbStorage } from "../dist/node.js";
import { newDirectory } from "../test-directories.mjs";

const DAY = 86_400_000;
const NOON = Date.UTC(2026, 10, 23, 12);
const NOISE = { prob_p: 0, prob_q: 1, prob_f: 0.5 };
const SIZES = { num_bits: 1, num_hashes: 1, num_cohorts: 1, hash_scheme: "one-hot", categories: [], other: null, period: "day", hold: null };
const BUCKETS = { edges: [0, 10, 100], representatives: [], default: null, estimate: "distribution", several: "sum", unit: "" };
const KINDS = {
  dark: [{ kind: "boolean", ...SIZES }, true, 1],
  theme: [{ kind: "categorical", ...SIZES, num_bits: 3, categories: ["a", "b", "c"] }, "b", null],
  page: [{ kind: "string", ...SIZES, num_bits: 64, num_hashes: 2, num_cohorts: 8, hash_scheme: "murmur3-v1" }, "canary", ""],
  size: [{ kind: "ordinal", ...SIZES, num_bits: 2, buckets: BUCKETS }, 7, "7"],
  weekly: [{ kind: "boolean", ...SIZES, period: "week" }, false, 0],
};
const definitions = Object.entries(KINDS).map(([name, [fields]]) => ({ ...fields, ...NOISE, name }));
const policy = { epsilonReport: 1e3, epsilonEnrollment: 1e3, epsilonMetric: 1e3, epsilonTotal: 1e6 };

/** One origin: the state, localStorage, and a clock. Pages write the state while `works`; `room` limits the lines; `before` runs before a transaction, and `during` in it. */
class Origin {
  now = NOON;
  works = true;
  room = Infinity;
  before = async () => undefined;
  during = () => undefined;
  entries = new Map();
  state;
  sent = [];

  /** name : of the client, if its lines are in `globalThis.localStorage` */
  constructor(name = null) {
    this.name = name;
  }

  async storage() {
    this.state ??= await new FileStorage(newDirectory()).read();
    const update = async (change) => {
      await this.before();
      if (!this.works) throw new Error("the page has ended");
      const state = structuredClone(this.state);
      const [result, write] = change(state);
      this.during();
      if (write) this.state = state;
      return result;
    };
    const page = this.name !== null ? new IndexedDbStorage(this.name).page : {
      names: () => [...this.entries.keys()],
      get: (name) => this.entries.get(name) ?? null,
      set: (name, text) => {
        if (this.entries.size >= this.room) throw new Error("QuotaExceededError");
        this.entries.set(name, text);
      },
      remove: (name) => this.entries.delete(name),
    };
    const nothing = async () => undefined;
    return { page, update, read: async () => structuredClone(this.state), sync: nothing, isPersistent: async () => true, persist: nothing, close: nothing };
  }

  async page(options = {}) {
    const transport = async (body) => {
      const batch = JSON.parse(body);
      this.sent.push(batch);
      return { status: 202, problem: "", batchId: batch.batch_id, retryAfter: "", date: new Date(this.now).toUTCString() };
    };
    const storage = await this.storage();
    const client = new Client({ definitions, policy, url: "http://127.0.0.1:9", pauseWhenAutomated: false, clock: () => this.now, transport, storage, ...options });
    if (options.started !== false) await client.started;
    return client;
  }

  /** A page whose last recordings never reach the state. */
  async left(record) {
    const page = await this.page();
    this.works = false;
    await record(page);
    await page.close();
    this.works = true;
  }

  lines() {
    return [...this.entries].filter(([name]) => name.includes("/"));
  }

  recorded() {
    return this.state.counts.chosen + this.state.counts.superseded;
  }

  async pass(days) {
    const page = await this.page();
    for (let step = 0; step < 4 * days; step++) {
      this.now += DAY / 4;
      await page.flush(5);
    }
    await page.close();
  }
}

/** A localStorage with entries. touched : the names that were read, changed or deleted */
function localStorageWith(entries) {
  const touched = new Set();
  const methods = {
    getItem(name) {
      touched.add(name);
      return Object.hasOwn(this, name) ? this[name] : null;
    },
    setItem(name, text) {
      touched.add(name);
      this[name] = text;
    },
    removeItem(name) {
      touched.add(name);
      delete this[name];
    },
  };
  globalThis.localStorage = Object.assign(Object.create(methods), entries);
  return touched;
}

async function consented(name = null) {
  const origin = new Origin(name);
  const page = await origin.page();
  await page.setConsent("on");
  await page.close();
  return origin;
}

test("a recording of each kind is taken by the next page, in lines of one length", async () => {
  const origin = await consented();
  await origin.left((page) => Promise.all(Object.entries(KINDS).map(([name, [, value]]) => page.record(name, value))));
  const lines = origin.lines();
  assert.equal(lines.length, 5);
  assert.equal(new Set(lines.map(([, line]) => line.length)).size, 1);
  assert.doesNotMatch(JSON.stringify(lines), /canary|page|dark|theme|size/);
  await (await origin.page()).close();
  assert.equal(origin.recorded(), 5);
  assert.deepEqual(origin.lines(), []);
  assert.deepEqual(origin.state.counts.ignored, {});
});

test("the bits of a line are those of the value", async () => {
  for (let trial = 0; trial < 20; trial++) {
    const [left, direct] = [await consented(), await consented()];
    direct.state = structuredClone(left.state); // one secret
    const calls = Object.entries(KINDS).flatMap(([name, [, value]]) => [[name, value], [name, value]]);
    await left.left((page) => Promise.all(calls.map(([name, value]) => page.record(name, value))));
    await (await left.page()).close();
    const page = await direct.page();
    for (const [name, value] of calls) await page.record(name, value);
    await page.close();
    const bits = (origin) => Object.values(origin.state.drafts).map(({ report }) => report.bits);
    const tags = (origin) => Object.values(origin.state.drafts).map(({ report }) => report.tag);
    assert.deepEqual(tags(left), tags(direct));
    assert.deepEqual(bits(left), bits(direct)); // all noise is permanent
  }
});

test("a line that is seen again counts once, also by two pages", async () => {
  const origin = await consented();
  await origin.left((page) => page.record("dark", true));
  const before = [...origin.entries];
  await Promise.all([origin.page(), origin.page()]);
  for (let start = 0; start < 3; start++) {
    origin.entries = new Map(before); // a browser that was killed did not keep the deletion
    await (await origin.page()).close();
  }
  assert.equal(origin.recorded(), 1);
  assert.deepEqual(origin.lines(), []);
});

test("a recording whose line another page has taken counts once", async () => {
  const origin = await consented();
  const page = await origin.page();
  origin.before = async () => {
    origin.before = async () => undefined;
    await Promise.all((await Promise.all([origin.page(), origin.page()])).map((each) => each.close()));
  };
  const outcomes = await Promise.all([true, false, 3].map((value) => page.record("dark", value)));
  await page.close();
  assert.deepEqual(outcomes, ["recorded", "recorded", "invalid"]);
  assert.equal(origin.recorded(), 2);
  assert.deepEqual(origin.state.counts.ignored, { invalid: 1 });
});

test("a recording counts although a script cleared the storage", async () => {
  const origin = await consented();
  const page = await origin.page();
  const outcome = page.record("dark", true);
  origin.entries.clear();
  assert.equal(await outcome, "recorded");
  await page.close();
  assert.equal(origin.recorded(), 1);
});

test("lines are reported under their own period, in each order of pages and days", async () => {
  for (let trial = 0; trial < 30; trial++) {
    const origin = await consented();
    const days = Array.from({ length: 6 }, () => Math.random() < 0.6);
    let page = await origin.page();
    for (const isRecorded of days) {
      origin.works = false; // no line is taken until another page is opened
      if (isRecorded) await page.record("page", "canary");
      origin.works = true;
      if (Math.random() < 0.3) {
        await page.close();
        page = await origin.page();
      }
      origin.now += DAY;
    }
    await page.close();
    await origin.pass(4);
    const first = NOON / DAY - 0.5;
    const bits = new Map(origin.sent.filter(({ metric }) => metric === "page").map((batch) => [Date.parse(batch.period) / DAY - first, batch.bits]));
    const bitsOf = (isRecorded) => new Set(days.flatMap((each, day) => (each === isRecorded ? [bits.get(day)] : [])));
    for (const isRecorded of [true, false]) assert.ok(bitsOf(isRecorded).size <= 1, "each day has the permanent response of its value");
    assert.ok(![...bitsOf(true)].some((each) => bitsOf(false).has(each)));
    assert.ok(!bitsOf(true).has(undefined));
    assert.equal(origin.recorded(), days.filter(Boolean).length);
    assert.equal(new Set(origin.sent.map(({ metric, period }) => metric + period)).size, origin.sent.length);
  }
});

test("a line that comes after the report of its period is ignored, and takes nothing back", async () => {
  const origin = await consented();
  await origin.left((page) => page.record("dark", true));
  const late = [...origin.entries];
  origin.entries.clear();
  origin.now += DAY;
  await (await origin.page()).close();
  const queued = origin.state.queue.map(({ id }) => id);
  assert.ok(queued.length >= 4);
  origin.entries = new Map(late);
  await (await origin.page()).close();
  assert.deepEqual(origin.state.queue.map(({ id }) => id), queued);
  assert.deepEqual([origin.state.counts.ignored, origin.state.counts.dropped], [{ clock: 1 }, {}]);
});

test("a line whose clock was wrong costs nothing, and one up to a day ahead is taken as now", async () => {
  const minute = 60_000;
  const near = [0, 1, minute, DAY / 2, DAY].map((ahead) => [NOON + ahead, true]);
  const ahead = [DAY + 1, 2 * DAY, 40 * DAY, 365 * DAY, 3650 * DAY, 1e13, 9e15, Infinity].map((ahead) => [NOON + ahead, false]);
  const behind = [NOON - 2 * DAY, Date.UTC(2025, 11, 31), 0, -1e13, -9e15, -Infinity, NaN].map((time) => [time, false]);
  for (const [time, isTaken] of [...near, ...ahead, ...behind]) {
    const origin = await consented();
    let page = await origin.page();
    await page.record("dark", true);
    await page.close();
    origin.state.confirmedAt = NOON;
    const { accounts, counts } = structuredClone(origin.state);
    await origin.left((page) => {
      origin.now = time;
      return page.record("dark", true);
    });
    origin.now = NOON;
    page = await origin.page();
    assert.deepEqual(origin.lines(), []);
    assert.deepEqual(origin.state.accounts, accounts, `${time}`);
    assert.equal(origin.state.counts.formed, counts.formed);
    assert.deepEqual(origin.state.counts.dropped, {});
    assert.deepEqual(origin.state.counts.ignored, isTaken ? {} : { clock: 1 });
    assert.equal(await page.record("dark", true), "recorded");
    const [draft] = Object.values(origin.state.drafts);
    assert.deepEqual([draft.period, draft.recordings], ["2026-11-23", isTaken ? 3 : 2]);
    await page.close();
  }
});

test("what the app and other clients keep under similar names is not read, changed or deleted", async () => {
  const page = "0123456789abcdef";
  const names = ["hub", "hubbub", "hubbub2", "hubbub/other", "hubbub/on", `hubbub/${page}`, `hubbub/other/${page}`];
  const ends = ["", "/", "/settings", "/onboarding", "/on/", `/${page}`, `/${page}/`, `/${page}/x`, `/${page}/1/2/`, `/${page}0/1`, `/${page.toUpperCase()}/1`, `/x${page}/1`];
  const markers = names.map((name) => `${name}/on`);
  const ofApp = names.flatMap((name) => ends.map((end) => name + end)).filter((name) => !markers.includes(name));
  const entries = Object.fromEntries(ofApp.map((name) => [name, "of the app"]));
  const touched = localStorageWith(entries);
  const linesOf = (name) => Object.keys(localStorage).filter((each) => each.startsWith(`${name}/`) && /^([0-9a-f]{16}\/\d+|on)$/.test(each.slice(name.length + 1)));
  const origins = await Promise.all(names.map((name) => consented(name)));
  try {
    for (const origin of origins) await origin.left((page) => page.record("dark", true));
    for (const origin of origins) {
      const others = origins.filter((each) => each !== origin).map(({ name }) => [name, linesOf(name)]);
      assert.equal(linesOf(origin.name).length, 2, origin.name);
      await (await origin.page()).close(); // takes
      assert.equal(linesOf(origin.name).length, 1);
      assert.equal(origin.recorded(), 1);
      await origin.left((page) => page.record("dark", true));
      const withdrawn = await origin.page();
      await withdrawn.setConsent("off"); // erases
      await withdrawn.close();
      await (await origin.page()).close(); // finds nothing, consent being off
      assert.deepEqual(linesOf(origin.name), []);
      for (const [name, lines] of others) assert.deepEqual(linesOf(name), lines, `${name} after ${origin.name}`);
    }
    assert.deepEqual({ ...localStorage }, entries);
    assert.deepEqual([...touched].filter((name) => Object.hasOwn(entries, name)), []);
  } finally {
    delete globalThis.localStorage;
  }
});

test("a withdrawal deletes lines before it returns, and those of an older secret are dropped", async () => {
  const origin = await consented();
  await origin.left((page) => page.record("dark", true));
  const old = [...origin.entries];
  const [page, other] = [await origin.page(), await origin.page()];
  origin.entries = new Map(old);
  const withdrawn = page.setConsent("off");
  assert.deepEqual([...origin.entries], []); // at once
  assert.equal(await withdrawn, true);
  assert.deepEqual(origin.state.pages, {});
  other.record("dark", true); // it does not know yet
  await other.close();
  assert.deepEqual([...origin.entries], []);
  const before = origin.recorded();
  await page.setConsent("on");
  for (const [name, line] of [...old, [`${"0".repeat(16)}/1`, "ab".repeat(60)], [`${"0".repeat(16)}/2`, "abc"]]) origin.entries.set(name, line);
  await (await origin.page()).close();
  assert.equal(origin.recorded(), before);
  assert.ok(!("unknown-metric" in origin.state.counts.ignored));
  assert.deepEqual(origin.lines(), []);
});

test("a withdrawal deletes what another page leaves meanwhile", async () => {
  const origin = await consented();
  const [page, other] = [await origin.page(), await origin.page()];
  origin.during = () => {
    origin.during = () => undefined;
    other.record("dark", true);
  };
  assert.equal(await page.setConsent("off"), true);
  assert.deepEqual([...origin.entries], []);
  await other.close();
});

test("a recording that waits while another page withdraws and agrees again is dropped", async () => {
  const origin = await consented();
  const [page, other] = [await origin.page(), await origin.page()];
  origin.works = false;
  const outcome = page.record("dark", true);
  origin.works = true;
  origin.state = { ...origin.state, secret: "ab".repeat(32) };
  assert.equal(await outcome, "consent");
  assert.equal(origin.recorded(), 0);
  await Promise.all([page.close(), other.close()]);
});

test("a withdrawal that cannot be saved deletes lines, too", async () => {
  const origin = await consented();
  await origin.left((page) => page.record("dark", true));
  const page = await origin.page();
  origin.works = false;
  await page.setConsent("off");
  await page.record("dark", true);
  assert.deepEqual([...origin.entries], []);
  await page.close();
});

test("recordings before the start are counted as lost, or taken", async () => {
  const origin = await consented();
  for (const ends of [true, false]) {
    const page = await origin.page({ started: false });
    origin.works = !ends;
    const outcomes = [page.record("dark", true), page.record("page", "canary")];
    assert.doesNotMatch(JSON.stringify([...origin.entries]), /canary/);
    assert.deepEqual(await Promise.all(outcomes), ends ? ["no-state", "no-state"] : ["recorded", "recorded"]);
    await page.close();
    origin.works = true;
    for (let start = 0; start < 2; start++) await (await origin.page()).close();
    assert.deepEqual(origin.state.counts.ignored, { "not-started": 2 });
  }
  assert.equal(origin.recorded(), 2);
  assert.deepEqual(origin.lines(), []);
});

test("nothing is stored before consent", async () => {
  const origin = new Origin();
  const page = await origin.page({ started: false });
  assert.equal(await page.record("dark", true), "consent");
  await page.started;
  assert.equal(await page.record("dark", true), "consent");
  await page.close();
  assert.equal(origin.entries.size, 0);
});

test("without room recordings are written as before", async () => {
  const origin = await consented();
  origin.room = 0;
  const page = await origin.page();
  assert.equal(await page.record("dark", true), "recorded");
  await page.close();
  assert.equal(origin.recorded(), 1);
});

test("a page leaves at most 250 lines", async () => {
  const origin = await consented();
  await origin.left((page) => Promise.all(Array.from({ length: 1000 }, () => page.record("dark", true))));
  assert.equal(origin.lines().length, 250);
  await (await origin.page()).close();
  assert.equal(origin.recorded(), 250);
});

test("a line of a definition that the next page does not have is counted", async () => {
  const origin = await consented();
  await origin.left((page) => page.record("page", "canary"));
  await (await origin.page({ definitions: definitions.filter(({ name }) => name !== "page") })).close();
  assert.deepEqual(origin.state.counts.ignored, { "unknown-metric": 1 });
});
