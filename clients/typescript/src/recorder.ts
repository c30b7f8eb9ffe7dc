/**
 * Recordings to drafts, drafts to batches: one report for each metric and finished period, recorded or not.
 *
 * The n-th recording of a period replaces its draft with probability 1/n, so that each is reported with the same probability. A draft is
 * final: its bits are randomized twice before they are stored. The functions change a state; they use no clock, network or disk.
 */

import { batchBody } from "./batch.ts";
import { fromHex, type RandomBytes, toBigInt, toHex } from "./bytes.ts";
import { CLOCK_TOLERANCE, EARLIEST_DAY, LATEST_DAY } from "./clock_rules.ts";
import { Encoder } from "./encoder.ts";
import { InvalidValueError } from "./errors.ts";
import { afterRun, labelOf } from "./groups.ts";
import { combined, type TrueBits, type Value } from "./kinds.ts";
import type { Metric } from "./metric.ts";
import { DAY, isoDay, nextPeriod, periodNumber, periodOf, startOf } from "./periods.ts";
import { type Account, allocate, hasRoom, newAccount, type Policy } from "./privacy.ts";
import { Sealer } from "./sealer.ts";
import { Secret } from "./secret.ts";
import { type ConsentLevel, count, type EncodedReport, type QueuedBatch, type State } from "./state.ts";

/** A batch is sent until this long after the end of its period: two days less than the aggregator accepts it. */
export const MAX_BATCH_AGE = 28 * DAY;
/** Batches of a month leave within this time after it: up to its end, an app that runs once a week would lose an eighth of them. */
const LONGEST_SPREAD = MAX_BATCH_AGE / 2;
/** Periods with a report that an account remembers: a clock would have to be set back three times to reopen one. */
const REMEMBERED_PERIODS = 100;
const MAX_QUEUED = 500;
/** A batch whose time has passed is sent within this time: visits are short, and the reports of one person shall not all leave together. */
export const LATE_WITHIN = 60_000;

/** What became of a recording: "recorded", or the reason why it was ignored. */
export type Outcome = "recorded" | "consent" | "unknown-metric" | "expired" | "policy" | "invalid" | "clock" | "not-persistent" | "not-started" | "no-state";

/** A value as a metric takes it. number : of kinds that combine the recordings of a period, else null */
interface Reading {
  readonly value: TrueBits;
  readonly number: number | null;
}

/** A value that was read when it was recorded. time : milliseconds since 1970 */
export interface Recording {
  readonly metric: Metric;
  readonly time: number;
  readonly reading: Reading;
}

/** Counts a recording as ignored, and returns the reason. */
export function ignored(state: State, reason: Outcome): Outcome {
  count(state.counts.ignored, reason);
  return reason;
}

/** What is read, or null if the metric does not accept the value. */
function valid(read: () => Reading): Reading | null {
  try {
    return read();
  } catch (problem) {
    if (problem instanceof InvalidValueError) return null;
    throw problem;
  }
}

/** Uniform number in [0, 1). */
export function uniform(random: RandomBytes): number {
  return Number(toBigInt(random(7)) >> 3n) / 2 ** 53;
}

/** Uniform whole number in [0, n), exact by rejection. */
function uniformBelow(n: number, random: RandomBytes): number {
  const bits = 32 - Math.clz32(n - 1);
  for (;;) {
    const drawn = Number(toBigInt(random(4))) % 2 ** bits;
    if (drawn < n) return drawn;
  }
}

export function randomUuid(random: RandomBytes): string {
  const bytes = random(16).slice();
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return toHex(bytes).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** Encoder of one metric under one secret, as an account allows. */
class MetricEncoder {
  readonly sealer: Sealer;
  readonly #encoder: Encoder;

  constructor(readonly metric: Metric, secret: Secret, random: RandomBytes) {
    this.#encoder = new Encoder(metric, secret, random);
    this.sealer = new Sealer(secret, fromHex(metric.digest), random);
  }

  trueBits(value: Value): TrueBits {
    return this.#encoder.trueBits(value);
  }

  /** Raises InvalidValueError, whose message never has the value. */
  read(value: Value): Reading {
    const { kind } = this.metric;
    return { value: this.trueBits(value), number: kind.several === "one" ? null : kind.number(value) };
  }

  /** Report of a period with a value; null if the account has no unit left for it. */
  encodePeriod(account: Account, value: TrueBits, period: string): EncodedReport | null {
    const { hold, period: kind } = this.metric;
    const epoch = hold === null ? null : Math.floor(periodNumber(kind, period) / hold);
    if (epoch !== null && account.sealed && account.epoch === epoch) return this.#repeatLast(account, epoch, false);
    const key = this.metric.kind.key(value);
    const tag = this.sealer.tag(key);
    const costsUnit = account.unit !== "value" || !account.tags.includes(tag);
    if (costsUnit && !hasRoom(account)) return account.unit === "value" && account.sealed ? this.#repeatLast(account, null, true) : null;
    return this.#encoded(account, value, epoch, { tag, sealed: this.sealer.seal(key), costsUnit, stoodIn: false });
  }

  #repeatLast(account: Account, epoch: number | null, stoodIn: boolean): EncodedReport {
    const value = this.metric.kind.fromKey(this.sealer.open(account.sealed));
    return this.#encoded(account, value, epoch, { tag: account.tag, sealed: account.sealed, costsUnit: false, stoodIn });
  }

  #encoded(
    account: Account,
    value: TrueBits,
    epoch: number | null,
    cost: Pick<EncodedReport, "tag" | "sealed" | "costsUnit" | "stoodIn">,
  ): EncodedReport {
    const response = epoch === null ? null : responseNumber(account, epoch);
    const { cohort, bits } = this.#encoder.encode(value, response);
    return { cohort, bits: toHex(bits), epoch, response, ...cost };
  }
}

/** Number from which the permanent response of an epoch is derived: no two units have one number, also after a clock was set back. */
function responseNumber(account: Account, epoch: number): number {
  if (epoch === account.epoch) return account.response ?? epoch;
  const isNew = account.newestEpoch === null || epoch > account.newestEpoch;
  return isNew ? epoch : -1 - account.units * 2 ** 32 - (epoch + 2 ** 31);
}

/** A draft's report at the cost that it has now: other periods may have been charged since. Null: there is no room for it. */
function stillAffordable(account: Account, report: EncodedReport): EncodedReport | null {
  if (report.epoch !== null && report.epoch === account.epoch) {
    return report.response === account.response && report.tag === account.tag ? { ...report, costsUnit: false } : null;
  }
  const isKnown = account.unit === "value" && account.tags.includes(report.tag);
  if (isKnown || !report.costsUnit) return { ...report, costsUnit: report.costsUnit && !isKnown };
  return hasRoom(account) ? report : null;
}

function charge(account: Account, report: EncodedReport): void {
  account.units += Number(report.costsUnit);
  account.reports += 1;
  if (account.unit === "value" && report.costsUnit) account.tags.push(report.tag);
  account.tag = report.tag;
  account.sealed = report.sealed;
  account.epoch = report.epoch;
  if (report.epoch !== null) account.newestEpoch = Math.max(report.epoch, account.newestEpoch ?? report.epoch);
  account.response = report.response;
}

/** Whether a metric that is charged per value has storage that lasts. */
function isCollected(account: Account, isPersistent: boolean): boolean {
  return account.unit !== "value" || isPersistent;
}

export class Recorder {
  readonly #metrics: ReadonlyMap<string, Metric>;
  #encoders = new Map<string, MetricEncoder>();
  #encodersOf = "";
  readonly #policy: Policy;
  readonly #labels: Readonly<Record<string, string>>;
  readonly #random: RandomBytes;

  constructor(metrics: readonly Metric[], policy: Policy, labels: Readonly<Record<string, string>>, random: RandomBytes) {
    this.#policy = policy;
    this.#labels = labels;
    this.#random = random;
    this.#metrics = new Map(metrics.map((metric) => [metric.name, metric]));
  }

  /** Takes one recording, or counts why it is ignored. isPersistent : whether the storage lasts */
  record(state: State, name: string, value: Value, now: number, isPersistent: boolean): Outcome {
    this.buildDue(state, now, isPersistent);
    const metric = this.#metrics.get(name);
    return this.#take(state, metric, now, isPersistent, (encoder) => encoder.read(value));
  }

  /** Reads a value for `recordLeft`, or says why it is ignored. */
  read(secret: string, name: string, value: Value, time: number): Recording | Outcome {
    const metric = this.#metrics.get(name);
    if (!metric) return "unknown-metric";
    const reading = valid(() => this.#encoder(secret, metric).read(value));
    return reading ? { metric, time, reading } : "invalid";
  }

  /**
   * Takes a recording of an earlier time, after the reports of the periods that ended before it. A time up to a day ahead is taken as now: the
   * clock was set back meanwhile.
   */
  recordLeft(state: State, { metric, time, reading }: Recording, now: number, isPersistent: boolean): Outcome {
    const taken = Math.min(time, now);
    if (time > now + DAY || isClockWrong(state, taken)) return ignored(state, "clock");
    if (state.consent === "on") {
      this.#enrollNew(state, now);
      this.#formEnded(state, taken, now, isPersistent);
    }
    return this.#take(state, metric, taken, isPersistent, () => reading);
  }

  #take(state: State, metric: Metric | undefined, time: number, isPersistent: boolean, read: (encoder: MetricEncoder) => Reading): Outcome {
    if (state.consent === "off") return ignored(state, "consent");
    if (!metric) return ignored(state, "unknown-metric");
    const period = periodOf(metric.period, time);
    if (metric.hasExpired(period)) return ignored(state, "expired");
    if (isClockWrong(state, time)) return ignored(state, "clock");
    const account = state.accounts[metric.digest];
    if (!account || account.refused) return ignored(state, "policy");
    if (!isCollected(account, isPersistent)) return ignored(state, "not-persistent");
    if (account.formed.includes(period)) return ignored(state, "clock");
    const encoder = this.#encoder(state.secret, metric);
    const earlier = state.drafts[metric.digest];
    const draft = earlier?.period === period ? earlier : undefined;
    const reading = valid(() => read(encoder));
    if (!reading) return ignored(state, "invalid");
    const [bits, number] = this.#withEarlier(encoder, reading, draft?.number ?? "");
    const recordings = (draft?.recordings ?? 0) + 1;
    if (draft && !number && uniformBelow(recordings, this.#random) > 0) {
      draft.recordings = recordings;
      state.counts.superseded++;
      return "recorded";
    }
    const report = encoder.encodePeriod(account, bits, period);
    if (!report) return ignored(state, "policy");
    state.drafts[metric.digest] = { period, recordings, report, number };
    if (draft) state.counts.superseded++;
    else state.counts.chosen++;
    return "recorded";
  }

  /** True bits of a value together with the period's earlier recordings, and what to keep of them for the next, sealed. */
  #withEarlier(encoder: MetricEncoder, { value, number }: Reading, sealed: string): [TrueBits, string] {
    const { kind } = encoder.metric;
    if (kind.addsUp) {
      const bits = value.bits | (sealed ? kind.fromKey(encoder.sealer.open(sealed)).bits : 0n);
      const together = { ...value, bits };
      return [together, encoder.sealer.seal(kind.key(together))];
    }
    const earlier = sealed ? new DataView(encoder.sealer.open(sealed).slice().buffer).getFloat64(0) : null;
    const seal = (number: number): string => {
      const view = new DataView(new ArrayBuffer(8));
      view.setFloat64(0, number);
      return encoder.sealer.seal(new Uint8Array(view.buffer));
    };
    if (kind.several === "one" || (number === null && earlier === null)) return [value, ""];
    const total = number === null ? earlier! : combined(kind.several, earlier, number);
    return [encoder.trueBits(total), seal(total)];
  }

  /** Opens or continues the account of each metric that is collected, and shares out the budget. */
  enroll(state: State, now: number): void {
    if (state.consent === "off" || isClockWrong(state, now)) return;
    const metrics = this.#collected(now);
    for (const metric of metrics) {
      const period = periodOf(metric.period, now);
      const account = (state.accounts[metric.digest] ??= newAccount(metric, period));
      if (account.refused || account.enrollment !== state.enrollments) account.firstPeriod = period; // what was not collected is not made up for
    }
    allocate(this.#policy, state.accounts, metrics, state.enrollments);
  }

  #collected(now: number): Metric[] {
    return [...this.#metrics.values()].filter((metric) => !metric.hasExpired(periodOf(metric.period, now)));
  }

  #encoder(secret: string, metric: Metric): MetricEncoder {
    if (this.#encodersOf !== secret) [this.#encoders, this.#encodersOf] = [new Map(), secret];
    let encoder = this.#encoders.get(metric.digest);
    if (!encoder) {
      encoder = new MetricEncoder(metric, new Secret(fromHex(secret)), this.#random);
      this.#encoders.set(metric.digest, encoder);
    }
    return encoder;
  }

  /** Makes the batches of all finished periods without one. Returns whether anything changed. */
  buildDue(state: State, now: number, isPersistent: boolean): boolean {
    if (state.consent === "off" || isClockWrong(state, now)) return false;
    let changed = this.#enrollNew(state, now);
    changed = this.#reopen(state, now) || changed;
    for (const metric of this.#metrics.values()) {
      const account = state.accounts[metric.digest];
      if (!account || account.refused) continue;
      const current = periodOf(metric.period, now);
      if (account.firstPeriod > current || (!isCollected(account, isPersistent) && account.firstPeriod < current)) {
        account.firstPeriod = current; // opened under a clock that was ahead; or what was not collected is not made up for
        changed = true;
      }
    }
    changed = this.#formEnded(state, now, now, isPersistent) || changed;
    return this.#discard(state, now) || changed;
  }

  #enrollNew(state: State, now: number): boolean {
    const isNew = !this.#collected(now).every((metric) => state.accounts[metric.digest]?.enrollment === state.enrollments);
    if (isNew) this.enroll(state, now);
    return isNew;
  }

  /** Makes the batches of the periods that ended before a time. Returns whether there were any. */
  #formEnded(state: State, time: number, now: number, isPersistent: boolean): boolean {
    let changed = false;
    for (const metric of this.#metrics.values()) {
      const account = state.accounts[metric.digest];
      if (!account || account.refused || !isCollected(account, isPersistent)) continue;
      const [oldest, current] = [periodOf(metric.period, now - MAX_BATCH_AGE), periodOf(metric.period, time)];
      for (let period = account.firstPeriod > oldest ? account.firstPeriod : oldest; period < current; period = nextPeriod(metric.period, period)) {
        if (account.formed.includes(period) || metric.hasExpired(period)) continue;
        this.#form(state, metric, account, period, now);
        changed = true;
      }
    }
    return changed;
  }

  /**
   * Fixes the label of each current period that no run of the app has reached. isStart : whether the app was started, or consent given: later
   * periods without a run have its label. Recordings fix no label. Returns whether anything changed.
   */
  noteRun(state: State, now: number, isStart: boolean): boolean {
    if (state.consent === "off" || isClockWrong(state, now)) return false;
    let changed = false;
    for (const metric of this.#collected(now)) {
      const account = state.accounts[metric.digest];
      if (!metric.group || !account) continue;
      const groups = afterRun(account.groups, metric.period, periodOf(metric.period, now), metric.groupValue(this.#labels), isStart);
      changed ||= groups !== account.groups;
      account.groups = groups;
    }
    return changed;
  }

  #form(state: State, metric: Metric, account: Account, period: string, now: number): void {
    account.formed = [...account.formed, period].slice(-REMEMBERED_PERIODS);
    const encoder = this.#encoder(state.secret, metric);
    const draft = state.drafts[metric.digest];
    const isDrafted = draft?.period === period;
    if (isDrafted) delete state.drafts[metric.digest];
    const drafted = isDrafted ? stillAffordable(account, draft.report) : null;
    const report = drafted ?? encoder.encodePeriod(account, encoder.trueBits(null), period);
    if (!report) return; // no budget is left: the metric sends no more reports
    charge(account, report);
    const id = randomUuid(this.#random);
    const end = startOf(nextPeriod(metric.period, period));
    const next = startOf(nextPeriod(metric.period, isoDay(end)));
    const due = end + uniform(this.#random) * Math.min(next - end, LONGEST_SPREAD);
    const isLate = due < now;
    const group = metric.group ? labelOf(account.groups, period) || metric.groupValue(this.#labels) : "";
    state.queue.push({
      id,
      metric: metric.name,
      digest: metric.digest,
      period,
      periodEnd: end,
      sendAt: isLate ? now + uniform(this.#random) * LATE_WITHIN : due,
      body: batchBody(metric, id, period, group, [{ cohort: report.cohort, bits: fromHex(report.bits) }]),
      attempted: false,
      rescheduled: isLate,
    });
    state.counts.formed++;
    state.counts.stoodIn += Number(report.stoodIn);
  }

  /** Takes back the reports of periods that are open: they were made while the clock was ahead, and no attempt began to send them. */
  #reopen(state: State, now: number): boolean {
    const early = state.queue.filter((batch) => !batch.attempted && batch.periodEnd > now);
    for (const { digest, period } of early) {
      const account = state.accounts[digest];
      if (account) account.formed = account.formed.filter((each) => each !== period);
      count(state.counts.dropped, "clock");
    }
    state.queue = state.queue.filter((batch) => !early.includes(batch));
    return early.length > 0;
  }

  /** Drops batches that nobody will accept, those of metrics that are not collected any more, and the oldest beyond the limit. */
  #discard(state: State, now: number): boolean {
    const certain = Math.min(now, state.confirmedAt);
    const current = state.queue.filter((batch) => certain < batch.periodEnd + MAX_BATCH_AGE);
    const kept = current.filter((batch) => !this.#hasExpired(batch, now));
    const aged = state.queue.length - current.length;
    const expired = current.length - kept.length;
    const beyond = Math.max(0, kept.length - MAX_QUEUED);
    state.queue = kept.slice(beyond);
    if (aged) count(state.counts.dropped, "age", aged);
    if (expired) count(state.counts.dropped, "expired", expired);
    if (beyond) count(state.counts.dropped, "quota", beyond);
    return aged + expired + beyond > 0;
  }

  #hasExpired(batch: QueuedBatch, now: number): boolean {
    const metric = this.#metrics.get(batch.metric);
    return metric !== undefined && metric.digest === batch.digest && metric.hasExpired(isoDay(now));
  }

  /** `off` deletes drafts, queue and secret, and keeps the ledger: reports that were sent still count. `on` draws a new secret. */
  changeConsent(state: State, level: ConsentLevel, text: string, now: number): boolean {
    if (state.consent === level && state.consentText === text) return false;
    state.consentTime = now;
    if (level === "off") {
      if (state.queue.length) count(state.counts.dropped, "consent", state.queue.length);
      Object.assign(state, { drafts: {}, pages: {}, queue: [], sent: [], quarantine: [], secret: "", machine: "", failures: 0, backoffUntil: 0, lastError: "" });
      for (const account of Object.values(state.accounts)) Object.assign(account, { tags: [], tag: "", sealed: "", groups: {} });
    } else if (state.consent === "off") {
      state.secret = toHex(this.#random(32));
      state.enrollments++;
    }
    state.consent = level;
    state.consentText = text;
    return true;
  }
}

/** Whether the clock cannot be right, or is behind a time that is known to have passed: nothing is recorded until it is right. */
export function isClockWrong(state: State, now: number): boolean {
  return !(EARLIEST_DAY <= now && now < LATEST_DAY + DAY) || now < state.confirmedAt - CLOCK_TOLERANCE;
}
