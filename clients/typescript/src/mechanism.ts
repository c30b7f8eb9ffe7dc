/**
 * Randomized responses of a block of bits, and their privacy loss.
 *
 *     true bits B -> permanent bits B' (from the secret's stream) -> bits of a report S (from the platform's generator)
 *
 * Sources: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), sec. 2; docs/reference/format.md, "Bits and words", "Subset selection", "PrivSet";
 * docs/explanation/privacy.md, equations (P.1) to (P.3).
 */

import { type RandomBytes, toBigInt } from "./bytes.ts";
import { check } from "./errors.ts";

type Fields = Readonly<Record<string, unknown>>;
type Words = () => bigint;

export interface Mechanism {
  /** Whether "no value" has a bit of its own, the last one. */
  readonly hasNoValueBit: boolean;
  /** Number of the last bits that belong to no value: only sets have them. */
  readonly numBlanks: number;
  readonly hasPermanentNoise: boolean;
  /** Fields of the metric's digest. */
  readonly canonical: Readonly<Record<string, number | string>>;
  /** Number of bytes of the secret's stream that a permanent response takes. */
  readonly permanentBytes: number;
  permanentResponse(trueBits: bigint, stream: Uint8Array): bigint;
  instantaneousResponse(permanent: bigint, random: RandomBytes): bigint;
  /**
   * Privacy loss of t reports of one unchanging value; t may be infinite.
   * `possibleOnes` : numbers of true bits that a value may have.
   */
  epsilon(possibleOnes: readonly number[], reports: number): number;
}

const DIGITS = 24;
const MAX_WORDS_PER_BLOCK = 16;

/** Numerator a of the nearest a / 2**digits, ties to even. */
function numerator(name: string, probability: unknown, digits = DIGITS): number {
  check(typeof probability === "number" && probability >= 0 && probability <= 1, name, probability);
  const scaled = probability * 2 ** digits;
  let rounded = Math.floor(scaled);
  const rest = scaled - rounded;
  if (rest > 0.5 || (rest === 0.5 && rounded % 2 === 1)) rounded++;
  const isCertain = rounded === 0 || rounded === 2 ** digits;
  check(!isCertain || probability === 0 || probability === 1, name, probability);
  return rounded;
}

/** Mask of bits that are one with probability a / 2**digits. */
class Mask {
  /** Largest number of words that a draw takes. */
  readonly maxWords: number;
  readonly #a: number;
  readonly #digits: number;
  readonly #all: bigint;

  constructor(a: number, digits: number, all: bigint) {
    this.#a = a;
    this.#digits = digits;
    this.#all = all;
    const lowestOne = 31 - Math.clz32(a & -a);
    this.maxWords = a === 0 || a === 2 ** digits ? 0 : digits - lowestOne;
  }

  draw(words: Words): bigint {
    if (this.#a === 2 ** this.#digits) return this.#all;
    let [mask, open] = [0n, this.#all];
    for (let word = 1; word <= this.maxWords && open !== 0n; word++) {
      const same = open & words();
      if ((this.#a >> (this.#digits - word)) & 1) {
        mask |= open ^ same;
        open = same;
      } else {
        open ^= same;
      }
    }
    return mask;
  }
}

/** Reader of the words of a block, `width` bytes each. */
function wordsOf(block: Uint8Array, width: number): Words {
  let start = 0;
  return () => toBigInt(block.subarray(start, (start += width)));
}

/** Randomized response of each bit, independent of all others. */
export class UnaryResponse implements Mechanism {
  readonly hasNoValueBit = false;
  readonly numBlanks = 0;
  readonly hasPermanentNoise: boolean;
  readonly canonical: Readonly<Record<string, number>>;
  readonly permanentBytes: number;
  readonly #width: number;
  readonly #chances: { p: number; q: number; b: number; a: number };
  readonly #ofZero: Mask;
  readonly #ofOne: Mask;
  readonly #permanent: readonly [Mask] | readonly [Mask, Mask];
  readonly #numBits: number;

  constructor(fields: Fields, numBits: number) {
    this.#numBits = numBits;
    const all = (1n << BigInt(numBits)) - 1n;
    const mask = (a: number, digits = DIGITS): Mask => new Mask(a, digits, all);
    this.#width = Math.ceil(numBits / 8);
    const p = numerator("prob_p", fields["prob_p"]);
    const q = numerator("prob_q", fields["prob_q"]);
    check(p < q, "prob_q", fields["prob_q"]);
    const [b, a] = permanentNumerators(fields);
    this.hasPermanentNoise = !(b === 0 && a === 2 ** DIGITS);
    check(!this.hasPermanentNoise || (b > 0 && a < 2 ** DIGITS), "permanent_p", fields["permanent_p"]); // else a value has no bound
    const isSymmetric = a + b === 2 ** DIGITS;
    check(numBits > 1 || isSymmetric, "permanent_q", fields["permanent_q"]);
    this.canonical = { p, q, ...(isSymmetric ? { f: b } : { permanent_p: b, permanent_q: a }) };
    this.#permanent = isSymmetric ? [mask(b, DIGITS - 1)] : [mask(b), mask(a)];
    this.permanentBytes = this.#width * (this.#permanent[0].maxWords + (this.#permanent[1]?.maxWords ?? 1));
    this.#ofZero = mask(p);
    this.#ofOne = mask(q);
    const scale = 2 ** DIGITS;
    this.#chances = { p: p / scale, q: q / scale, b: b / scale, a: a / scale };
  }

  permanentResponse(trueBits: bigint, stream: Uint8Array): bigint {
    const words = wordsOf(stream, this.#width);
    const [first, second] = this.#permanent;
    const mask = first.draw(words);
    if (second) return (mask & ~trueBits) | (second.draw(words) & trueBits);
    return mask ? (trueBits & ~mask) | (words() & mask) : trueBits;
  }

  instantaneousResponse(permanent: bigint, random: RandomBytes): bigint {
    const most = this.#ofZero.maxWords + this.#ofOne.maxWords;
    const block = Math.min(most, MAX_WORDS_PER_BLOCK);
    let [words, left]: [Words, number] = [() => 0n, 0];
    const next: Words = () => {
      if (left === 0) [words, left] = [wordsOf(random(block * this.#width), this.#width), block];
      left--;
      return words();
    };
    const ones = this.#ofZero.draw(next);
    return (ones & ~permanent) | (this.#ofOne.draw(next) & permanent);
  }

  /** The largest i T1 + j T0 of two values with i bits only in the first and j only in the second. */
  epsilon(possibleOnes: readonly number[], reports: number): number {
    const { p, q, b, a } = this.#chances;
    const logRho = reports * Math.log(p / q);
    const logSigma = reports * Math.log((1 - q) / (1 - p));
    const one = logMixture(a, logRho) - logMixture(b, logRho);
    const zero = logMixture(1 - b, logSigma) - logMixture(1 - a, logSigma);
    const [high, low] = [Math.max(one, zero), Math.min(one, zero)];
    const loss = (count: number, each: number): number => (count ? count * each : 0);
    let most = 0;
    for (const first of possibleOnes) {
      for (const second of possibleOnes) {
        const both = Math.max(0, first + second - this.#numBits);
        most = Math.max(most, loss(first - both, high) + loss(second - both, low));
      }
    }
    return most;
  }
}

/** ln(w + (1 - w) r) from ln r <= 0. */
function logMixture(weight: number, logR: number): number {
  if (weight === 0) return logR;
  if (weight >= 0.5) return Math.log1p((1 - weight) * Math.expm1(logR));
  const [first, second] = [Math.log(weight), Math.log1p(-weight) + logR];
  return Math.max(first, second) + Math.log1p(Math.exp(-Math.abs(first - second)));
}

/** Numerators of permanent_p and permanent_q. */
function permanentNumerators(fields: Fields): [number, number] {
  const { prob_f: f, permanent_p: p, permanent_q: q } = fields;
  if (f !== undefined && p === undefined && q === undefined) {
    check(f !== 1, "prob_f", f);
    const half = numerator("prob_f", f, DIGITS - 1);
    return [half, 2 ** DIGITS - half];
  }
  check(f === undefined, "prob_f", f);
  const [b, a] = [numerator("permanent_p", p), numerator("permanent_q", q)];
  check(b < a, "permanent_q", q);
  return [b, a];
}

const POSITIONS = 128;

/** Subset selection: w of d bits are one. */
export class SubsetSelection implements Mechanism {
  readonly hasNoValueBit = true;
  readonly numBlanks = 0;
  readonly hasPermanentNoise: boolean;
  readonly canonical: Readonly<Record<string, number | string>>;
  readonly permanentBytes: number;
  readonly #numOnes: number;
  readonly #included: number;
  readonly #kept: number;
  readonly #mask: number;
  readonly #numValues: number;

  constructor(fields: Fields, numValues: number) {
    this.#numValues = numValues;
    const ones = fields["num_ones"];
    check(typeof ones === "number" && Number.isInteger(ones) && ones >= 1 && 2 * ones <= numValues, "num_ones", ones);
    this.#numOnes = ones;
    this.#included = numerator("prob_q", fields["prob_q"]);
    this.#kept = numerator("permanent_q", fields["permanent_q"] ?? 1);
    check(this.#included > (2 ** DIGITS * ones) / numValues && this.#included < 2 ** DIGITS, "prob_q", fields["prob_q"]);
    check(this.#kept > 2 ** DIGITS / numValues, "permanent_q", fields["permanent_q"]);
    this.hasPermanentNoise = this.#kept < 2 ** DIGITS;
    this.canonical = { mechanism: "subset", w: ones, q: this.#included, permanent_q: this.#kept };
    this.permanentBytes = this.hasPermanentNoise ? 3 + 2 * POSITIONS : 0;
    this.#mask = 2 ** (32 - Math.clz32(numValues - 2)) - 1;
  }

  permanentResponse(trueBits: bigint, stream: Uint8Array): bigint {
    if (!this.hasPermanentNoise || number(stream, 0, 3) < this.#kept) return trueBits;
    let position = 0;
    for (let start = 3; start < this.permanentBytes; start += 2) {
      position = number(stream, start, 2) & this.#mask;
      if (position < this.#numValues - 1) break;
    }
    return otherBit(position % (this.#numValues - 1), trueBits);
  }

  instantaneousResponse(permanent: bigint, random: RandomBytes): bigint {
    const hasIt = number(random(3), 0, 3) < this.#included;
    let [row, left] = hasIt ? [permanent, this.#numOnes - 1] : [0n, this.#numOnes];
    while (left) {
      const block = random(2 * left);
      for (let start = 0; start < block.length; start += 2) {
        const position = number(block, start, 2) & this.#mask;
        const bit = otherBit(position, permanent);
        if (position < this.#numValues - 1 && !(row & bit)) {
          row |= bit;
          left--;
        }
      }
    }
    return row;
  }

  /** eps(t) of docs/explanation/privacy.md, equation (P.3). */
  epsilon(_possibleOnes: readonly number[], reports: number): number {
    const [d, w, q, a] = [this.#numValues, this.#numOnes, this.#included / 2 ** DIGITS, this.#kept / 2 ** DIGITS];
    const b = (1 - a) / (d - 1);
    if (reports === Infinity) return Math.log(a / b);
    const odds = (q * (d - w)) / ((1 - q) * w);
    if (!b) return reports * Math.log(odds);
    const ratio = (ofOther: number): number => {
      const mine = odds ** (ofOther - reports);
      const rest = (w - 1) * reports - ofOther;
      const shared = d > 2 ? Math.floor(rest / (d - 2)) : 0;
      const more = d > 2 ? rest - shared * (d - 2) : 0;
      const z = 1 + mine + (more ? more * odds ** (shared + 1 - reports) : 0) + (d - 2 - more) * odds ** (shared - reports);
      return (b * z + a - b) / (b * z + (a - b) * mine);
    };
    let [low, high] = [0, Math.floor(((w - 1) * reports) / (d - 1))];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ratio(middle + 1) > ratio(middle)) low = middle + 1;
      else high = middle;
    }
    return Math.log(ratio(low));
  }
}

const ORDER_BYTES = 8;

/** Rows of w ones that touch a true set of exactly m bits with a stated probability. */
export class PrivSet implements Mechanism {
  readonly hasNoValueBit = false;
  readonly numBlanks: number;
  readonly hasPermanentNoise = false;
  readonly canonical: Readonly<Record<string, number | string>>;
  readonly permanentBytes: number;
  readonly #numOnes: number;
  readonly #hit: number;
  readonly #numBits: number;
  /** Numbers of rows that do not touch a true set, and that have 1 to j bits of it. */
  readonly #missing: bigint;
  readonly #sums: readonly bigint[];

  constructor(fields: Fields, numBits: number) {
    this.#numBits = numBits;
    const { max_items: most, num_ones: ones } = fields;
    check(typeof most === "number" && Number.isInteger(most) && most >= 1 && 2 * most <= numBits, "max_items", most);
    check(typeof ones === "number" && Number.isInteger(ones) && ones >= 1 && 2 * ones <= numBits, "num_ones", ones);
    this.numBlanks = most;
    this.#numOnes = ones;
    this.#hit = numerator("prob_hit", fields["prob_hit"]);
    this.#missing = choose(numBits - most, ones);
    const sums: bigint[] = [];
    for (let j = 1; j <= Math.min(most, ones); j++) sums.push((sums.at(-1) ?? 0n) + choose(most, j) * choose(numBits - most, ones - j));
    this.#sums = sums;
    const touching = sums.at(-1)!;
    check(BigInt(this.#hit) * (touching + this.#missing) > touching << BigInt(DIGITS) && this.#hit < 2 ** DIGITS, "prob_hit", fields["prob_hit"]);
    this.canonical = { mechanism: "privset", max_items: most, w: ones, hit: this.#hit };
    this.permanentBytes = ORDER_BYTES * numBits;
  }

  /** The true set: own items and the blanks with the smallest words of the stream, or the m items with the smallest words. */
  permanentResponse(trueBits: bigint, stream: Uint8Array): bigint {
    const [most, numItems] = [this.numBlanks, this.#numBits - this.numBlanks];
    const word = (bit: number): bigint => toBigInt(stream.subarray(ORDER_BYTES * bit, ORDER_BYTES * (bit + 1)));
    const smallest = (bits: readonly number[], length: number): bigint =>
      bits
        .map((bit) => [word(bit), bit] as const)
        .sort(([first, bit], [second, other]) => (first < second ? -1 : first > second ? 1 : bit - other))
        .slice(0, length)
        .reduce((row, [, bit]) => row | (1n << BigInt(bit)), 0n);
    const own = positions(trueBits & ((1n << BigInt(numItems)) - 1n));
    if (own.length > most) return smallest(own, most);
    const blanks = Array.from({ length: most }, (_, index) => numItems + index);
    return smallest(own, most) | smallest(blanks, most - own.length);
  }

  instantaneousResponse(permanent: bigint, random: RandomBytes): bigint {
    let inside = 0;
    if (number(random(3), 0, 3) < this.#hit) {
      const drawn = below(this.#sums.at(-1)!, random);
      inside = 1 + this.#sums.findIndex((sum) => drawn < sum);
    }
    const own = positions(permanent);
    if (own.length !== this.numBlanks) throw new RangeError(`a true set has ${this.numBlanks} bits, got ${own.length}`);
    const others = positions(~permanent & ((1n << BigInt(this.#numBits)) - 1n));
    return drawBits(own, inside, random) | drawBits(others, this.#numOnes - inside, random);
  }

  epsilon(_possibleOnes: readonly number[], reports: number): number {
    const hit = this.#hit / 2 ** DIGITS;
    return reports * (Math.log(hit / (1 - hit)) + Math.log(Number(this.#missing) / Number(this.#sums.at(-1)!)));
  }
}

/** Binomial coefficient. */
function choose(n: number, k: number): bigint {
  let product = 1n;
  for (let i = 1; i <= k; i++) product = (product * BigInt(n - k + i)) / BigInt(i);
  return product;
}

/** Random integer below a limit. */
function below(limit: bigint, random: RandomBytes): bigint {
  const bits = (limit - 1n).toString(2).length * Number(limit > 1n);
  for (;;) {
    const drawn = toBigInt(random(Math.ceil(bits / 8))) & ((1n << BigInt(bits)) - 1n);
    if (drawn < limit) return drawn;
  }
}

/** So many of some bits, each choice with the same probability. */
function drawBits(bits: readonly number[], count: number, random: RandomBytes): bigint {
  const mask = 2 ** (32 - Math.clz32(bits.length - 1)) - 1; // no bit of a word if there is one position
  let [row, left] = [0n, count];
  while (left) {
    const block = random(2 * left);
    for (let start = 0; start < block.length; start += 2) {
      const place = number(block, start, 2) & mask;
      if (place >= bits.length) continue;
      const bit = 1n << BigInt(bits[place]!);
      if (!(row & bit)) {
        row |= bit;
        left--;
      }
    }
  }
  return row;
}

function positions(bits: bigint): number[] {
  const found: number[] = [];
  for (let position = 0; bits >> BigInt(position); position++) if ((bits >> BigInt(position)) & 1n) found.push(position);
  return found;
}

/** Mechanism of each word of a definition. */
const MECHANISMS: Readonly<Record<string, new (fields: Fields, numBits: number) => Mechanism>> = {
  unary: UnaryResponse,
  subset: SubsetSelection,
  privset: PrivSet,
};

/** Mechanism of a block of bits. */
export function readMechanism(fields: Fields, numBits: number): Mechanism {
  const { mechanism: word = "unary" } = fields;
  const mechanism = typeof word === "string" && Object.hasOwn(MECHANISMS, word) ? MECHANISMS[word] : undefined;
  check(mechanism !== undefined, "mechanism", word);
  return new mechanism(fields, numBits);
}

function number(bytes: Uint8Array, start: number, length: number): number {
  return Number(toBigInt(bytes.subarray(start, start + length)));
}

/** The bit at a position among all bits but one. */
function otherBit(position: number, but: bigint): bigint {
  const bit = 1n << BigInt(position);
  return bit >= but ? bit << 1n : bit;
}
