/**
 * State in a file, for Node and Electron's main process: one JSON line for each change, appended.
 *
 * Processes need no lock. A line says at which length of the file its change was computed (`at`), and counts only if it stands there. So of
 * two processes that append after the same line, the later one's line is void, and it computes its change again. A line that a kill cut off
 * is void, too. A file that has grown is followed by a new one: a last line, which counts by the same rule, has its name.
 */

import { closeSync, fstatSync, mkdirSync, openSync, readSync, renameSync, writeSync } from "node:fs";
import { open, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { toHex } from "./bytes.ts";
import { HubbubError } from "./errors.ts";
import { FORMAT, newState, type State, type Storage } from "./state.ts";

/** by : random, so that no two lines are equal; state : after the change; next : name of the file that goes on */
interface Line {
  by: string;
  at: number;
  state?: State;
  next?: string;
}

/** What was read of a file: the last line that counts, and up to where. id : of the file, the `by` of its first line */
interface Position {
  id: string;
  lines: number;
  length: number;
  endsWithLine: boolean;
  last: Line | null;
}

const NEWLINE = 10;
const LONGEST = 1 << 18;
const ATTEMPTS = 1000;
const MODE = 0o600;
const ID_BYTES = 8;

export class FileStorage implements Storage {
  readonly #path: string;
  #known: Position = nothing("");
  #replacing: Promise<boolean> | undefined;
  readonly #directory: string;

  /** directory : of this client alone; it is created. Raises HubbubError if it cannot be. */
  constructor(directory: string) {
    this.#directory = directory;
    this.#path = join(directory, "journal.jsonl");
    try {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
    } catch (problem) {
      throw new HubbubError(`${directory} cannot be created: ${(problem as Error).message}`);
    }
  }

  async read(): Promise<State> {
    return this.#load().state;
  }

  async update<T>(change: (state: State) => [T, boolean]): Promise<T> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      await this.#replacing;
      const { state, position } = this.#load();
      const [result, write] = change(state);
      if (write && !this.#append(position, { by: randomId(), at: position.length, state })) continue;
      if (state.consent === "off" && position.lines + Number(write) > 1) await this.#erase();
      else if (position.length > LONGEST) this.#replacing ??= this.#replace().finally(() => (this.#replacing = undefined));
      return result;
    }
    throw new HubbubError(`${this.#path} is written too often by other processes`);
  }

  async sync(): Promise<void> {
    const file = await open(this.#path, "r");
    try {
      await file.datasync();
    } finally {
      await file.close();
    }
  }

  async isPersistent(): Promise<boolean> {
    return true;
  }

  async persist(): Promise<void> {}

  close(): void {}

  /** State after the last line that counts. */
  #load(): { state: State; position: Position } {
    for (;;) {
      const position = this.#withFile((file) => readOn(this.#known, file));
      this.#known = position;
      if (position.last?.next !== undefined) {
        this.#follow(position.last.next);
        continue;
      }
      const state = position.last?.state ? structuredClone(position.last.state) : newState();
      if (state.format > FORMAT) throw new HubbubError(`${this.#path} has format ${state.format}: a newer hubbub wrote it`);
      return { state, position };
    }
  }

  /** Appends a line; returns whether it counts. */
  #append({ id, length, endsWithLine }: Position, line: Line): boolean {
    const text = Buffer.from(`${endsWithLine ? "" : "\n"}${JSON.stringify(line)}\n`);
    return this.#withFile((file) => {
      if (idOf(file) !== id) return false;
      for (let written = 0; written < text.length; ) written += writeSync(file, text, written);
      const found = Buffer.alloc(text.length);
      readSync(file, found, 0, text.length, length);
      return found.equals(text);
    });
  }

  /** Leaves no line of before a withdrawal: earlier lines have the secret. */
  async #erase(): Promise<void> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (this.#load().position.lines === 1 || (await this.#replace())) return;
    }
  }

  /** Goes on in a new file with the state alone; returns whether no other process wrote meanwhile. */
  async #replace(): Promise<boolean> {
    const by = randomId();
    const name = `journal-${by}.jsonl`;
    const path = join(this.#directory, name);
    const { state, position } = this.#load();
    await writeFile(path, `${JSON.stringify({ by, at: 0, state } satisfies Line)}\n`, { mode: MODE, flush: true });
    const isReplaced = this.#append(position, { by: randomId(), at: position.length, next: name });
    if (isReplaced) this.#follow(name);
    else await unlink(path);
    return isReplaced;
  }

  #follow(name: string): void {
    try {
      renameSync(join(this.#directory, name), this.#path);
    } catch (problem) {
      if ((problem as NodeJS.ErrnoException).code !== "ENOENT") throw problem; // another process renamed it
    }
  }

  #withFile<T>(use: (file: number) => T): T {
    const file = openSync(this.#path, "a+", MODE);
    try {
      return use(file);
    } finally {
      closeSync(file);
    }
  }
}

function nothing(id: string): Position {
  return { id, lines: 0, length: 0, endsWithLine: true, last: null };
}

/** Reads the lines that were appended to a file since a position, or all of another file. */
function readOn(known: Position, file: number): Position {
  const [id, { size }] = [idOf(file), fstatSync(file)];
  const before = known.id === id && known.length <= size && known.endsWithLine ? known : nothing(id);
  const bytes = Buffer.alloc(size - before.length);
  const length = bytes.length ? readSync(file, bytes, 0, bytes.length, before.length) : 0;
  let { last, lines } = before;
  let start = 0;
  for (let end = bytes.indexOf(NEWLINE); end >= 0 && end < length; end = bytes.indexOf(NEWLINE, start)) {
    const line = parsed(bytes.toString("utf8", start, end));
    const at = before.length + start;
    // after a line that a kill cut off, a line break belongs to the next one
    if (line && (line.at === at || line.at === at - 1) && last?.next === undefined) last = line;
    start = end + 1;
    lines++;
  }
  return { id, lines, length: before.length + length, endsWithLine: start === length, last };
}

function randomId(): string {
  return toHex(crypto.getRandomValues(new Uint8Array(ID_BYTES)));
}

function idOf(file: number): string {
  const start = Buffer.alloc(64);
  const length = readSync(file, start, 0, start.length, 0);
  return /^\{"by":"([0-9a-f]+)"/.exec(start.toString("latin1", 0, length))?.[1] ?? "";
}

function parsed(text: string): Line | null {
  try {
    return JSON.parse(text) as Line;
  } catch {
    return null;
  }
}
