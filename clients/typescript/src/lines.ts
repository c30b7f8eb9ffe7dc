/**
 * Recordings that a page leaves to the next one. A page that ends gets no time to write to IndexedDB, so each recording is first written to
 * localStorage, before `record` returns: a sealed line of one length, below a name of its own, "PAGE/NUMBER". The next change of the state, by
 * this page or another, takes all lines into the state, and deletes them after it. The state remembers the last number of each page, so
 * that a line that is seen again counts once. Other entries below the client's name are not its own: it leaves them alone.
 */

import { concatBytes, fromHex, type RandomBytes, toHex } from "./bytes.ts";
import type { Value } from "./kinds.ts";
import type { Metric } from "./metric.ts";
import { ignored, type Outcome, type Recorder, type Recording } from "./recorder.ts";
import { Secret } from "./secret.ts";
import { type PageStorage, type State } from "./state.ts";

/** First bytes of a line: they tell whether it was sealed under this secret. */
const CHECK_BYTES = 16;
/** Time, number and digest of the metric, before the key of the value. */
const [NUMBER_AT, DIGEST_AT, KEY_AT] = [8, 16, 24];
const MAX_LINES = 250;
const REMEMBERED_PAGES = 64;
/** Name of the entry that says that consent was on. */
const CONSENT = "on";
const NAME = /^[0-9a-f]{16}\/\d+$/;

/** What a line says, or why its recording is ignored. */
type Found = Recording | Outcome;

/**
 * A recording that waits, and has a line. isSealed : whether the line has the value, or only counts a loss, if the page ends now;
 * find : the recording under the secret of the state
 */
export interface Left {
  readonly name: string;
  readonly isSealed: boolean;
  readonly find: (secret: string) => Found;
}

interface Taken {
  readonly outcomes: ReadonlyMap<string, Outcome>;
  readonly names: readonly string[];
  readonly changed: boolean;
}

export class PageLines {
  readonly #storage: PageStorage;
  readonly #recorder: Recorder;
  readonly #metrics: ReadonlyMap<string, Metric>;
  readonly #bytes: number;
  readonly #page: string;
  #number = 0;
  /** Lines since the state was written last. */
  #waiting = 0;
  /** Hex; "" while consent is off, null until the state is read. */
  #secret: string | null = null;

  constructor(storage: PageStorage, recorder: Recorder, metrics: readonly Metric[], random: RandomBytes) {
    this.#storage = storage;
    this.#recorder = recorder;
    this.#metrics = new Map(metrics.map((metric) => [metric.digest.slice(0, 2 * (KEY_AT - DIGEST_AT)), metric]));
    this.#bytes = KEY_AT + Math.max(0, ...metrics.map(({ kind }) => kind.keyBytes));
    this.#page = toHex(random(8));
  }

  /** Leaves a recording in a line; null if it has none: then it is lost if the page ends now. */
  leave(metric: string, value: Value, time: number): Left | null {
    const secret = this.#secret;
    if (this.#waiting >= MAX_LINES || secret === "" || (secret === null && this.#storage.get(CONSENT) === null)) return null;
    const find = (secret: string): Found => this.#recorder.read(secret, metric, value, time);
    try {
      const found = secret === null ? null : find(secret);
      if (typeof found === "string") return null; // there is nothing to keep
      const name = `${this.#page}/${this.#number++}`;
      this.#storage.set(name, found ? this.#seal(secret!, name, found) : "");
      this.#waiting++;
      return { name, isSealed: found !== null, find: found ? (current) => (current === secret ? found : "consent") : find };
    } catch {
      return null; // no room
    }
  }

  /**
   * Takes the lines of all pages into the state, in the order of their times. own : this page's that wait, in case that a script cleared the
   * storage. Returns what became of each, the names that may be deleted when the state is written, and whether it changed.
   */
  take(state: State, own: readonly Left[], now: number, isPersistent: boolean): Taken {
    const outcomes = new Map<string, Outcome>(own.map(({ name }) => [name, "consent"]));
    const names = this.#names();
    if (state.consent === "off") return { outcomes, names, changed: false };
    const found = new Map(own.map(({ name, find }) => [name, find(state.secret)]));
    const done = names.filter((name) => {
      const line = this.#storage.get(name) ?? "";
      if (!line && name.startsWith(this.#page) && !found.has(name)) return false; // waits in memory
      const each = found.get(name) ?? this.#open(state.secret, name, line);
      if (each) found.set(name, each);
      return true;
    });
    const { pages } = state;
    const timeOf = (each: Found): number => (typeof each === "string" ? now : each.time);
    for (const [name, each] of [...found].sort(([, one], [, other]) => timeOf(one) - timeOf(other))) {
      const isNew = !isTaken(pages, name);
      if (!isNew && !outcomes.has(name)) continue;
      const into = isNew ? state : structuredClone(state); // another page took the line: this one would do the same
      outcomes.set(name, typeof each === "string" ? ignored(into, each) : this.#recorder.recordLeft(into, each, now, isPersistent));
      if (isNew) remember(state, name);
    }
    return { outcomes, names: done, changed: done.length + found.size > 0 };
  }

  /** Deletes lines that a written state has. secret : of the state, "" while consent is off */
  written(names: readonly string[], secret: string): void {
    for (const name of names) this.#storage.remove(name);
    this.#waiting = 0;
    if (secret === this.#secret) return;
    this.#secret = secret;
    if (!secret) return this.#storage.remove(CONSENT);
    try {
      this.#storage.set(CONSENT, "");
    } catch {
      // no room: losses before the next start are not counted
    }
  }

  /** Deletes everything, because consent was withdrawn. */
  erase(): void {
    for (const name of [...this.#names(), CONSENT]) this.#storage.remove(name);
    this.#secret = "";
  }

  #names(): string[] {
    return this.#storage.names().filter((name) => NAME.test(name));
  }

  #seal(secret: string, name: string, { metric, time, reading }: Recording): string {
    const bytes = new Uint8Array(this.#bytes);
    const view = new DataView(bytes.buffer);
    view.setFloat64(0, time);
    view.setFloat64(NUMBER_AT, reading.number ?? NaN);
    bytes.set(fromHex(metric.digest).subarray(0, KEY_AT - DIGEST_AT), DIGEST_AT);
    bytes.set(metric.kind.key(reading.value), KEY_AT);
    const stream = lineStream(secret, name, bytes.length);
    return toHex(concatBytes(stream.subarray(0, CHECK_BYTES), xor(bytes, stream.subarray(CHECK_BYTES))));
  }

  /** What a line says; null for a line of an older secret. */
  #open(secret: string, name: string, line: string): Found | null {
    if (!line) return "not-started";
    if (!/^([0-9a-f]{2})+$/.test(line) || line.length < 2 * (CHECK_BYTES + KEY_AT)) return null;
    const sealed = fromHex(line);
    const stream = lineStream(secret, name, sealed.length - CHECK_BYTES);
    if (!line.startsWith(toHex(stream.subarray(0, CHECK_BYTES)))) return null;
    const bytes = xor(sealed.subarray(CHECK_BYTES), stream.subarray(CHECK_BYTES));
    const metric = this.#metrics.get(toHex(bytes.subarray(DIGEST_AT, KEY_AT)));
    if (!metric) return "unknown-metric";
    const view = new DataView(bytes.buffer);
    const number = view.getFloat64(NUMBER_AT);
    const reading = { value: metric.kind.fromKey(bytes.subarray(KEY_AT)), number: Number.isNaN(number) ? null : number };
    return { metric, time: view.getFloat64(0), reading };
  }
}

function lineStream(secret: string, name: string, length: number): Uint8Array {
  return new Secret(fromHex(secret)).stream(CHECK_BYTES + length, "hubbub/line/v1", new TextEncoder().encode(name));
}

function xor(bytes: Uint8Array, pad: Uint8Array): Uint8Array {
  return bytes.map((byte, index) => byte ^ pad[index]!);
}

/** Whether the line of this name was taken. */
function isTaken(pages: State["pages"], name: string): boolean {
  const [page, number] = parts(name);
  return number <= (pages[page] ?? -1);
}

function parts(name: string): [string, number] {
  const [page = "", number] = name.split("/");
  return [page, Number(number)];
}

/** The pages whose lines were taken last come last. */
function remember(state: State, name: string): void {
  const [page, number] = parts(name);
  const { [page]: last = -1, ...others } = state.pages;
  state.pages = Object.fromEntries([...Object.entries(others), [page, Math.max(last, number)]].slice(-REMEMBERED_PAGES));
}
