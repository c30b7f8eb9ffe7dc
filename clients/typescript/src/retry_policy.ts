/** Which batch is sent next and when, and what an answer means for it (docs/how-to/client.md, "Retry policy"). Pure functions of a state. */

import type { RandomBytes } from "./bytes.ts";
import { DAY, isoDay } from "./periods.ts";
import { LATE_WITHIN, uniform } from "./recorder.ts";
import { count, type QueuedBatch, type State } from "./state.ts";
import type { UploadResponse } from "./transport.ts";

const SECOND = 1000;
const HOUR = 3600 * SECOND;
const BACKOFF_BASE = 30 * SECOND;
const MAX_WAIT = 2 * HOUR;
const MAX_DELAY = 40 * DAY;
const SENT_KEPT = 10;
const OVERDUE_AFTER = 60 * SECOND;

type Action = "accept" | "retry" | "quarantine" | "pause" | "pause-metric" | "hold-metric" | "drop" | "drop-metric";

/** Action for a batch of one report. inDoubt : the aggregator may have stored it, so it is sent again unchanged, or dropped */
export function decide(status: number | null, problem: string, inDoubt: boolean): Action {
  if (status === 200 || status === 202) return "accept";
  if (status === null || [408, 425, 429].includes(status) || problem === "period-not-started") return "retry";
  if (problem === "digest-mismatch") return "hold-metric";
  if (problem === "period-closed") return "drop";
  if (problem === "metric-expired") return "drop-metric";
  if (problem === "unknown-metric") return "pause-metric";
  if (problem === "not-http") return "pause"; // a proxy damages requests
  if ([400, 413, 422].includes(status)) return inDoubt ? "retry" : "quarantine";
  return status >= 400 && status < 500 ? "pause" : "retry";
}

/** Batch to send next, and the time; hurry : overdue batches at once. */
export function nextBatch(state: State, now: number, hurry: boolean): { batch: QueuedBatch; time: number } | null {
  let first: { batch: QueuedBatch; time: number } | null = null;
  for (const batch of state.queue) {
    const pause = state.paused[batch.digest] ?? 0;
    if (batch.period > isoDay(now + DAY) || (now < pause && pause <= now + DAY)) continue;
    const time = hurry && batch.rescheduled ? Math.min(batch.sendAt, now) : batch.sendAt <= now + MAX_DELAY ? batch.sendAt : now;
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

/** Applies the answer to a batch. inDoubt : whether an earlier attempt began */
export function applyResponse(state: State, id: string, inDoubt: boolean, response: UploadResponse, now: number, random: RandomBytes): void {
  const batch = state.queue.find((each) => each.id === id);
  if (!batch) return; // consent was withdrawn, or another tab had the answer
  const isOurs = response.status !== null && (response.status >= 400 || ([200, 202].includes(response.status) && response.batchId === id));
  const status = isOurs ? response.status : null;
  const theirs = Date.parse(response.date);
  const isOtherClock = Math.abs(theirs - now) > DAY;
  let action = decide(status, response.problem, inDoubt);
  if (isOtherClock && action !== "accept") action = "pause";
  if (status !== null) batch.attempted = inDoubt; // this attempt was answered
  if (!Number.isNaN(theirs) && !isOtherClock) state.confirmedAt = Math.max(state.confirmedAt, now);
  if (action === "retry" || action === "pause") {
    state.failures++;
    const jitter = uniform(random) * Math.min(HOUR, BACKOFF_BASE * 2 ** Math.min(state.failures - 1, 20));
    state.backoffUntil = now + (action === "pause" ? HOUR : retryAfter(response.retryAfter, now) + jitter);
    state.lastError = status === null ? "no answer" : `${status} ${response.problem}`.trim();
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
    state.quarantine = [...state.quarantine, { body: batch.body.trimEnd(), problem: `${status} ${response.problem}`.trim() }].slice(-SENT_KEPT);
  } else if (action === "drop") {
    remove(isThis, "refused");
  } else if (action === "drop-metric") {
    remove((each) => each.digest === batch.digest, "expired");
  } else {
    state.paused[batch.digest] = now + (action === "hold-metric" ? DAY : HOUR);
    state.lastError = `${status} ${response.problem} (${batch.metric})`;
  }
}

/** After an outage the batches that wait are sent at separate random times of the next day. */
function spreadAfterOutage(state: State, now: number, random: RandomBytes, but: string): void {
  for (const batch of state.queue) {
    if (batch.id !== but && batch.sendAt <= now) Object.assign(batch, { rescheduled: false, sendAt: now + uniform(random) * DAY });
  }
}
