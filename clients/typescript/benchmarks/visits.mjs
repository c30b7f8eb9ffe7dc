// How many reports of people who visit a page now and then arrive, and when: node benchmarks/visits.mjs [USERS]
//
// Visits are a Poisson process. Each one is a new client over the same state, which records three metrics and ends after some minutes.
// Recordings of 30 days are followed for 30 days more. All timers and the clock are simulated.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mock } from "node:test";
import { Client, FileStorage } from "../dist/node.js";

const [DAY, MINUTE] = [86_400_000, 60_000];
const START = Date.UTC(2026, 10, 23);
const FOLLOWED = 30 * DAY;
const ONE_BIT = { num_bits: 1, num_hashes: 1, num_cohorts: 1, hash_scheme: "one-hot", categories: [], other: null };
const METRICS = ["a", "b", "c"];
const definitions = METRICS.map((name) => ({ name, kind: "boolean", ...ONE_BIT, prob_p: 0.25, prob_q: 0.75, prob_f: 0.5, period: "day", hold: null }));
const EMPTY = await new FileStorage(mkdtempSync(join(tmpdir(), "hubbub-"))).read();

class Memory {
  state = structuredClone(EMPTY);

  async read() {
    return structuredClone(this.state);
  }

  async update(change) {
    const state = structuredClone(this.state);
    const [result, write] = change(state);
    if (write) this.state = state;
    return result;
  }

  async sync() {}
  async isPersistent() {
    return true;
  }
  async persist() {}
  close() {}
}

/** Lets the client do what does not wait for a timer. */
async function settle() {
  for (let turn = 0; turn < 12; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** Visits of one user; returns the delays of the reports in days after their period, Infinity of one that does not arrive, and all times. */
async function visit(perDay, minutes) {
  const [storage, arrivals, recorded] = [new Memory(), new Map(), new Set()];
  const transport = async (body) => {
    const { metric, period, batch_id } = JSON.parse(body);
    arrivals.set(metric + period, Date.now());
    return { status: 202, problem: "", batchId: batch_id, retryAfter: "", date: new Date().toUTCString() };
  };
  const next = (time) => time - (Math.log(1 - Math.random()) * DAY) / perDay;
  mock.timers.enable({ apis: ["Date", "setTimeout"], now: START });
  for (let time = next(START); time < START + 2 * FOLLOWED; time = next(time + minutes * MINUTE)) {
    mock.timers.setTime(time);
    const client = new Client({ definitions, url: "http://127.0.0.1:9", pauseWhenAutomated: false, clock: () => Date.now(), transport, storage });
    await client.setConsent("on");
    for (const name of METRICS) await client.record(name, true);
    if (time < START + FOLLOWED) recorded.add(new Date(time).toISOString().slice(0, 10));
    for (let passed = 0; passed < minutes * MINUTE; ) {
      const step = passed < 1.5 * MINUTE ? 1000 : MINUTE / 2; // what is late leaves within a minute
      passed += step;
      mock.timers.tick(step);
      for (let before = -1; before < arrivals.size; mock.timers.tick(1)) {
        before = arrivals.size;
        await settle();
      }
    }
    await client.close();
  }
  mock.timers.reset();
  const delays = [...recorded].flatMap((period) => METRICS.map((name) => ((arrivals.get(name + period) ?? Infinity) - Date.parse(period)) / DAY - 1));
  return { delays, times: [...arrivals.values()] };
}

const users = Number(process.argv[2] ?? 40);
console.log("| visits | reports that arrive | days after the period: median | 90 % | within a second of another |");
console.log("|---|---|---|---|---|");
for (const [label, perDay, minutes] of [
  ["three a day of 5 minutes", 3, 5],
  ["one a day of 5 minutes", 1, 5],
  ["one a day of an hour", 1, 60],
  ["two a week of 5 minutes", 2 / 7, 5],
  ["one a week of 5 minutes", 1 / 7, 5],
  ["one a month of 5 minutes", 1 / 30, 5],
]) {
  const [delays, gaps] = [[], []];
  for (let user = 0; user < users; user++) {
    const made = await visit(perDay, minutes);
    delays.push(...made.delays);
    made.times.sort((a, b) => a - b).forEach((time, i, times) => i && gaps.push(time - times[i - 1]));
  }
  delays.sort((a, b) => a - b);
  const quantile = (part) => delays[Math.floor(part * delays.length)]?.toFixed(1).replace("Infinity", "never");
  const percent = (part, all) => `${((100 * part) / all).toFixed(1)} %`;
  const arrived = percent(delays.filter(Number.isFinite).length, delays.length);
  console.log(`| ${label} | ${arrived} of ${delays.length} | ${quantile(0.5)} | ${quantile(0.9)} | ${percent(gaps.filter((gap) => gap < 1000).length, gaps.length)} |`);
}
