/**
 * Randomized responses of a block of bits, and their privacy loss.
 *
 *     true bits B -> permanent bits B' (from the secret's stream) -> bits of a report S (from the platform's generator)
 *
 * Sources: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), sec. 2; docs/reference/format.md, "Bits and words", "Subset selection";
 * docs/explanation/privacy.md, equations (P.1) to (P.3).
 */

import { type RandomBytes, toBigInt } from "./bytes.ts";
import { HubbubError } from "./errors.ts";

type Fields = Readonly<Record<string, unknown>>;
type Words = () => bigint;

export interface Mechanism {
  /** Whether "no value" has a bit of its own, the last one. */
  readonly hasNoValueBit: boolean;
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
  if (typeof probability !== "number" || !(probability >= 0 && probability <= 1)) {
    throw new HubbubError(`${name} must be a probability in [0, 1], got ${String(probability)}`);
  }
  const scaled = probability * 2 ** digits;
  let rounded = Math.floor(scaled);
  const rest = scaled - rounded;
  if (rest > 0.5 || (rest === 0.5 && rounded % 2 === 1)) rounded++;
  if (probability > 0 && probability < 1 && (rounded === 0 || rounded === 2 ** digits)) {
    throw new HubbubError(`${name} must be 0, 1 or at least 2**-${digits} from both, got ${probability}`);
  }
  return rounded;
}

/** Mask of bits that are one with probability a / 2**digits. */
class Mask {
  /** Largest number of words that a draw takes. */
  readonly maxWords: number;

  constructor(
    private readonly a: number,
    private readonly digits: number,
    private readonly all: bigint,
  ) {
    const lowestOne = 31 - Math.clz32(a & -a);
    this.maxWords = a === 0 || a === 2 ** digits ? 0 : digits - lowestOne;
  }

  draw(words: Words): bigint {
    if (this.a === 2 ** this.digits) return this.all;
    let [mask, open] = [0n, this.all];
    for (let word = 1; word <= this.maxWords && open !== 0n; word++) {
      const same = open & words();
      if ((this.a >> (this.digits - word)) & 1) {
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
  readonly hasPermanentNoise: boolean;
  readonly canonical: Readonly<Record<string, number>>;
  readonly permanentBytes: number;
  private readonly width: number;
  private readonly chances: { p: number; q: number; b: number; a: number };
  private readonly ofZero: Mask;
  private readonly ofOne: Mask;
  private readonly permanent: readonly [Mask] | readonly [Mask, Mask];

  constructor(
    fields: Fields,
    private readonly numBits: number,
  ) {
    const all = (1n << BigInt(numBits)) - 1n;
    const mask = (a: number, digits = DIGITS): Mask => new Mask(a, digits, all);
    this.width = Math.ceil(numBits / 8);
    const p = numerator("prob_p", fields["prob_p"]);
    const q = numerator("prob_q", fields["prob_q"]);
    if (p >= q) throw new HubbubError(`prob_p must be below prob_q, got ${p / 2 ** DIGITS} and ${q / 2 ** DIGITS}`);
    const [b, a] = permanentNumerators(fields);
    this.hasPermanentNoise = !(b === 0 && a === 2 ** DIGITS);
    if (this.hasPermanentNoise && (b === 0 || a === 2 ** DIGITS)) {
      throw new HubbubError("permanent_p must be above 0 and permanent_q below 1: the reports of a value would have no common epsilon");
    }
    const isSymmetric = a + b === 2 ** DIGITS;
    if (numBits === 1 && !isSymmetric) {
      throw new HubbubError("permanent_p and permanent_q of one bit must add up to 1: use prob_f");
    }
    this.canonical = { p, q, ...(isSymmetric ? { f: b } : { permanent_p: b, permanent_q: a }) };
    this.permanent = isSymmetric ? [mask(b, DIGITS - 1)] : [mask(b), mask(a)];
    this.permanentBytes = this.width * (this.permanent[0].maxWords + (this.permanent[1]?.maxWords ?? 1));
    this.ofZero = mask(p);
    this.ofOne = mask(q);
    const scale = 2 ** DIGITS;
    this.chances = { p: p / scale, q: q / scale, b: b / scale, a: a / scale };
  }

  permanentResponse(trueBits: bigint, stream: Uint8Array): bigint {
    const words = wordsOf(stream, this.width);
    const [first, second] = this.permanent;
    const mask = first.draw(words);
    if (second) return (mask & ~trueBits) | (second.draw(words) & trueBits);
    return mask ? (trueBits & ~mask) | (words() & mask) : trueBits;
  }

  instantaneousResponse(permanent: bigint, random: RandomBytes): bigint {
    const most = this.ofZero.maxWords + this.ofOne.maxWords;
    const block = Math.min(most, MAX_WORDS_PER_BLOCK);
    let [words, left]: [Words, number] = [() => 0n, 0];
    const next: Words = () => {
      if (left === 0) [words, left] = [wordsOf(random(block * this.width), this.width), block];
      left--;
      return words();
    };
    const ones = this.ofZero.draw(next);
    return (ones & ~permanent) | (this.ofOne.draw(next) & permanent);
  }

  /** The largest i T1 + j T0 of two values with i bits only in the first and j only in the second. */
  epsilon(possibleOnes: readonly number[], reports: number): number {
    const { p, q, b, a } = this.chances;
    const logRho = reports * Math.log(p / q);
    const logSigma = reports * Math.log((1 - q) / (1 - p));
    const one = logMixture(a, logRho) - logMixture(b, logRho);
    const zero = logMixture(1 - b, logSigma) - logMixture(1 - a, logSigma);
    const [high, low] = [Math.max(one, zero), Math.min(one, zero)];
    const loss = (count: number, each: number): number => (count ? count * each : 0);
    let most = 0;
    for (const first of possibleOnes) {
      for (const second of possibleOnes) {
        const both = Math.max(0, first + second - this.numBits);
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
    if (f === 1) throw new HubbubError("prob_f must be below 1, got 1: nothing could be decoded");
    const half = numerator("prob_f", f, DIGITS - 1);
    return [half, 2 ** DIGITS - half];
  }
  if (f !== undefined) throw new HubbubError("a definition has either prob_f, or permanent_p and permanent_q: remove one");
  const [b, a] = [numerator("permanent_p", p), numerator("permanent_q", q)];
  if (b >= a) throw new HubbubError("permanent_p must be below permanent_q: exchange them");
  return [b, a];
}

const POSITIONS = 128;

/** Subset selection: w of d bits are one. */
export class SubsetSelection implements Mechanism {
  readonly hasNoValueBit = true;
  readonly hasPermanentNoise: boolean;
  readonly canonical: Readonly<Record<string, number | string>>;
  readonly permanentBytes: number;
  private readonly numOnes: number;
  private readonly included: number;
  private readonly kept: number;
  private readonly mask: number;

  constructor(
    fields: Fields,
    private readonly numValues: number,
  ) {
    const ones = fields["num_ones"];
    if (!Number.isInteger(numValues) || numValues < 2 || numValues > 1024) {
      throw new HubbubError(`num_bits must be 2 to 1024 with subset selection, got ${numValues}`);
    }
    if (typeof ones !== "number" || !Number.isInteger(ones) || ones < 1 || 2 * ones > numValues) {
      throw new HubbubError(`num_ones must be a whole number from 1 to half of the ${numValues} bits, got ${String(ones)}`);
    }
    this.numOnes = ones;
    this.included = numerator("prob_q", fields["prob_q"]);
    this.kept = numerator("permanent_q", fields["permanent_q"] ?? 1);
    if (this.included <= (2 ** DIGITS * ones) / numValues || this.included === 2 ** DIGITS) {
      throw new HubbubError(`prob_q must be above num_ones / num_values = ${ones / numValues} and below 1`);
    }
    if (this.kept <= 2 ** DIGITS / numValues) {
      throw new HubbubError(`permanent_q must be above 1 / num_values = ${1 / numValues}`);
    }
    this.hasPermanentNoise = this.kept < 2 ** DIGITS;
    this.canonical = { mechanism: "subset", w: ones, q: this.included, permanent_q: this.kept };
    this.permanentBytes = this.hasPermanentNoise ? 3 + 2 * POSITIONS : 0;
    this.mask = 2 ** (32 - Math.clz32(numValues - 2)) - 1;
  }

  permanentResponse(trueBits: bigint, stream: Uint8Array): bigint {
    if (!this.hasPermanentNoise || number(stream, 0, 3) < this.kept) return trueBits;
    let position = 0;
    for (let start = 3; start < this.permanentBytes; start += 2) {
      position = number(stream, start, 2) & this.mask;
      if (position < this.numValues - 1) break;
    }
    return otherBit(position % (this.numValues - 1), trueBits);
  }

  instantaneousResponse(permanent: bigint, random: RandomBytes): bigint {
    const hasIt = number(random(3), 0, 3) < this.included;
    let [row, left] = hasIt ? [permanent, this.numOnes - 1] : [0n, this.numOnes];
    while (left) {
      const block = random(2 * left);
      for (let start = 0; start < block.length; start += 2) {
        const position = number(block, start, 2) & this.mask;
        const bit = otherBit(position, permanent);
        if (position < this.numValues - 1 && !(row & bit)) {
          row |= bit;
          left--;
        }
      }
    }
    return row;
  }

  /** eps(t) of docs/explanation/privacy.md, equation (P.3). */
  epsilon(_possibleOnes: readonly number[], reports: number): number {
    const [d, w, q, a] = [this.numValues, this.numOnes, this.included / 2 ** DIGITS, this.kept / 2 ** DIGITS];
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

function number(bytes: Uint8Array, start: number, length: number): number {
  return Number(toBigInt(bytes.subarray(start, start + length)));
}

/** The bit at a position among all bits but one. */
function otherBit(position: number, but: bigint): bigint {
  const bit = 1n << BigInt(position);
  return bit >= but ? bit << 1n : bit;
}
