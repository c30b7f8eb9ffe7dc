/** Limits of what the platform promises: an answer that never comes, such as that of `indexedDB.open` in some browsers, must not hold up the app. */

import { HubbubError } from "./errors.ts";

/** Calls a function after some milliseconds; returns what cancels that. */
export type Timer = (done: () => void, milliseconds: number) => () => void;

export const systemTimer: Timer = (done, milliseconds) => {
  const timer = setTimeout(done, milliseconds);
  return () => clearTimeout(timer);
};

/** The same, for a timer that ends no program that has nothing else to do. */
export const backgroundTimer: Timer = (done, milliseconds) => {
  const timer = setTimeout(done, milliseconds);
  (timer as { unref?: () => void }).unref?.();
  return () => clearTimeout(timer);
};

/**
 * Timer for one limit, which comes between once and twice the milliseconds. It sets a timer of the platform only once in that time, because
 * to set and clear one for each change would cost a tenth of a recording.
 */
export function coarseTimer(timer: Timer): Timer {
  let [older, newer] = [new Set<() => void>(), new Set<() => void>()];
  let isSet = false;
  const set = (milliseconds: number): void => {
    isSet = true;
    timer(() => {
      const late = older;
      [older, newer, isSet] = [newer, new Set(), false];
      if (older.size) set(milliseconds);
      for (const done of late) done();
    }, milliseconds);
  };
  return (done, milliseconds) => {
    newer.add(done);
    if (!isSet) set(milliseconds);
    return () => void (newer.delete(done) || older.delete(done));
  };
}

/** A promise, or an error with a reason after a limit. late : called then */
export function within<T>(promise: Promise<T>, milliseconds: number, what: string, timer: Timer, late?: () => void): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = timer(() => {
      late?.();
      reject(new HubbubError(`${what} did not answer within ${milliseconds / 1000} seconds`));
    }, milliseconds);
    promise.then(resolve, reject);
    promise.then(cancel, cancel);
  });
}
