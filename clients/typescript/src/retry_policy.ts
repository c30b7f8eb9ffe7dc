/** Which batch is sent next and when, and what an answer means for it (docs/how-to/client.md, "Retry policy"). Pure functions of a state. */

import type { RandomBytes } from "./bytes.ts";
import { CLOCK_TOLERANCE, MAX_SEND_DELAY, OPEN_BEFORE } from "./clock_rules.ts";
import { DAY, isoDay } from "./periods.ts";
import { LATE_WITHIN, uniform } from "./recorder.ts";
import { count, type QueuedBatch, type State } from "./state.ts";
import type { UploadResponse } from "./transport.ts";

const SECOND = 1000;
const HOUR = 3600 * SECOND;
const BACKOFF_BASE = 30 * SECOND;
const MAX_WAIT = 2 * HOUR;
const SENT_KEPT = 10;
const OVERDUE_AFTER = 60 * SECOND;

/** Refusals of an aggregator, by what they mean for a batch of one report. */
const REFUSALS = {
  retry: "408 too-slow,422 period-not-started,429 too-many,500 internal-error,503 unavailable,507 disk-full",
  // a proxy damages requests, or the url or the token is wrong
  pause:
    "400 not-http,401 unauthorized,403 forbidden,403 cross-site,404 not-found,405 method-not-allowed,415 unsupported-media-type,422 invalid-query,431 headers-too-large",
  quarantine:
    "400 malformed,413 too-large,422 cohort-out-of-range,422 wrong-group,422 wrong-size,422 padding-set,422 no-reports,422 too-many-reports,422 period-misaligned,422 implausible-report",
  "pause-metric": "404 unknown-metric",
  "hold-metric": "409 digest-mismatch",
  drop: "410 period-closed",
  "drop-metric": "410 metric-expired",
};

type Action = keyof typeof REFUSALS | "accept";

/** Action for the answer to a batch of one report; undefined : the answer is not an aggregator's, so it decides nothing. */
export function decide({ status, problem, batchId }: UploadResponse, id: string): Action | undefined {
  if ((status === 200 || status === 202) && batchId === id) return "accept";
  return (Object.keys(REFUSALS) as (keyof typeof REFUSALS)[]).find((action) => REFUSALS[action].split(",").includes(`${status} ${problem}`));
}

/** Batch to send next, and the time; hurry : overdue batches at once. */
export function nextBatch(state: State, now: number, hurry: boolean): { batch: QueuedBatch; time: number } | null {
  let first: { batch: QueuedBatch; time: number } | null = null;
  for (const batch of state.queue) {
    const pause = state.paused[batch.digest] ?? 0;
    if (batch.period > isoDay(now + OPEN_BEFORE) || (now < pause && pause <= now + DAY)) continue;
    const time = hurry && batch.rescheduled ? Math.min(batch.sendAt, now) : batch.sendAt <= now + MAX_SEND_DELAY ? batch.sendAt : now;
    if (!first || time < first.time) first = { batch, time };
  }
  return first;
}

/** Gives batches whose time passed while nothing ran other times, once. */
export function rescheduleOverdue(state: State, now: number, random: RandomBytes): boolean {
  const overdue = state.queue.filter((batch) => !batch.rescheduled && batch.sendAt < now - OVERDUE_AFTER);
  if (state.failures) return false;
  for (const batch of overdue) Object.assign(batch, { rescheduled: true, sendAt: now + uniform(random) * LATE_WITHIN });
  return overdue.length > 0;
}

/** End of the backoff; a later end was set under a wrong clock. */
export function backoffUntil(state: State, now: number): number {
  return state.backoffUntil <= now + MAX_WAIT ? state.backoffUntil : 0;
}

/** Wait of a Retry-After header (seconds or a date), at most an hour. */
export function retryAfter(header: string, now: number): number {
  const wait = /^\d+$/.test(header) ? Number(header) * SECOND : Date.parse(header) - now;
  return Number.isNaN(wait) ? 0 : Math.min(Math.max(wait, 0), HOUR);
}

/** Applies the answer to a batch. */
export function applyResponse(state: State, id: string, response: UploadResponse, now: number, random: RandomBytes): void {
  const batch = state.queue.find((each) => each.id === id);
  if (!batch) return; // consent was withdrawn, or another tab had the answer
  const own = decide(response, id);
  const theirs = own ? Date.parse(response.date) : NaN;
  const isOtherClock = Math.abs(theirs - now) > CLOCK_TOLERANCE;
  const action = isOtherClock && own !== "accept" ? "pause" : (own ?? "retry");
  if (!Number.isNaN(theirs) && !isOtherClock) state.confirmedAt = Math.max(state.confirmedAt, now);
  const said = own ? `${response.status} ${response.problem}` : response.status ? `unrecognized answer: status ${response.status}` : "no answer";
  const failed = (): void => count((state.counts.failedUploads ??= {}), own ? "postponed" : response.status ? "unrecognized" : "no-response");
  if (action === "retry" || action === "pause") {
    failed();
    state.failures++;
    const jitter = uniform(random) * Math.min(HOUR, BACKOFF_BASE * 2 ** Math.min(state.failures - 1, 20));
    state.backoffUntil = now + (action === "pause" ? HOUR : retryAfter(response.retryAfter, now) + jitter);
    batch.sendAt = state.backoffUntil; // other due batches come first: one that always fails does not hold them up
    state.lastError = said;
    return;
  }
  if (state.failures) spreadAfterOutage(state, now, random, id);
  Object.assign(state, { failures: 0, backoffUntil: 0, lastError: "" });
  const remove = (isGone: (each: QueuedBatch) => boolean, reason: string): void => {
    const gone = state.queue.filter(isGone).length;
    state.queue = state.queue.filter((each) => !isGone(each));
    if (reason) count(state.counts.dropped, reason, gone);
  };
  const isThis = (each: QueuedBatch): boolean => each.id === id;
  if (action === "accept") {
    remove(isThis, "");
    state.counts.acknowledged++;
    state.sent = [...state.sent, batch.body.trimEnd()].slice(-SENT_KEPT);
    delete state.paused[batch.digest];
    if (isOtherClock) state.backoffUntil = now + HOUR;
  } else if (action === "quarantine") {
    remove(isThis, "");
    state.counts.quarantined++;
    state.quarantine = [...state.quarantine, { body: batch.body.trimEnd(), problem: said }].slice(-SENT_KEPT);
  } else if (action === "drop") {
    remove(isThis, "refused");
  } else if (action === "drop-metric") {
    remove((each) => each.digest === batch.digest, "expired");
  } else {
    failed();
    state.paused[batch.digest] = now + (action === "hold-metric" ? DAY : HOUR);
    state.lastError = `${said} (${batch.metric})`;
  }
}

/** After an outage the batches that wait are sent at separate random times of the next day. */
function spreadAfterOutage(state: State, now: number, random: RandomBytes, but: string): void {
  for (const batch of state.queue) {
    if (batch.id !== but && batch.sendAt <= now) Object.assign(batch, { rescheduled: false, sendAt: now + uniform(random) * DAY });
  }
}
