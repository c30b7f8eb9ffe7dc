/**
 * Hash functions of the format that a browser has not, or only with a wait: SHAKE-256 (FIPS 202) and SHA-256 (FIPS 180-4).
 * They are written for a small bundle; a test compares them with those of OpenSSL.
 */

const RATE = 136; // bytes of a block of SHAKE-256
const ROUNDS = 24;

/** Positions of the lanes in the order of the step pi, the rotations of rho, and the constants of iota (FIPS 202, 3.2.2, 3.2.3 and 3.2.5). */
const [LANES, ROTATIONS, CONSTANTS] = keccakTables();

function keccakTables(): [number[], number[], Int32Array] {
  const [lanes, rotations, constants]: [number[], number[], Int32Array] = [[], [], new Int32Array(2 * ROUNDS)];
  let [x, y, register] = [1, 0, 1];
  for (let round = 0; round < ROUNDS; round++) {
    [x, y] = [y, (2 * x + 3 * y) % 5];
    lanes.push(x + 5 * y);
    rotations.push((((round + 1) * (round + 2)) / 2) % 64);
    for (let power = 0; power < 7; power++) {
      const bit = 2 ** power - 1;
      if (register & 1) constants[2 * round + Number(bit > 31)]! ^= 1 << bit;
      register = (register << 1) ^ ((register >> 7) * 0x171);
    }
  }
  return [lanes, rotations, constants];
}

/** Keccak-f[1600] of 25 lanes, each as its lower and its upper 32 bits. */
function permute(state: Int32Array): void {
  const sums = new Int32Array(10);
  for (let round = 0; round < ROUNDS; round++) {
    for (let at = 0; at < 10; at++) sums[at] = state[at]! ^ state[at + 10]! ^ state[at + 20]! ^ state[at + 30]! ^ state[at + 40]!;
    for (let column = 0; column < 10; column += 2) {
      const before = (column + 8) % 10;
      const low = sums[(column + 2) % 10]!;
      const high = sums[(column + 3) % 10]!;
      const first = sums[before]! ^ ((low << 1) | (high >>> 31));
      const second = sums[before + 1]! ^ ((high << 1) | (low >>> 31));
      for (let at = column; at < 50; at += 10) {
        state[at]! ^= first;
        state[at + 1]! ^= second;
      }
    }
    let low = state[2]!;
    let high = state[3]!;
    for (let step = 0; step < ROUNDS; step++) {
      const at = 2 * LANES[step]!;
      const by = ROTATIONS[step]!;
      const one = by < 32 ? low : high;
      const other = by < 32 ? high : low;
      low = state[at]!;
      high = state[at + 1]!;
      state[at] = (one << by) | (other >>> (32 - by)); // shifts count modulo 32
      state[at + 1] = (other << by) | (one >>> (32 - by));
    }
    for (let row = 0; row < 50; row += 10) {
      for (let at = 0; at < 10; at++) sums[at] = state[row + at]!;
      for (let at = 0; at < 10; at++) state[row + at]! ^= ~sums[(at + 2) % 10]! & sums[(at + 4) % 10]!;
    }
    state[0]! ^= CONSTANTS[2 * round]!;
    state[1]! ^= CONSTANTS[2 * round + 1]!;
  }
}

/** First bytes of SHAKE-256. */
export function shake256(message: Uint8Array, length: number): Uint8Array {
  const padded = new Uint8Array(Math.ceil((message.length + 1) / RATE) * RATE);
  padded.set(message);
  padded[message.length] = 0x1f;
  padded[padded.length - 1]! |= 0x80;
  const [given, state] = [new DataView(padded.buffer), new Int32Array(50)];
  for (let start = 0; start < padded.length; start += RATE) {
    for (let at = 0; at < RATE / 4; at++) state[at]! ^= given.getInt32(start + 4 * at, true);
    permute(state);
  }
  const made = new DataView(new ArrayBuffer(Math.ceil(length / RATE) * RATE));
  for (let start = 0; start < length; start += RATE) {
    if (start) permute(state);
    for (let at = 0; at < RATE / 4; at++) made.setInt32(start + 4 * at, state[at]!, true);
  }
  return new Uint8Array(made.buffer, 0, length);
}

/** Blocks of 64 bytes: the message, a one, zeros, and its number of bits. */
function blocksOf(message: Uint8Array): DataView {
  const padded = new Uint8Array(Math.ceil((message.length + 9) / 64) * 64);
  padded.set(message);
  padded[message.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, 8n * BigInt(message.length));
  return view;
}

function bytesOf(words: Int32Array): Uint8Array {
  const view = new DataView(new ArrayBuffer(4 * words.length));
  words.forEach((word, at) => view.setInt32(4 * at, word));
  return new Uint8Array(view.buffer);
}

const rotated = (word: number, by: number): number => (word << by) | (word >>> (32 - by));

/** First 32 bits after the point. */
const fraction = (value: number): number => ((value % 1) * 2 ** 32) | 0;

const PRIMES = Array.from({ length: 310 }, (_, at) => at + 2).filter((n, _, all) => all.every((m) => m * m > n || n % m));
const CUBE_ROOTS = PRIMES.map((prime) => fraction(Math.cbrt(prime)));
const SQUARE_ROOTS = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));

export function sha256(message: Uint8Array): Uint8Array {
  const [blocks, state, words] = [blocksOf(message), Int32Array.from(SQUARE_ROOTS), new Int32Array(64)];
  for (let start = 0; start < blocks.byteLength; start += 64) {
    let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
    for (let at = 0; at < 64; at++) {
      const [x, y] = [words[at - 15]!, words[at - 2]!];
      words[at] =
        at < 16
          ? blocks.getInt32(start + 4 * at)
          : words[at - 16]! + (rotated(x, 25) ^ rotated(x, 14) ^ (x >>> 3)) + words[at - 7]! + (rotated(y, 15) ^ rotated(y, 13) ^ (y >>> 10));
      const one = (h + (rotated(e, 26) ^ rotated(e, 21) ^ rotated(e, 7)) + ((e & f) ^ (~e & g)) + CUBE_ROOTS[at]! + words[at]!) | 0;
      const two = (rotated(a, 30) ^ rotated(a, 19) ^ rotated(a, 10)) + ((a & b) ^ (a & c) ^ (b & c));
      [a, b, c, d, e, f, g, h] = [(one + two) | 0, a, b, c, (d + one) | 0, e, f, g];
    }
    [a, b, c, d, e, f, g, h].forEach((word, at) => (state[at]! += word));
  }
  return bytesOf(state);
}
