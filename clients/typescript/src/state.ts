/** State of one client, a JSON value: what its tabs or processes share. */

import { HubbubError } from "./errors.ts";
import type { Account } from "./privacy.ts";

export type ConsentLevel = "off" | "on";

/** Bits of one report after both randomized responses, and its cost. Bytes are hex. */
export interface EncodedReport {
  cohort: number;
  bits: string;
  tag: string;
  sealed: string;
  epoch: number | null;
  response: number | null;
  costsUnit: boolean;
  stoodIn: boolean;
}

/** Report of an open period. recordings : that it stands for; number : of all of them, sealed */
export interface Draft {
  period: string;
  recordings: number;
  report: EncodedReport;
  number: string;
}

/** Request that waits to be sent. Times are milliseconds since 1970. */
export interface QueuedBatch {
  id: string;
  metric: string;
  digest: string;
  period: string;
  periodEnd: number;
  sendAt: number;
  body: string;
  /** Whether an attempt began: the aggregator may have its report, whatever it answered. */
  attempted: boolean;
  /** Whether `sendAt` was moved once, because nothing ran at that time. */
  rescheduled: boolean;
}

/** Counts of recordings and reports; recorded = chosen + superseded + ignored, formed = acknowledged + queued + quarantined + dropped. */
export interface Counts {
  chosen: number;
  superseded: number;
  ignored: Record<string, number>;
  formed: number;
  stoodIn: number;
  acknowledged: number;
  quarantined: number;
  dropped: Record<string, number>;
  /** Attempts to send that settled nothing: "no-response", "unrecognized" or "postponed". Missing in the state of an older client. */
  failedUploads?: Record<string, number>;
}

export interface State {
  /** Format of this object. A client leaves the state of a newer one alone. */
  format: number;
  consent: ConsentLevel;
  consentText: string;
  consentTime: number;
  /** Hex of 32 bytes; "" until consent. */
  secret: string;
  /** Keyed tag of the machine on which the secret was drawn; "" if its id is unknown. */
  machine: string;
  enrollments: number;
  accounts: Record<string, Account>;
  drafts: Record<string, Draft>;
  /** Number of the last line of a page that was taken (lines.ts). */
  pages: Record<string, number>;
  queue: QueuedBatch[];
  /** The requests that were acknowledged last. */
  sent: string[];
  /** Requests that the aggregator refused, with the problem. */
  quarantine: { body: string; problem: string }[];
  failures: number;
  backoffUntil: number;
  lastError: string;
  /** End of the pause of a definition by its digest. */
  paused: Record<string, number>;
  /** Time at which an aggregator's clock last agreed. */
  confirmedAt: number;
  /** Until then another tab or process is sending. */
  claimedUntil: number;
  counts: Counts;
}

export const FORMAT = 1;

export function newState(): State {
  return {
    format: FORMAT,
    consent: "off",
    consentText: "",
    consentTime: 0,
    secret: "",
    machine: "",
    enrollments: 0,
    accounts: {},
    drafts: {},
    pages: {},
    queue: [],
    sent: [],
    quarantine: [],
    failures: 0,
    backoffUntil: 0,
    lastError: "",
    paused: {},
    confirmedAt: 0,
    claimedUntil: 0,
    counts: { chosen: 0, superseded: 0, ignored: {}, formed: 0, stoodIn: 0, acknowledged: 0, quarantined: 0, dropped: {} },
  };
}

/** name : of the file or database that has this state */
export function newerFormatError(name: string, { format }: State): HubbubError {
  return new HubbubError(`${name} has format ${format}, but this version reads ${FORMAT}: install the newer hubbub`);
}

export function count(counts: Record<string, number>, reason: string, number = 1): void {
  counts[reason] = (counts[reason] ?? 0) + number;
}

/** Names and texts that outlast the page as soon as they are written. */
export interface PageStorage {
  names(): string[];
  get(name: string): string | null;
  /** Throws if there is no room. */
  set(name: string, text: string): void;
  remove(name: string): void;
}

/** Where the state is kept. */
export interface Storage {
  /** Where a page that ends leaves recordings; a program that does not end at any moment has none. */
  readonly page?: PageStorage | null;

  /** Id of the machine, which tells a copy of the state on another one; "" if it is unknown. */
  machineId?(): string;

  /** Return the state that was written last, or a new one. */
  read(): Promise<State>;

  /**
   * Applies `change` to the state that was written last, and writes it durably before it resolves. No other tab or process comes between;
   * if one did, `change` runs again. It changes the state in place and returns a result, and whether the state is to be written.
   */
  update<T>(change: (state: State) => [result: T, write: boolean]): Promise<T>;

  /** Makes what was written outlast a power loss. */
  sync(): Promise<void>;

  /** Whether the browser keeps the state until the user deletes it. */
  isPersistent(): Promise<boolean>;

  /** Ask the browser to keep it. */
  persist(): Promise<void>;

  close(): void;
}
