/**
 * State in a file, for Node and Electron's main process: one JSON line for each change, appended.
 *
 * Processes need no lock. A line says at which length of the file its change was computed (`at`), and counts only if it stands there. So of
 * two processes that append after the same line, the later one's line is void, and it computes its change again. A line that a kill cut off
 * is void, too. A file that has grown is followed by a new one: a last line, which counts by the same rule, has its name.
 */

import { closeSync, fstatSync, mkdirSync, openSync, readFileSync, readSync, renameSync, statfsSync, writeSync } from "node:fs";
import { open, readdir, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { toHex } from "./bytes.ts";
import { HubbubError } from "./errors.ts";
import { FORMAT, newerFormatError, newState, type State, type Storage } from "./state.ts";

/** by : random, so that no two lines are equal; state : after the change; next : name of the file that goes on */
interface Line {
  by: string;
  at: number;
  state?: State;
  next?: string;
}

/**
 * What was read of a file: the state of the last line that counts, and up to where. id : of the file, the `by` of its first line;
 * next : file that goes on; size : of the last line
 */
interface Position {
  id: string;
  lines: number;
  length: number;
  size: number;
  endsWithLine: boolean;
  state: State | null;
  next: string | null;
}

const NEWLINE = 10;
const LONGEST = 1 << 18;
const ATTEMPTS = 1000;
const MACHINE_ID_FILE = "/etc/machine-id";
const MODE = 0o600;
const ID_BYTES = 8;
/** Files that replace the journal, or were to. */
const NEXT = /^journal-[0-9a-f]{16}\.jsonl$/;

export class FileStorage implements Storage {
  readonly #path: string;
  #known: Position = nothing("");
  #replacing: Promise<boolean> | undefined;
  #erasing: Promise<void> | undefined;
  #limit = { id: "", length: LONGEST };
  #cleaning: Promise<void> | undefined;
  readonly #machineId: string | undefined;
  readonly #directory: string;

  /**
   * directory : of this client alone; it is created. machineId : to tell a copy on another machine; default: that of systemd.
   * Raises HubbubError if the directory cannot be created.
   */
  constructor(directory: string, machineId?: string) {
    this.#machineId = machineId;
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
    await (this.#cleaning ??= this.#clean().catch(() => undefined)); // a folder that cannot be listed can be written to
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      await this.#replacing;
      const { state, position } = this.#load();
      const [result, write] = change(state);
      if (write && !this.#append(position, { by: randomId(), at: position.length, state })) continue;
      if (state.consent === "off" && (write || position.lines > 1)) {
        await (this.#erasing ??= this.#erase().finally(() => (this.#erasing = undefined)));
      } else if (position.length > Math.max(this.#longest(position.id), 4 * position.size)) this.#replaceLater();
      return result;
    }
    throw new HubbubError(`${this.#path} is written too often by other processes`);
  }

  async sync(): Promise<void> {
    const file = await open(this.#path, "r");
    await file.datasync().finally(() => file.close());
  }

  async isPersistent(): Promise<boolean> {
    return true;
  }

  async persist(): Promise<void> {}

  machineId(): string {
    try {
      return this.#machineId ?? readFileSync(MACHINE_ID_FILE, "latin1").trim();
    } catch {
      return ""; // macOS, Windows, most containers
    }
  }

  close(): void {}

  /** Length at which a file is replaced: half of what was free when it began, because the next one needs room beside it. */
  #longest(id: string): number {
    if (this.#limit.id !== id) this.#limit = { id, length: Math.min(LONGEST, freeBytes(this.#directory) / 2) };
    return this.#limit.length;
  }

  /** State after the last line that counts. */
  #load(): { state: State; position: Position } {
    for (;;) {
      const position = this.#withFile((file) => readOn(this.#known, file));
      this.#known = position;
      if (position.next !== null && (this.#follow(position.next) || this.#withFile(idOf) !== position.id)) continue;
      // a `next` that is missing, because somebody copied or deleted files, is void: the state before it goes on
      const state = position.state ? structuredClone(position.state) : newState();
      if (state.format > FORMAT) throw newerFormatError(this.#path, state);
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

  /** Deletes files that a kill left while they replaced the journal, because they have the secret. A process that uses one goes on without it. */
  async #clean(): Promise<void> {
    this.#load(); // follows a file that goes on
    await this.#delete(await this.#left());
  }

  /** Leaves nothing of before a withdrawal: earlier lines, and files that a kill left, have the secret. */
  async #erase(): Promise<void> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      await this.#replacing;
      const left = await this.#left(); // no line can name them after the replacement
      if (await this.#replace()) return this.#delete(left);
    }
  }

  async #left(): Promise<string[]> {
    return (await readdir(this.#directory)).filter((name) => NEXT.test(name));
  }

  async #delete(names: readonly string[]): Promise<void> {
    for (const name of names) await unlink(join(this.#directory, name)).catch(() => undefined);
  }

  #replaceLater(): void {
    this.#replacing ??= this.#replace()
      .catch(() => false) // a full disk: lines may still have room
      .finally(() => (this.#replacing = undefined));
  }

  /** Goes on in a new file with the state alone; returns whether no other process wrote meanwhile. */
  async #replace(): Promise<boolean> {
    const by = randomId();
    const name = `journal-${by}.jsonl`;
    const path = join(this.#directory, name);
    const { state, position } = this.#load();
    try {
      await writeFile(path, `${JSON.stringify({ by, at: 0, state } satisfies Line)}\n`, { mode: MODE, flush: true });
      if (!this.#append(position, { by: randomId(), at: position.length, next: name })) throw new HubbubError("another process wrote");
    } catch (problem) {
      await unlink(path).catch(() => undefined);
      if (problem instanceof HubbubError) return false;
      throw problem;
    }
    this.#follow(name);
    const directory = await open(this.#directory, "r");
    await directory
      .sync()
      .catch(() => undefined) // Windows syncs no directory
      .finally(() => directory.close());
    return true;
  }

  /** Puts the file that goes on in the journal's place; returns whether it was there. */
  #follow(name: string): boolean {
    if (!NEXT.test(name)) return false;
    try {
      renameSync(join(this.#directory, name), this.#path);
      return true;
    } catch (problem) {
      if ((problem as NodeJS.ErrnoException).code === "ENOENT") return false; // another process renamed it
      throw problem;
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
  return { id, lines: 0, length: 0, size: 0, endsWithLine: true, state: null, next: null };
}

/** Reads the lines that were appended to a file since a position, or all of another file. */
function readOn(known: Position, file: number): Position {
  const [id, { size: end }] = [idOf(file), fstatSync(file)];
  const isSame = known.id === id && known.length <= end && known.endsWithLine;
  const position = isSame ? { ...known } : nothing(id);
  const first = position.length;
  const bytes = Buffer.alloc(end - first);
  const length = bytes.length ? readSync(file, bytes, 0, bytes.length, first) : 0;
  let start = 0;
  while (start < length) {
    const found = bytes.indexOf(NEWLINE, start);
    const stop = found < 0 || found >= length ? length : found; // the last line may lack its end
    const line = parsed(bytes.toString("utf8", start, stop));
    const at = first + start;
    // after a line that a kill cut off, a line break belongs to the next one
    if (line && (line.at === at || line.at === at - 1)) {
      position.next = line.next ?? null;
      position.state = line.state ?? position.state;
      position.size = stop - start;
    }
    position.endsWithLine = stop < length;
    position.lines++;
    start = stop + 1;
  }
  position.length = first + length;
  return position;
}

function freeBytes(directory: string): number {
  try {
    const { bavail, bsize } = statfsSync(directory);
    return bavail * bsize;
  } catch {
    return Infinity; // a file system that does not say
  }
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
