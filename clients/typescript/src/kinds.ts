/** Kinds of values, one class for each: which values a metric accepts, and the true bits of one of them (docs/reference/format.md, "Values"). */

import { concatBytes, fromBigInt, toBigInt, utf8 } from "./bytes.ts";
import { Discovery } from "./discovery.ts";
import { check, InvalidValueError } from "./errors.ts";
import { sha256 } from "./hashes.ts";
import { type Mechanism, readMechanism } from "./mechanism.ts";
import { murmur3Positions } from "./murmur3.ts";

export type Fields = Readonly<Record<string, unknown>>;
export type PartValue = string | boolean | number | null | readonly string[] | ReadonlySet<string>;
/** Value that an app records: null is "no value"; of a joint metric an object of its parts, or an array in their order. */
export type Value = PartValue | readonly PartValue[] | { readonly [part: string]: PartValue };

/** True bits of a value, before any noise. digest : 16 bytes of SHA-256 for each string, zeros without a value */
export interface TrueBits {
  readonly bits: bigint;
  readonly digest: Uint8Array;
}

/** Bits of one mechanism in a report. name : of the part of a joint metric, else "" */
export interface Block {
  readonly name: string;
  readonly numBits: number;
  readonly firstBit: number;
  readonly mechanism: Mechanism;
  readonly possibleOnes: readonly number[];
}

/** Number of a period with several recordings: one of them, or all of them together. */
export type Several = "one" | "sum" | "max" | "last";

const MAX_BITS = 1024;
const MAX_COHORTS = 256;
const DIGEST_BYTES = 16;
const NO_DIGEST = new Uint8Array(0);
const STRING_WITHOUT_VALUE = new Uint8Array(DIGEST_BYTES);
const LARGEST = Number.MAX_VALUE;

export abstract class Kind {
  abstract readonly word: string;
  abstract readonly blocks: readonly Block[];
  abstract readonly numCohorts: number;
  /** Number of values with different true bits, "no value" included. */
  abstract readonly distinctValues: number;
  abstract readonly canonical: Fields;
  /** Whether the cohort is drawn for this metric alone. */
  readonly hasOwnCohort: boolean = false;
  readonly hasThreshold: boolean = false;
  /** Whether the kind may be a part of a joint metric. */
  readonly isPart: boolean = false;
  /** Whether the bits depend on the client's cohort, also as those of a part. */
  readonly hasCohorts: boolean = false;
  /** Whether the metric may have a group. */
  readonly takesGroup: boolean = true;
  readonly several: Several = "one";
  /** Whether a bit is one if it is one for any recording of the period. */
  readonly addsUp: boolean = false;

  /** Raises InvalidValueError, whose message never has the value. */
  abstract trueBits(value: Value, cohort: number, threshold: number): TrueBits;

  /** A recorded value as a number of `several`; null without a value. */
  number(_value: Value): number | null {
    return null;
  }

  /** Bytes that tell recorded values apart: the ledger counts them, and the permanent response is a function of them. */
  key(value: TrueBits): Uint8Array {
    return concatBytes(fromBigInt(value.bits, this.rowBytes), value.digest);
  }

  /** Value of the bytes that begin with a key. */
  fromKey(bytes: Uint8Array): TrueBits {
    return { bits: toBigInt(bytes.subarray(0, this.rowBytes)), digest: bytes.slice(this.rowBytes, this.keyBytes) };
  }

  get keyBytes(): number {
    return this.key(this.trueBits(null, 0, 0)).length;
  }

  get numBits(): number {
    return this.blocks.reduce((sum, block) => sum + block.numBits, 0);
  }

  get rowBytes(): number {
    return Math.ceil(this.numBits / 8);
  }
}

function integer(fields: Fields, name: string, low: number, high: number): number {
  const given = fields[name];
  check(typeof given === "number" && Number.isInteger(given) && given >= low && given <= high, name, given);
  return given;
}

/** Sizes and mechanism of the fields of one block. */
interface Sizes {
  readonly block: Block;
  readonly numHashes: number;
  readonly numCohorts: number;
  readonly hashScheme: string;
  readonly canonical: Fields;
}

function readSizes(fields: Fields): Sizes {
  const numBits = integer(fields, "num_bits", 1, MAX_BITS);
  const numHashes = integer(fields, "num_hashes", 1, MAX_BITS);
  const numCohorts = integer(fields, "num_cohorts", 1, MAX_COHORTS);
  const hashScheme = String(fields["hash_scheme"]);
  const mechanism = readMechanism(fields, numBits);
  const possibleOnes = mechanism.hasNoValueBit ? [1] : [0, numHashes];
  return {
    block: { name: "", numBits, firstBit: 0, mechanism, possibleOnes },
    numHashes,
    numCohorts,
    hashScheme,
    canonical: {
      categories: [],
      other: null,
      kind: fields["kind"],
      num_bits: numBits,
      num_hashes: numHashes,
      num_cohorts: numCohorts,
      hash_scheme: hashScheme,
      ...mechanism.canonical,
    },
  };
}

function requireScheme(sizes: Sizes, scheme: string, numBits: number, numCohorts = 1, numBlanks = 0): void {
  const { block, numHashes, hashScheme } = sizes;
  check(hashScheme === scheme, "hash_scheme", hashScheme);
  check(block.mechanism.numBlanks === numBlanks, "mechanism", sizes.canonical["mechanism"]);
  check(block.numBits === numBits, "num_bits", block.numBits);
  check(numHashes === 1, "num_hashes", numHashes);
  check(sizes.numCohorts === numCohorts, "num_cohorts", sizes.numCohorts);
}

function requirePowerOfTwo(numCohorts: number): void {
  check((numCohorts & (numCohorts - 1)) === 0, "num_cohorts", numCohorts);
}

function names(fields: Fields, field: string, most: number): string[] {
  const given = fields[field];
  const isName = (name: unknown): boolean => typeof name === "string" && name !== "" && utf8(name) !== null;
  check(Array.isArray(given) && given.length >= 2 && given.length <= most && given.every(isName), field, given);
  check(new Set(given).size === given.length, field, given);
  return given as string[];
}

function requireNoItems(fields: Fields): string[] {
  check(isEmpty(fields["items"]), "items", fields["items"]);
  return [];
}

function requireHashes({ block, numHashes, numCohorts, canonical }: Sizes): void {
  check(block.mechanism.numBlanks > 0, "mechanism", canonical["mechanism"]);
  check(block.numBits >= 8, "num_bits", block.numBits);
  check(numHashes === 1, "num_hashes", numHashes);
  requirePowerOfTwo(numCohorts);
}

function wrongType(accepted: string, value: unknown): InvalidValueError {
  const type = value === null ? "null" : Array.isArray(value) ? "an array" : `a value of type ${typeof value}`;
  return new InvalidValueError(`the metric accepts ${accepted} or null, got ${type}`);
}

export class StringKind extends Kind {
  readonly word = "string";
  readonly blocks: readonly Block[];
  readonly numCohorts: number;
  readonly distinctValues = Infinity;
  readonly canonical: Fields;
  override readonly hasOwnCohort: boolean;
  override readonly takesGroup: boolean;
  override readonly isPart: boolean;
  override readonly hasCohorts = true;
  readonly #numHashes: number;
  readonly #discovery: Discovery | null;

  constructor(fields: Fields) {
    super();
    const sizes = readSizes(fields);
    const { numBits } = sizes.block;
    check(numBits >= 8, "num_bits", numBits);
    check(!sizes.block.mechanism.hasNoValueBit && !sizes.block.mechanism.numBlanks, "mechanism", fields["mechanism"]);
    check(sizes.numHashes < numBits, "num_hashes", sizes.numHashes);
    this.#numHashes = sizes.numHashes;
    check(sizes.hashScheme === "murmur3-v1", "hash_scheme", sizes.hashScheme);
    requirePowerOfTwo(sizes.numCohorts);
    this.blocks = [sizes.block];
    this.numCohorts = sizes.numCohorts;
    this.#discovery = fields["discover"] === undefined ? null : new Discovery(fields["discover"], sizes.numCohorts);
    this.hasOwnCohort = this.#discovery !== null;
    this.takesGroup = this.#discovery === null;
    this.isPart = this.#discovery === null;
    this.canonical = { ...sizes.canonical, ...(this.#discovery ? { discover: this.#discovery.canonical } : {}) };
  }

  trueBits(value: Value, cohort: number): TrueBits {
    if (value === null) return { bits: 0n, digest: STRING_WITHOUT_VALUE };
    if (typeof value !== "string") throw wrongType("a string", value);
    const bytes = utf8(value);
    if (!bytes) throw new InvalidValueError("the value cannot be encoded as UTF-8: remove lone surrogates");
    const hashed = this.#discovery ? this.#discovery.fragment(bytes, value, cohort) : bytes;
    let bits = 0n;
    for (const position of murmur3Positions(hashed, cohort, this.blocks[0]!.numBits, this.#numHashes)) bits |= 1n << BigInt(position);
    return { bits, digest: sha256(bytes).slice(0, DIGEST_BYTES) };
  }
}

export class CategoricalKind extends Kind {
  readonly word = "categorical";
  override readonly isPart = true;
  readonly blocks: readonly Block[];
  readonly numCohorts = 1;
  readonly distinctValues: number;
  readonly canonical: Fields;
  readonly #categories: readonly string[];
  readonly #other: string | null;
  readonly #noValue: bigint;

  constructor(fields: Fields) {
    super();
    const sizes = readSizes(fields);
    this.#categories = names(fields, "categories", MAX_BITS);
    const other = fields["other"] ?? null;
    check(other === null || this.#categories.includes(other as string), "other", other);
    this.#other = other as string | null;
    const { hasNoValueBit } = sizes.block.mechanism;
    requireScheme(sizes, "one-hot", this.#categories.length + Number(hasNoValueBit));
    this.blocks = [sizes.block];
    this.#noValue = hasNoValueBit ? 1n << BigInt(this.#categories.length) : 0n;
    this.distinctValues = this.#categories.length + 1;
    this.canonical = { ...sizes.canonical, categories: this.#categories, other };
  }

  trueBits(value: Value): TrueBits {
    if (value === null) return { bits: this.#noValue, digest: NO_DIGEST };
    if (typeof value !== "string") throw wrongType("a string", value);
    const known = this.#categories.includes(value) ? value : this.#other;
    if (known === null) throw new InvalidValueError(`the value is none of the ${this.#categories.length} categories`);
    return { bits: 1n << BigInt(this.#categories.indexOf(known)), digest: NO_DIGEST };
  }
}

export class BooleanKind extends Kind {
  readonly word = "boolean";
  override readonly isPart = true;
  readonly blocks: readonly Block[];
  readonly numCohorts = 1;
  readonly distinctValues = 2;
  readonly canonical: Fields;

  constructor(fields: Fields) {
    super();
    const sizes = readSizes(fields);
    requireScheme(sizes, "one-hot", 1);
    this.blocks = [sizes.block];
    this.canonical = sizes.canonical;
  }

  trueBits(value: Value): TrueBits {
    if (value !== null && typeof value !== "boolean") throw wrongType("true, false", value);
    return { bits: value ? 1n : 0n, digest: NO_DIGEST };
  }
}

/** Numbers: in buckets of one bit each, or of which the mean alone is estimated, by one bit. */
export class OrdinalKind extends Kind {
  readonly word = "ordinal";
  readonly blocks: readonly Block[];
  readonly numCohorts: number;
  readonly distinctValues: number;
  readonly canonical: Fields;
  override readonly hasThreshold: boolean;
  override readonly several: Several;
  readonly #edges: readonly number[];
  readonly #fallback: number | null;

  constructor(fields: Fields) {
    super();
    const sizes = readSizes(fields);
    const buckets = fields["buckets"] as Fields | undefined;
    check(typeof buckets === "object" && buckets !== null, "buckets", buckets);
    const { estimate = "distribution", several = "one", unit = "", default: fallback = null } = buckets;
    check(estimate === "mean" || estimate === "distribution", "estimate", estimate);
    check(["one", "sum", "max", "last"].includes(several as string), "several", several);
    check(typeof unit === "string", "unit", unit);
    this.#edges = finite("edges", buckets["edges"]);
    this.several = several as Several;
    this.#fallback = fallback === null ? null : finite("default", [fallback])[0]!;
    const representatives = finite("representatives", buckets["representatives"] ?? []);
    this.hasThreshold = estimate === "mean";
    const numBuckets = this.#edges.length - 1;
    check(this.#edges.every((edge, index) => index === 0 || this.#edges[index - 1]! < edge), "edges", this.#edges);
    if (this.hasThreshold) {
      check(numBuckets === 1 && Number.isFinite(this.#edges[1]! - this.#edges[0]!), "edges", this.#edges);
      check(this.#fallback !== null, "default", fallback);
      check(representatives.length === 0, "representatives", representatives);
      requireScheme(sizes, "threshold-v1", 1, sizes.numCohorts);
      requirePowerOfTwo(sizes.numCohorts);
      this.distinctValues = 2;
    } else {
      check(numBuckets >= 2, "edges", this.#edges);
      this.#checkRepresentatives(representatives);
      const { hasNoValueBit } = sizes.block.mechanism;
      requireScheme(sizes, "one-hot", numBuckets + Number(hasNoValueBit && this.#fallback === null));
      this.distinctValues = numBuckets + Number(this.#fallback === null);
    }
    this.blocks = [sizes.block];
    this.numCohorts = sizes.numCohorts;
    const described = { default: this.#fallback === null ? null : doubleHex(this.#fallback), edges: this.#edges.map(doubleHex), several, unit };
    this.canonical = { ...sizes.canonical, buckets: this.hasThreshold ? { ...described, estimate } : described };
  }

  #checkRepresentatives(representatives: readonly number[]): void {
    const fits = representatives.every((each, index) => this.#edges[index]! <= each && each <= this.#edges[index + 1]!);
    check(representatives.length === 0 || (representatives.length === this.#edges.length - 1 && fits), "representatives", representatives);
  }

  override number(value: Value): number | null {
    if (value === null) return null;
    if (typeof value !== "number" || !Number.isFinite(value)) throw wrongType("a finite number", value);
    return value + 0;
  }

  trueBits(value: Value, _cohort: number, threshold: number): TrueBits {
    const number = this.number(value) ?? this.#fallback;
    const numBits = this.blocks[0]!.numBits;
    if (number === null) return { bits: numBits > this.#edges.length - 1 ? 1n << BigInt(numBits - 1) : 0n, digest: NO_DIGEST };
    if (this.hasThreshold) {
      const [low, high] = this.#edges as [number, number];
      const fraction = Math.min(Math.max((number - low) / (high - low), 0), 1);
      return { bits: fraction >= threshold ? 1n : 0n, digest: NO_DIGEST };
    }
    const bucket = this.#edges.slice(1, -1).filter((edge) => edge <= number).length;
    return { bits: 1n << BigInt(bucket), digest: NO_DIGEST };
  }
}

/** Number of a period after one more recording. */
export function combined(several: Several, earlier: number | null, number: number): number {
  if (earlier === null || several === "last") return number;
  if (several === "max") return Math.max(earlier, number);
  return Math.min(Math.max(earlier + number, -LARGEST), LARGEST);
}

function finite(name: string, given: unknown): number[] {
  check(Array.isArray(given) && given.every((each) => typeof each === "number" && Number.isFinite(each)), name, given);
  return given.map((each: number) => each + 0); // a negative zero is zero
}

function doubleHex(number: number): string {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, number);
  return view.getBigUint64(0).toString(16).padStart(16, "0");
}

export class SetKind extends Kind {
  readonly word = "set";
  readonly blocks: readonly Block[];
  readonly numCohorts: number;
  readonly distinctValues: number;
  readonly canonical: Fields;
  /** Without blanks, a client is asked about the item of its cohort; with them, each item has a bit. */
  override readonly hasOwnCohort: boolean;
  override readonly addsUp = true;
  override readonly takesGroup: boolean;
  /** Whether the definition names no items: a set is any strings, and an item is the bit of its hash. */
  readonly #isHashed: boolean;
  readonly #bitOf: ReadonlyMap<string, number>;

  constructor(fields: Fields) {
    super();
    const sizes = readSizes(fields);
    const { numBlanks } = sizes.block.mechanism;
    this.#isHashed = sizes.hashScheme === "set-hash-v1";
    const items = this.#isHashed ? requireNoItems(fields) : names(fields, "items", numBlanks ? MAX_BITS - numBlanks : MAX_COHORTS);
    check(!items.some((item) => item.includes(",")), "items", items);
    if (this.#isHashed) requireHashes(sizes);
    else if (numBlanks) requireScheme(sizes, "set-row-v1", items.length + numBlanks, 1, numBlanks);
    else requireScheme(sizes, "set-v1", 1, items.length);
    this.hasOwnCohort = numBlanks === 0;
    this.takesGroup = numBlanks > 0;
    this.distinctValues = this.#isHashed ? Infinity : numBlanks ? 2 ** items.length : 2;
    this.#bitOf = new Map(items.map((item, bit) => [item, bit]));
    this.blocks = [sizes.block];
    this.numCohorts = sizes.numCohorts;
    this.canonical = { ...sizes.canonical, items };
  }

  trueBits(value: Value, cohort: number): TrueBits {
    if (value === null) return { bits: 0n, digest: NO_DIGEST };
    if (!(value instanceof Set) && !Array.isArray(value)) throw wrongType("an array or Set of strings", value);
    const bits = new Set<number>();
    for (const item of value as Iterable<string>) {
      bits.add(this.#isHashed ? this.#hash(item, cohort) : this.#bit(item));
    }
    const bloom = this.hasOwnCohort ? BigInt(bits.has(cohort)) : [...bits].reduce((row, bit) => row | (1n << BigInt(bit)), 0n);
    return { bits: bloom, digest: NO_DIGEST };
  }

  #bit(item: string): number {
    const bit = this.#bitOf.get(item);
    if (bit === undefined) throw new InvalidValueError(`the set has something that is none of the ${this.#bitOf.size} items`);
    return bit;
  }

  #hash(item: string, cohort: number): number {
    const bytes = typeof item === "string" ? utf8(item) : null;
    if (!bytes) throw new InvalidValueError("the set has something that is not a string, or cannot be encoded as UTF-8");
    const { numBits, mechanism } = this.blocks[0]!;
    return murmur3Positions(bytes, cohort, numBits - mechanism.numBlanks, 1)[0]!;
  }
}

export class JointKind extends Kind {
  readonly word = "joint";
  readonly blocks: readonly Block[];
  readonly numCohorts: number;
  readonly distinctValues: number;
  readonly canonical: Fields;
  override readonly takesGroup = false;
  readonly #parts = new Map<string, Kind>();

  constructor(fields: Fields) {
    super();
    const given = fields["parts"];
    check(Array.isArray(given) && given.length >= 2 && given.length <= 3, "parts", given);
    const blocks: Block[] = [];
    let firstBit = 0;
    for (const part of given as Fields[]) {
      const name = part["name"];
      requireName(name);
      check(!this.#parts.has(name), "name", name);
      const kind = readKind(part);
      check(kind.isPart, "kind", kind.word);
      this.#parts.set(name, kind);
      blocks.push({ ...kind.blocks[0]!, name, firstBit });
      firstBit += kind.numBits;
    }
    this.blocks = blocks;
    const kinds = [...this.#parts.values()];
    const cohorts = new Set(kinds.filter((kind) => kind.hasCohorts).map((kind) => kind.numCohorts));
    check(cohorts.size <= 1, "num_cohorts", [...cohorts]);
    check(new Set(blocks.map((block) => block.mechanism.hasPermanentNoise)).size === 1, "prob_f", "0 in some parts only");
    check(firstBit <= MAX_BITS, "num_bits", firstBit);
    this.numCohorts = [...cohorts][0] ?? 1;
    this.distinctValues = kinds.reduce((product, kind) => product * kind.distinctValues, 1);
    this.canonical = {
      kind: "joint",
      parts: [...this.#parts].map(([name, kind]) => ({ ...kind.canonical, name })),
    };
  }

  trueBits(value: Value, cohort: number, threshold: number): TrueBits {
    const values = this.#valuesOf(value);
    let bits = 0n;
    const digests: Uint8Array[] = [];
    [...this.#parts.values()].forEach((kind, index) => {
      const part = kind.trueBits(values[index] ?? null, cohort, threshold);
      bits |= part.bits << BigInt(this.blocks[index]!.firstBit);
      digests.push(part.digest);
    });
    return { bits, digest: concatBytes(...digests) };
  }

  #valuesOf(value: Value): readonly PartValue[] {
    if (value === null) return [];
    if (Array.isArray(value)) {
      if (value.length !== this.#parts.size) throw new InvalidValueError(`the array must have ${this.#parts.size} values, got ${value.length}`);
      return value as readonly PartValue[];
    }
    if (typeof value !== "object" || value instanceof Set) throw wrongType("an object of its parts", value);
    if (Object.keys(value).some((key) => !this.#parts.has(key))) {
      throw new InvalidValueError(`the object has keys that are no parts: use ${[...this.#parts.keys()].join(", ")} only`);
    }
    return [...this.#parts.keys()].map((name) => (Object.hasOwn(value, name) ? ((value as Record<string, PartValue>)[name] ?? null) : null));
  }
}

/** Raises HubbubError unless a text is the name of a metric. */
export function requireName(name: unknown): asserts name is string {
  check(typeof name === "string" && /^[a-z][a-z0-9_.-]{0,63}$/.test(name), "name", name);
}

/** Class of each kind, and the fields that are empty for every other kind. */
const KINDS: Readonly<Record<string, { readonly kind: new (fields: Fields) => Kind; readonly own: readonly string[] }>> = {
  string: { kind: StringKind, own: ["discover"] },
  categorical: { kind: CategoricalKind, own: ["categories", "other"] },
  boolean: { kind: BooleanKind, own: [] },
  ordinal: { kind: OrdinalKind, own: ["buckets"] },
  set: { kind: SetKind, own: ["items"] },
  joint: { kind: JointKind, own: ["parts"] },
};

function isEmpty(field: unknown): boolean {
  return field === undefined || field === null || (Array.isArray(field) && field.length === 0);
}

export function readKind(fields: Fields): Kind {
  const word = fields["kind"];
  const found = typeof word === "string" && Object.hasOwn(KINDS, word) ? KINDS[word] : undefined;
  check(found !== undefined, "kind", word);
  for (const other of Object.values(KINDS)) {
    for (const field of other.own) check(other === found || isEmpty(fields[field]), field, fields[field]);
  }
  return new found.kind(fields);
}
