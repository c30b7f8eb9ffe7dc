/** Limits of what the platform promises: an answer that never comes, such as that of `indexedDB.open` in some browsers, must not hold up the app. */

import { HubbubError } from "./errors.ts";
import type { Storage } from "./state.ts";

/** Calls a function after some milliseconds; returns what cancels that. */
export type Timer = (done: () => void, milliseconds: number) => () => void;

const STORAGE_LIMIT = 10_000;

export const systemTimer: Timer = (done, milliseconds) => {
  const timer = setTimeout(done, milliseconds);
  return () => clearTimeout(timer);
};

/** A promise, or an error with a reason after a limit. */
export function within<T>(promise: Promise<T>, milliseconds: number, what: string, timer: Timer): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = (): void => reject(new HubbubError(`${what} did not answer within ${milliseconds / 1000} seconds`));
    const cancel = timer(late, milliseconds);
    promise.finally(cancel).then(resolve, reject);
  });
}

/** A storage whose answers have a limit. A change that begins after it is void; and after it the storage is opened anew. */
export function limitedStorage(storage: Storage, timer: Timer): Storage {
  const limited = <T>(what: string, promise: Promise<T>, late = (): void => undefined): Promise<T> =>
    within(promise, STORAGE_LIMIT, `${what} of the storage`, (done, milliseconds) =>
      timer(() => {
        late();
        storage.close();
        done();
      }, milliseconds),
    );
  return {
    page: storage.page ?? null,
    read: () => limited("read", storage.read()),
    update: (change) => {
      let isLate = false;
      const voided: typeof change = (state) => {
        if (isLate) throw new HubbubError("the change is void");
        return change(state);
      };
      return limited("update", storage.update(voided), () => (isLate = true));
    },
    sync: () => limited("sync", storage.sync()),
    isPersistent: () => limited("isPersistent", storage.isPersistent()),
    persist: () => storage.persist(), // the browser may ask the user, who may never answer; nobody waits for it
    close: () => storage.close(),
  };
}
