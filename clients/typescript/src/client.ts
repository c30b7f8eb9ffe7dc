/** Client of one person's installation: records, keeps and sends. */

import { fromHex, type RandomBytes } from "./bytes.ts";
import { HubbubError } from "./errors.ts";
import type { Value } from "./kinds.ts";
import { backgroundTimer, coarseTimer, systemTimer, type Timer, within } from "./limits.ts";
import { type Left, PageLines } from "./lines.ts";
import { type Definition, Metric } from "./metric.ts";
import { DAY } from "./periods.ts";
import { checkPolicy, DEFAULT_POLICY, type Policy } from "./privacy.ts";
import { isClockWrong, type Outcome, Recorder } from "./recorder.ts";
import { applyResponse, backoffUntil, nextBatch, rescheduleOverdue } from "./retry_policy.ts";
import { Secret } from "./secret.ts";
import { type ConsentLevel, type Counts, newState, type State, type Storage } from "./state.ts";
import { fetchTransport, NO_RESPONSE, type Transport } from "./transport.ts";

export interface ClientOptions {
  /** JSON of `hubbub metrics show metrics.toml --json`, bundled with the app. */
  readonly definitions: readonly Definition[];
  /** Address of the aggregator: https, or http on this machine. */
  readonly url: string;
  readonly storage: Storage;
  /** Limits of the epsilon that the client may spend. */
  readonly policy?: Partial<Policy>;
  /** Public labels, for metrics with a group. */
  readonly groups?: Readonly<Record<string, string>>;
  /** Whether metrics that are charged per value need storage that the browser does not evict. Default: true. */
  readonly requirePersistence?: boolean;
  /** Whether consent is off where a machine runs the program (navigator.webdriver, CI). Default: true. */
  readonly pauseWhenAutomated?: boolean;
  /** Milliseconds since 1970. */
  readonly clock?: () => number;
  readonly random?: RandomBytes;
  readonly transport?: Transport;
  /** Ends what the platform never answers, such as indexedDB.open. Default: setTimeout. */
  readonly timer?: Timer;
}

/** What a client knows of itself, for a settings page. */
export interface Inspection {
  readonly consent: ConsentLevel;
  readonly consentText: string;
  /** Milliseconds since 1970; 0: never. */
  readonly consentTime: number;
  /** Why nothing is recorded although consent is on, or "". */
  readonly paused: string;
  readonly isPersistent: boolean;
  /** Whether the state was copied to this machine: two copies report each period twice. */
  readonly isCopied: boolean;
  /** Bodies of the requests that wait, and of those that were acknowledged last. */
  readonly queued: readonly string[];
  readonly sent: readonly string[];
  readonly quarantined: readonly { body: string; problem: string }[];
  /** Ledger of each definition: units of epsilonPerUnit, over all enrollments. This one may have reservedUnits - spentBeforeEnrollment. */
  readonly ledger: readonly { metric: string; digest: string; unit: string; units: number; reservedUnits: number; spentBeforeEnrollment: number; epsilonPerUnit: number; refused: string }[];
  readonly counts: Counts;
  readonly lastError: string;
}

/** left : the recording, if it has a line */
interface Waiting {
  readonly metric: string;
  readonly value: Value;
  readonly left: Left | null;
  readonly done: (outcome: Outcome) => void;
}

/** Batch that is sent. */
interface Selected {
  readonly id: string;
  readonly body: string;
}

const LONGEST_SLEEP = 15 * 60_000;
const RETRY_SLEEP = 60_000;
/** Time in which no other tab sends: a request takes 10 seconds at most. */
const CLAIM = 12_000;
const STORAGE_LIMIT = 10_000;
const MAX_WAITING = 10_000;
const NOTHING_LEFT = { outcomes: new Map<string, Outcome>(), names: [], changed: false };

export class Client {
  /** Resolves when the client takes part in the current periods, and has made the reports of those that passed. */
  readonly started: Promise<void>;
  readonly #storage: Storage;
  readonly #recorder: Recorder;
  readonly #lines: PageLines | null;
  readonly #transport: Transport;
  readonly #clock: () => number;
  readonly #random: RandomBytes;
  readonly #timer: Timer;
  readonly #storageTimer: Timer;
  readonly #machineId: string;
  readonly #requirePersistence: boolean;
  readonly #paused: string;
  #waiting: Waiting[] = [];
  #writing: Promise<void> | null = null;
  #sending: Promise<unknown> = Promise.resolve();
  #waking: ReturnType<typeof setTimeout> | undefined;
  #isEnrolled = false;
  /** Text of a withdrawal that is not saved yet: nothing is recorded or sent. */
  #withdrawal: string | null = null;
  #request: AbortController | undefined;
  #wakesAt = 0;
  /** Whether a batch was due at the last attempt. */
  #isDue = false;
  #isClosed = false;

  /** Raises HubbubError for definitions, an address or options that are wrong. After that nothing of the client throws. */
  constructor(options: ClientOptions) {
    const metrics = options.definitions.map((definition) => new Metric(definition));
    if (new Set(metrics.map((metric) => metric.name)).size < metrics.length) throw new HubbubError("definitions must have distinct names");
    const groups = options.groups ?? {};
    for (const metric of metrics) metric.groupValue(groups);
    this.#clock = options.clock ?? Date.now;
    this.#random = options.random ?? ((length) => crypto.getRandomValues(new Uint8Array(length)));
    this.#recorder = new Recorder(metrics, checkPolicy({ ...DEFAULT_POLICY, ...options.policy }), groups, this.#random);
    this.#transport = options.transport ?? fetchTransport(options.url);
    this.#timer = options.timer ?? systemTimer;
    this.#storageTimer = coarseTimer(options.timer ?? backgroundTimer);
    this.#storage = options.storage;
    this.#machineId = this.#storage.machineId?.() ?? "";
    this.#lines = this.#storage.page ? new PageLines(this.#storage.page, this.#recorder, metrics, this.#random) : null;
    this.#requirePersistence = options.requirePersistence ?? true;
    this.#paused = (options.pauseWhenAutomated ?? true) ? automation() : "";
    this.started = this.#round(false).then((wait) => this.#schedule(wait));
  }

  /**
   * Records a value. Never throws or blocks. In a page the recording outlasts the page when `record` returns, once the client has started.
   * Resolves when it is durable, to "recorded", or to the reason why it is ignored.
   */
  record(metric: string, value: Value): Promise<Outcome> {
    const taken = copied(value);
    return new Promise((done) => {
      if (this.#paused || this.#isClosed || this.#withdrawal !== null) return done("consent");
      if (this.#waiting.length >= MAX_WAITING) return done("no-state");
      const left = this.#lines?.leave(metric, taken, this.#clock()) ?? null;
      this.#waiting.push({ metric, value: taken, left, done });
      this.#writing ??= Promise.resolve().then(() => this.#writeWaiting());
    });
  }

  async #writeWaiting(): Promise<void> {
    while (this.#waiting.length) {
      const taken = this.#waiting;
      this.#waiting = [];
      const own = taken.flatMap(({ left }) => left ?? []);
      const outcomes = await this.#changed<Outcome[]>((state, now, isPersistent, outcomes) => {
        const each = taken.map(({ metric, value, left }) =>
          left ? outcomes.get(left.name)! : this.#recorder.record(state, metric, value, now, isPersistent),
        );
        return [each, state.consent === "on"];
      }, own);
      taken.forEach(({ left, done }, index) => done(outcomes?.[index] ?? (left?.isSealed ? "recorded" : "no-state"))); // a line is taken later
    }
    this.#writing = null;
    this.#schedule(0);
  }

  /** Saves the user's decision; text : what the user read, or its version. Resolves to whether it is saved. */
  async setConsent(level: ConsentLevel, text = ""): Promise<boolean> {
    if (level !== "on" && level !== "off") return false;
    if (this.#paused && level === "on") return false;
    this.#withdrawal = level === "off" ? text : null;
    if (level === "off") this.#stop();
    if (level === "on") void this.#storage.persist().catch(() => undefined); // Firefox asks the user, who may never answer
    await this.#writing;
    const saved = await this.#changed((state, now) => {
      const wasOff = state.consent === "off";
      const changes = this.#recorder.changeConsent(state, level, text, now);
      if (changes) this.#recorder.enroll(state, now);
      if (wasOff) this.#recorder.noteRun(state, now, true);
      if (wasOff && level === "on") state.machine = this.#machineTag(state);
      return [true, changes];
    });
    const isSaved = saved === true && (await this.#synced());
    if (level === "off") this.#lines?.erase();
    if (isSaved) this.#withdrawal = null; // the state says so from now on
    this.#schedule(isSaved ? 0 : RETRY_SLEEP);
    return isSaved;
  }

  /** Ends what is under way when consent is withdrawn. */
  #stop(): void {
    this.#request?.abort();
    this.#lines?.erase();
  }

  /** Sends what is due, at most for some seconds. Resolves to whether nothing is due any more. */
  async flush(seconds = 10): Promise<boolean> {
    return within(this.#sendDue(), 1000 * seconds, "flush", this.#timer).catch(() => false);
  }

  async #sendDue(): Promise<boolean> {
    await this.#writing;
    while (!this.#isClosed) if ((await this.#round(true)) > 0) return !this.#isDue;
    return false;
  }

  async inspect(): Promise<Inspection> {
    let [state, isPersistent, unusable] = [newState(), false, ""];
    try {
      [state, isPersistent] = await this.#stored(Promise.all([this.#storage.read(), this.#isPersistent()]));
    } catch (problem) {
      unusable = `the storage cannot be used: ${(problem as Error).message}`;
    }
    return {
      consent: state.consent,
      consentText: state.consentText,
      consentTime: state.consentTime,
      paused: this.#paused || unusable || (isClockWrong(state, this.#clock()) ? "the clock is wrong" : ""),
      isPersistent,
      isCopied: state.machine !== "" && this.#machineId !== "" && state.machine !== this.#machineTag(state),
      queued: state.queue.map((batch) => batch.body.trimEnd()),
      sent: state.sent,
      quarantined: state.quarantine,
      ledger: Object.values(state.accounts).map(({ metric, digest, unit, units, reservedUnits, spentBeforeEnrollment, epsilonPerUnit, refused }) => ({
        metric, digest, unit, units, reservedUnits, spentBeforeEnrollment, epsilonPerUnit, refused,
      })),
      counts: state.counts,
      lastError: state.lastError,
    };
  }

  /** Ends the timers, and resolves when all recordings are written. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#waking);
    await this.#writing;
    await this.#sending;
    this.#storage.close();
  }

  /** Applies a change to the state, after what pages left; null if the storage cannot be used. own : recordings of this page that have a line */
  async #changed<T>(
    change: (state: State, now: number, isPersistent: boolean, outcomes: ReadonlyMap<string, Outcome>) => [T, boolean],
    own: readonly Left[] = [],
  ): Promise<T | null> {
    let isLate = false;
    const written = async (): Promise<readonly [T, readonly string[], string]> => {
      const isPersistent = await this.#isPersistent();
      return this.#storage.update((state) => {
        if (isLate) throw new HubbubError("nobody waits for this change any more");
        const now = this.#clock();
        const { outcomes, names, changed } = this.#lines?.take(state, own, now, isPersistent) ?? NOTHING_LEFT;
        const [result, write] = change(state, now, isPersistent, outcomes);
        return [[result, names, state.secret], write || changed];
      });
    };
    try {
      const [result, names, secret] = await this.#stored(written(), () => (isLate = true));
      this.#lines?.written(names, secret);
      return result;
    } catch {
      return null;
    }
  }

  /** What the storage answers, or an error after its limit: the next call opens it anew. */
  #stored<T>(answer: Promise<T>, late?: () => void): Promise<T> {
    return within(answer, STORAGE_LIMIT, "the storage", this.#storageTimer, () => {
      late?.();
      this.#storage.close();
    });
  }

  #machineTag({ secret }: State): string {
    return new Secret(fromHex(secret)).machineTag(this.#machineId);
  }

  async #isPersistent(): Promise<boolean> {
    return !this.#requirePersistence || this.#storage.isPersistent();
  }

  #schedule(wait: number): void {
    if (this.#isClosed || this.#paused) return;
    const untilMidnight = DAY - (this.#clock() % DAY); // a round then fixes the labels of the new period, whatever is recorded
    const wakesAt = performance.now() + Math.min(wait, LONGEST_SLEEP, untilMidnight);
    if (this.#waking !== undefined && this.#wakesAt <= wakesAt) return;
    clearTimeout(this.#waking);
    this.#wakesAt = wakesAt;
    this.#waking = setTimeout(() => {
      this.#waking = undefined;
      void this.#round(false).then((left) => this.#schedule(left));
    }, wakesAt - performance.now());
    (this.#waking as { unref?: () => void }).unref?.(); // a Node program may end
  }

  /** Builds what is due and sends at most one batch; resolves to the milliseconds until the next round. */
  #round(hurry: boolean): Promise<number> {
    const round = this.#sending.then(() => this.#attempt(hurry));
    this.#sending = round.catch(() => undefined);
    return round.catch(() => RETRY_SLEEP);
  }

  async #attempt(hurry: boolean): Promise<number> {
    this.#isDue = false;
    if (this.#isClosed || this.#paused) return LONGEST_SLEEP;
    if (this.#withdrawal !== null) return (await this.setConsent("off", this.#withdrawal)) ? LONGEST_SLEEP : RETRY_SLEEP;
    const selected = await this.#changed<Selected | number>((state, now, isPersistent) => {
      if (state.consent === "off") return [LONGEST_SLEEP, false];
      if (!this.#isEnrolled) this.#recorder.enroll(state, now);
      let changed = this.#recorder.buildDue(state, now, isPersistent) || !this.#isEnrolled;
      changed = this.#recorder.noteRun(state, now, !this.#isEnrolled) || changed;
      if (!hurry) changed = rescheduleOverdue(state, now, this.#random) || changed;
      const next = nextBatch(state, now, hurry);
      this.#isDue = next !== null && next.time <= now;
      if (!next) return [LONGEST_SLEEP, changed];
      const time = Math.max(next.time, backoffUntil(state, now));
      if (time > now) return [time - now, changed];
      if (state.claimedUntil > now && state.claimedUntil <= now + CLAIM) return [state.claimedUntil - now, changed];
      state.claimedUntil = now + CLAIM;
      next.batch.attempted = true;
      return [{ id: next.batch.id, body: next.batch.body }, true];
    });
    if (selected === null) return RETRY_SLEEP;
    this.#isEnrolled = true;
    if (typeof selected === "number") return selected;
    if (!(await this.#synced())) return RETRY_SLEEP; // an upload that a power loss could undo is not started
    const current = await this.#stored(this.#storage.read());
    if (this.#withdrawal !== null || !current.queue.some((batch) => batch.id === selected.id)) return 0;
    this.#request = new AbortController();
    const answer = this.#transport(selected.body, this.#request.signal);
    const response = await within(answer, CLAIM, "the request", this.#timer).catch(() => NO_RESPONSE);
    this.#request = undefined;
    await this.#changed((state, now) => {
      if (state.consent === "off") return [null, false];
      state.claimedUntil = 0;
      applyResponse(state, selected.id, response, now, this.#random);
      return [null, true];
    });
    return 0;
  }

  /** Makes what was written outlast a power loss; returns whether the disk did. */
  async #synced(): Promise<boolean> {
    return this.#stored(this.#storage.sync()).then(
      () => true,
      () => false,
    );
  }
}

/** Value that no metric accepts. */
const UNUSABLE = Symbol("a value that cannot be read") as never;

/** A value that the app cannot change any more. */
function copied(value: Value): Value {
  if (typeof value !== "object" || value === null) return value ?? null;
  try {
    if (value instanceof Set) return new Set(value);
    if (Array.isArray(value)) return [...value] as readonly string[];
    const isPlain = [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null);
    return isPlain ? ({ ...value } as Value) : UNUSABLE;
  } catch {
    return UNUSABLE;
  }
}

/** Why this run counts as one of a machine, or "". */
function automation(): string {
  const isDriven = typeof navigator !== "undefined" && navigator.webdriver === true;
  const { CI = "" } = (globalThis as { process?: { env?: Record<string, string> } }).process?.env ?? {};
  if (isDriven) return "navigator.webdriver is true: a machine drives the browser";
  return ["", "0", "false", "no", "off"].includes(CI.toLowerCase()) ? "" : "the variable CI is set: a machine runs the program";
}

