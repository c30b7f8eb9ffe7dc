/** Answers of this client to `hubbub conformance` (docs/how-to/other-languages.md, "Conformance"). */

import { fromHex, type RandomBytes, toHex } from "../src/bytes.ts";
import { batchBody } from "../src/batch.ts";
import { Client } from "../src/client.ts";
import { Encoder } from "../src/encoder.ts";
import type { Value } from "../src/kinds.ts";
import { type Definition, Metric } from "../src/metric.ts";
import { periodNumber } from "../src/periods.ts";
import { Sealer } from "../src/sealer.ts";
import { Secret } from "../src/secret.ts";
import type { ConsentLevel, Storage } from "../src/state.ts";

type Answer = object;
type Call = (request: never) => Answer | Promise<Answer>;

/** Generator that returns given bytes. */
function scripted(bytes: Uint8Array): RandomBytes {
  let start = 0;
  return (length) => bytes.subarray(start, (start += length));
}

function camelCase(name: string): string {
  return name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

const systemRandom: RandomBytes = (length) => crypto.getRandomValues(new Uint8Array(length));

/** Metrics by the text of their definitions: an audit asks for millions of reports of one. */
const metrics = new Map<string, Metric>();

function metricOf(definition: Definition): Metric {
  const text = JSON.stringify(definition);
  const metric = metrics.get(text) ?? new Metric(definition);
  metrics.set(text, metric);
  return metric;
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
  groups?: Record<string, string>;
  policy?: Record<string, number>;
}

const ENCODING: Readonly<Record<string, Call>> = {
  digest: ({ definition }: { definition: Definition }) => ({ digest: new Metric(definition).digest }),

  encode: ({ definition, secret, value, period, random }: Encode) => {
    const metric = metricOf(definition);
    const source: RandomBytes = random == null ? systemRandom : scripted(fromHex(random));
    const encoder = new Encoder(metric, new Secret(fromHex(secret)), source);
    const epoch = metric.hold === null ? null : Math.floor(periodNumber(metric.period, period) / metric.hold);
    const report = encoder.encode(encoder.trueBits(value), epoch);
    return { cohort: report.cohort, bits: toHex(report.bits) };
  },

  seal: ({ definition, secret, value }: Encode) => {
    const [metric, key] = [metricOf(definition), new Secret(fromHex(secret))];
    const trueBits = new Encoder(metric, key, systemRandom).trueBits(value);
    return { sealed: new Sealer(key, fromHex(metric.digest), systemRandom).seal(metric.kind.key(trueBits)) };
  },

  batch: ({ definition, batch_id, period, group, reports }: Batch) => {
    const rows = reports.map(({ cohort, bits }) => ({ cohort, bits: fromHex(bits) }));
    return { body: batchBody(new Metric(definition), batch_id, period, group, rows) };
  },
};

/** A client whose clock the kit sets. storage : of a client in a directory */
export class Session {
  #client: Client | undefined;
  #now = 0;
  readonly #storage: (directory: string) => Storage;

  constructor(storage: (directory: string) => Storage) {
    this.#storage = storage;
  }

  async answer({ call, ...request }: { call: string }): Promise<Answer> {
    const calls = { ...ENCODING, ...this.#calls };
    if (!Object.hasOwn(calls, call)) return { unknown: true };
    try {
      return await calls[call]!(request as never);
    } catch {
      return { refused: true };
    }
  }

  readonly #calls: Readonly<Record<string, Call>> = {
    start: async ({ definitions, directory, url, now, groups = {}, policy = {} }: Start) => {
      this.#now = Date.parse(now);
      const limits = Object.fromEntries(Object.entries(policy).map(([name, limit]) => [camelCase(name), limit]));
      const machine = { pauseWhenAutomated: false, requirePersistence: false, clock: () => this.#now };
      this.#client = new Client({ definitions, url, groups, policy: limits, storage: this.#storage(directory), ...machine });
      await this.#client.started;
      return {};
    },

    consent: async ({ level }: { level: ConsentLevel }) => ({ saved: await this.#client!.setConsent(level) }),
    record: async ({ metric, value }: { metric: string; value: Value }) => ({ outcome: await this.#client!.record(metric, value) }),
    inspect: () => this.#client!.inspect(),

    advance: ({ now }: { now: string }) => {
      this.#now = Date.parse(now);
      return {};
    },

    flush: async () => ({ delivered: await this.#client!.flush(30) }),

    stop: async () => {
      await this.#client?.close();
      this.#client = undefined;
      return {};
    },
  };
}
