/**
 * State in IndexedDB, for browsers and Electron's windows. All tabs of an origin are one client: a read-write transaction of one store runs
 * alone, so a change is read, computed and written before another tab's begins. No tab waits for a lock that a frozen tab holds.
 */

import { HubbubError } from "./errors.ts";
import { FORMAT, newerFormatError, newState, type PageStorage, type State, type Storage } from "./state.ts";

const STORE = "state";
const KEY = "client";

export class IndexedDbStorage implements Storage {
  readonly page: PageStorage | null;
  readonly #name: string;
  #database: Promise<IDBDatabase> | null = null;

  /** name : of the database */
  constructor(name = "hubbub") {
    this.#name = name;
    this.page = localPages(`${name}/`);
  }

  async read(): Promise<State> {
    const store = (await this.#opened()).transaction(STORE).objectStore(STORE);
    return usable((await result(store.get(KEY))) as State | undefined);
  }

  async update<T>(change: (state: State) => [T, boolean]): Promise<T> {
    const transaction = (await this.#opened()).transaction(STORE, "readwrite", { durability: "strict" });
    const store = transaction.objectStore(STORE);
    return new Promise((resolve, reject) => {
      let changed: [T, boolean] | undefined;
      const reading = store.get(KEY);
      reading.onsuccess = () => {
        try {
          const state = usable(reading.result as State | undefined);
          changed = change(state);
          if (changed[1]) store.put(state, KEY);
        } catch (problem) {
          reject(problem);
          transaction.abort();
        }
      };
      transaction.oncomplete = () => resolve(changed![0]);
      transaction.onabort = () => reject(transaction.error ?? new HubbubError("the transaction was aborted"));
    });
  }

  async sync(): Promise<void> {}

  async isPersistent(): Promise<boolean> {
    return (await navigator.storage?.persisted?.()) ?? false;
  }

  async persist(): Promise<void> {
    await navigator.storage?.persist?.();
  }

  close(): void {
    this.#database?.then((database) => database.close()).catch(() => undefined);
    this.#database = null;
  }

  #opened(): Promise<IDBDatabase> {
    this.#database ??= new Promise<IDBDatabase>((resolve, reject) => {
      const opening = indexedDB.open(this.#name, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
      opening.onerror = () => reject(opening.error);
      opening.onsuccess = () => {
        const database = opening.result;
        const forget = (): void => void (this.#database = null);
        database.onclose = forget; // the user cleared the site's data
        database.onversionchange = () => {
          database.close();
          forget();
        };
        resolve(database);
      };
    });
    this.#database.catch(() => (this.#database = null));
    return this.#database;
  }
}

/** Entries of localStorage whose names begin with a text; null in a worker, and where the browser forbids it. */
function localPages(prefix: string): PageStorage | null {
  const storage = orElse(null, () => localStorage);
  return storage && {
    names: () => orElse([], () => Object.keys(storage).flatMap((name) => (name.startsWith(prefix) ? [name.slice(prefix.length)] : []))),
    get: (name) => orElse(null, () => storage.getItem(prefix + name)),
    set: (name, text) => storage.setItem(prefix + name, text),
    remove: (name) => orElse(undefined, () => storage.removeItem(prefix + name)),
  };
}

/** What a storage answers, or else a value: a browser forbids it at any moment. */
function orElse<T>(other: T, ask: () => T): T {
  try {
    return ask();
  } catch {
    return other;
  }
}

function usable(state: State | undefined): State {
  if (state && state.format > FORMAT) throw newerFormatError("the database", state);
  return state ?? newState();
}

function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
