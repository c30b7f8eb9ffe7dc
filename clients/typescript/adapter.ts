/** Adapter of this client for `hubbub conformance --command "node dist/adapter.js"` (docs/how-to/other-languages.md, "Conformance"). */

import { createInterface } from "node:readline";
import { fromHex, type RandomBytes, toHex } from "./src/bytes.ts";
import { batchBody } from "./src/batch.ts";
import { Client } from "./src/client.ts";
import { Encoder } from "./src/encoder.ts";
import { FileStorage } from "./src/journal.ts";
import type { Value } from "./src/kinds.ts";
import { type Definition, Metric } from "./src/metric.ts";
import { periodNumber } from "./src/periods.ts";
import { Secret } from "./src/secret.ts";
import type { ConsentLevel } from "./src/state.ts";

type Answer = Record<string, unknown>;

/** Generator that returns given bytes. */
function scripted(bytes: Uint8Array): RandomBytes {
  let start = 0;
  return (length) => bytes.subarray(start, (start += length));
}

interface Encode {
  definition: Definition;
  secret: string;
  value: Value;
  period: string;
  random: string | null;
}

interface Batch {
  definition: Definition;
  batch_id: string;
  period: string;
  group: string;
  reports: { cohort: number; bits: string }[];
}

interface Start {
  definitions: Definition[];
  directory: string;
  url: string;
  now: string;
}

let client: Client | undefined;
let now = 0;

const CALLS: Record<string, (request: never) => Answer | Promise<Answer>> = {
  digest: ({ definition }: { definition: Definition }) => ({ digest: new Metric(definition).digest }),

  encode: ({ definition, secret, value, period, random }: Encode) => {
    const metric = new Metric(definition);
    const source: RandomBytes = random == null ? (length) => crypto.getRandomValues(new Uint8Array(length)) : scripted(fromHex(random));
    const encoder = new Encoder(metric, new Secret(fromHex(secret)), source);
    const epoch = metric.hold === null ? null : Math.floor(periodNumber(metric.period, period) / metric.hold);
    const report = encoder.encode(encoder.trueBits(value), epoch);
    return { cohort: report.cohort, bits: toHex(report.bits) };
  },

  batch: ({ definition, batch_id, period, group, reports }: Batch) => {
    const rows = reports.map(({ cohort, bits }) => ({ cohort, bits: fromHex(bits) }));
    return { body: batchBody(new Metric(definition), batch_id, period, group, rows) };
  },

  start: (start: Start) => {
    now = Date.parse(start.now);
    client = new Client({ ...start, storage: new FileStorage(start.directory), clock: () => now, pauseWhenAutomated: false });
    return {};
  },

  consent: async ({ level }: { level: ConsentLevel }) => ({ saved: await client!.setConsent(level) }),
  record: async ({ metric, value }: { metric: string; value: Value }) => ({ outcome: await client!.record(metric, value) }),

  advance: (to: { now: string }) => {
    now = Date.parse(to.now);
    return {};
  },

  flush: async () => ({ delivered: await client!.flush(30) }),

  stop: async () => {
    await client?.close();
    client = undefined;
    return {};
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { call, ...request } = JSON.parse(line) as { call: string };
  let answer: Answer = { unknown: true };
  try {
    if (Object.hasOwn(CALLS, call)) answer = await CALLS[call]!(request as never);
  } catch {
    answer = { refused: true };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
