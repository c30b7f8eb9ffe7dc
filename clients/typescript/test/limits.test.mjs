// A promise of the platform that never settles holds up no call of the client: node --test test
import assert from "node:assert/strict";
import fs from "node:fs/promises";
import { readFileSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, FileStorage, IndexedDbStorage } from "../dist/node.js";
import { newDirectory } from "../test-directories.mjs";

const DARK = { name: "dark", kind: "boolean", num_bits: 1, num_hashes: 1, num_cohorts: 1, hash_scheme: "one-hot", categories: [], other: null, period: "day", hold: null, prob_p: 0.25, prob_q: 0.75, prob_f: 0.5 };
const NEVER = new Promise(() => undefined);
const NOON = Date.UTC(2026, 10, 23, 12);
const DAY = 86_400_000;

/** Ten seconds are ten milliseconds. */
const timer = (done, milliseconds) => {
  const waiting = setTimeout(done, milliseconds / 1000);
  return () => clearTimeout(waiting);
};

/** An IndexedDB of one state; the steps of `mute` never end. */
class Database {
  mute = new Set();
  state;

  request(step, result, after = () => undefined) {
    const request = {};
    const succeed = () => {
      request.result = result();
      request.onsuccess?.();
      after();
    };
    if (!this.mute.has(step)) setTimeout(succeed);
    return request;
  }

  open() {
    return this.request("open", () => this);
  }

  transaction(_, mode) {
    const transaction = {
      abort: () => {
        transaction.oncomplete = undefined;
        setTimeout(() => transaction.onabort?.());
      },
    };
    const step = mode ? "update" : "read";
    transaction.objectStore = () => ({
      get: () => {
        const complete = () => this.mute.has("complete") || transaction.oncomplete?.();
        return this.request(step, () => structuredClone(this.state), complete);
      },
      put: (state) => (this.state = structuredClone(state)),
    });
    return transaction;
  }

  close() {}
}

const database = new Database();
const response = () => new Response("{}", { status: 503 });
const network = { fetch: async () => response() };
const storage = { persisted: async () => true, persist: async () => true };
Object.defineProperty(globalThis, "indexedDB", { value: database });
Object.defineProperty(globalThis, "navigator", { value: { storage }, configurable: true });
globalThis.fetch = (...given) => network.fetch(...given);

/** Makes a function of an object never answer; returns what mends it. */
function mute(object, name, answer = () => NEVER) {
  const given = object[name];
  object[name] = answer;
  syncBuiltinESMExports();
  return () => {
    object[name] = given;
    syncBuiltinESMExports();
  };
}

function muteStep(step) {
  database.mute.add(step);
  return () => database.mute.delete(step);
}

/** Makes a file that is opened never end one of its steps. */
function muteHandle(name) {
  const { open } = fs;
  return mute(fs, "open", async (...given) => Object.assign(await open(...given), { [name]: () => NEVER }));
}

const BODY = () => ({ status: 202, headers: new Headers(), body: { getReader: () => ({ read: () => NEVER, cancel: () => NEVER }) } });
const BROWSER = {
  "indexedDB.open": () => muteStep("open"),
  "get of a reading": () => muteStep("read"),
  "get of a change": () => muteStep("update"),
  "the end of a transaction": () => muteStep("complete"),
  "navigator.storage.persisted": () => mute(storage, "persisted"),
  "navigator.storage.persist": () => mute(storage, "persist"),
  fetch: () => mute(network, "fetch"),
  "the body of an answer": () => mute(network, "fetch", async () => BODY()),
};
const NODE = {
  open: () => mute(fs, "open"),
  readdir: () => mute(fs, "readdir"),
  unlink: () => mute(fs, "unlink"),
  writeFile: () => mute(fs, "writeFile"),
  "sync of a file": () => muteHandle("sync"),
  "datasync of a file": () => muteHandle("datasync"),
  "close of a file": () => muteHandle("close"),
};
const CASES = [
  ...Object.entries(BROWSER).map(([name, hang]) => [name, hang, () => new IndexedDbStorage()]),
  ...Object.entries(NODE).map(([name, hang]) => [
    `${name} in Node`,
    hang,
    () => {
      const directory = newDirectory();
      writeFileSync(join(directory, "journal-0123456789abcdef.jsonl"), "{}\n"); // to be deleted
      return new FileStorage(directory);
    },
  ]),
];

test("every promise of files is tried", () => {
  const imported = /import \{([^}]*)\} from "node:fs\/promises"/.exec(readFileSync(new URL("../src/journal.ts", import.meta.url), "utf8"))[1];
  for (const name of imported.split(",").map((each) => each.trim())) assert.ok(name in NODE, name);
});

for (const [name, hang, storageOf] of CASES) {
  for (const isFirst of [true, false]) {
    test(`${name} never answers, ${isFirst ? "from the start" : "later"}`, async () => {
      database.state = undefined;
      let now = NOON;
      let mend = isFirst ? hang() : () => undefined;
      const client = new Client({ definitions: [DARK], url: "http://127.0.0.1:9", pauseWhenAutomated: false, clock: () => now, storage: storageOf(), timer });
      const answered = async (what, promise) => {
        const answer = await Promise.race([promise, sleep(5000, "never")]);
        assert.notEqual(answer, "never", what);
        return answer;
      };
      try {
        if (!isFirst) {
          await client.started;
          await client.setConsent("on");
          await client.record("dark", true);
          mend = hang();
        }
        await answered("started", client.started);
        await answered("on", client.setConsent("on"));
        assert.match(await answered("record", client.record("dark", true)), /^(recorded|no-state|consent)$/);
        now += 2 * DAY;
        await answered("flush", client.flush(1));
        const { paused } = await answered("inspect", client.inspect());
        if (/reading|persisted$/.test(name) || (/open$/.test(name) && isFirst)) assert.match(paused, /did not answer within 10 seconds/);
        await answered("off", client.setConsent("off"));
        assert.equal(await client.record("dark", true), "consent");
        await answered("close", client.close());
      } finally {
        mend();
      }
    });
  }
}

test("a change that comes after its limit is void, and the next one opens the database anew", async () => {
  database.state = undefined;
  let opening;
  const given = database.open.bind(database);
  database.open = () => (opening = { result: database });
  const client = new Client({ definitions: [DARK], url: "http://127.0.0.1:9", pauseWhenAutomated: false, clock: () => NOON, storage: new IndexedDbStorage(), timer });
  assert.equal(await client.setConsent("on"), false);
  opening.onsuccess();
  await sleep(20);
  assert.equal(database.state, undefined);
  database.open = given;
  assert.equal(await client.setConsent("on"), true);
  assert.equal(database.state.consent, "on");
  await client.close();
});
