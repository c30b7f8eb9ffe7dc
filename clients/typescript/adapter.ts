/** Adapter of this client for `hubbub conformance --command "node dist/adapter.js"` (docs/how-to/other-languages.md, "Conformance"). */

import { createInterface } from "node:readline";
import { fromHex, type RandomBytes, toHex } from "./src/bytes.ts";
import { batchBody } from "./src/batch.ts";
import { Encoder } from "./src/encoder.ts";
import type { Value } from "./src/kinds.ts";
import { type Definition, Metric } from "./src/metric.ts";
import { periodNumber } from "./src/periods.ts";
import { Secret } from "./src/secret.ts";

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
