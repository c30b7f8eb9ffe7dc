/** Groups of cohorts that report fragments, so that unlisted strings can be found (docs/reference/format.md, "Discovery"). */

import { concatBytes, utf8 } from "./bytes.ts";
import { check } from "./errors.ts";

const END = Uint8Array.of(0xff);
const NUM_BYTES = 243;
const MAX_EXTENSIONS = 4_000_000;
const MAX_STEP = 8;
const MIN_GROUP_COHORTS = 8;
const FIELDS = ["longest", "step", "first", "alphabet", "held_out"];

export class Discovery {
  readonly canonical: Readonly<Record<string, unknown>>;
  readonly #lengths: readonly number[];
  readonly #prefixCohorts: number;
  readonly #hasAlphabet: boolean;

  constructor(table: unknown, numCohorts: number) {
    check(typeof table === "object" && table !== null && Object.keys(table).every((name) => FIELDS.includes(name)), "discover", table);
    const fields = table as Record<string, unknown>;
    const whole = (name: string, high: number, given: unknown): number => {
      check(typeof given === "number" && Number.isInteger(given) && given >= 1 && given <= high, name, given);
      return given;
    };
    const longest = whole("longest", 256, fields["longest"]);
    const step = whole("step", MAX_STEP, fields["step"] ?? 2);
    const alphabet = fields["alphabet"] ?? null;
    const heldOut = fields["held_out"] ?? 0.1;
    check(typeof heldOut === "number" && heldOut > 0 && heldOut < 1, "held_out", heldOut);
    const first = fields["first"];
    const shortest = first == null ? Math.min(step, longest + 1) : whole("first", Math.min(MAX_STEP, longest + 1), first);
    this.#hasAlphabet = alphabet !== null;
    const numSymbols = this.#hasAlphabet ? symbolsOf(alphabet).length : NUM_BYTES;
    check(numSymbols ** Math.max(shortest, step) <= MAX_EXTENSIONS, "step", step);
    const lengths = [];
    for (let length = shortest; length <= longest; length += step) lengths.push(length);
    this.#lengths = [...lengths, longest + 1];
    const numHeldOut = Math.max(1, roundHalfEven(heldOut * numCohorts));
    this.#prefixCohorts = numCohorts - numHeldOut;
    const sizes = new Map<number, number>();
    for (let cohort = 0; cohort < numCohorts; cohort++) sizes.set(this.#group(cohort), (sizes.get(this.#group(cohort)) ?? 0) + 1);
    check(sizes.size > this.#lengths.length && Math.min(...sizes.values()) >= MIN_GROUP_COHORTS, "num_cohorts", numCohorts);
    this.canonical = { alphabet, first: shortest, held_out: numHeldOut, longest, step };
  }

  #group(cohort: number): number {
    const groups = this.#lengths.length;
    return cohort < this.#prefixCohorts ? Math.floor((cohort * groups) / this.#prefixCohorts) : groups;
  }

  /** The bytes that a client of a cohort reports in place of a value. */
  fragment(value: Uint8Array, text: string, cohort: number): Uint8Array {
    const length = this.#lengths[this.#group(cohort)];
    if (length === undefined) return value;
    if (!this.#hasAlphabet) return ended(value.subarray(0, length), value.length < length);
    const symbols: string[] = [];
    for (const symbol of text) if (symbols.push(symbol) >= length) break;
    return ended(utf8(symbols.join(""))!, symbols.length < length);
  }
}

/** Symbols with the end marker, if the value has no more of them. */
function ended(symbols: Uint8Array, isWhole: boolean): Uint8Array {
  return isWhole ? concatBytes(symbols, END) : symbols;
}

function symbolsOf(alphabet: unknown): string[] {
  const symbols = typeof alphabet === "string" && utf8(alphabet) !== null ? Array.from(alphabet) : [];
  check(symbols.length >= 2 && new Set(symbols).size === symbols.length, "alphabet", alphabet);
  return symbols;
}

function roundHalfEven(number: number): number {
  const low = Math.floor(number);
  const rest = number - low;
  return rest > 0.5 || (rest === 0.5 && low % 2 === 1) ? low + 1 : low;
}
