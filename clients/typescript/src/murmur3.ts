/** Hash scheme `murmur3-v1`: h distinct bits of k, every subset equally likely (docs/reference/format.md, "Hashing"). */

const C1 = 0x87c37b91114253d5n;
const C2 = 0x4cf5ad432745937fn;

const word = (value: bigint): bigint => BigInt.asUintN(64, value);
const rotated = (value: bigint, by: bigint): bigint => word((value << by) | (value >> (64n - by)));
const finished = (value: bigint): bigint => {
  value = word((value ^ (value >> 33n)) * 0xff51afd7ed558ccdn);
  value = word((value ^ (value >> 33n)) * 0xc4ceb9fe1a85ec53n);
  return value ^ (value >> 33n);
};

/** MurmurHash3 x64 128-bit with seed 0, as two words. Source: Appleby 2011, MurmurHash3.cpp. */
export function murmur3(bytes: Uint8Array): [bigint, bigint] {
  const padded = new DataView(new ArrayBuffer(Math.ceil(bytes.length / 16) * 16));
  new Uint8Array(padded.buffer).set(bytes);
  const blocks = bytes.length >> 4;
  let [first, second] = [0n, 0n];
  for (let block = 0; 16 * block < padded.byteLength; block++) {
    const one = padded.getBigUint64(16 * block, true);
    const two = padded.getBigUint64(16 * block + 8, true);
    first ^= word(rotated(word(one * C1), 31n) * C2);
    if (block < blocks) first = word((word(rotated(first, 27n) + second)) * 5n + 0x52dce729n);
    second ^= word(rotated(word(two * C2), 33n) * C1);
    if (block < blocks) second = word((word(rotated(second, 31n) + first)) * 5n + 0x38495ab5n);
  }
  first ^= BigInt(bytes.length);
  second ^= BigInt(bytes.length);
  first = word(first + second);
  second = word(second + first);
  first = finished(first);
  second = finished(second);
  first = word(first + second);
  return [first, word(second + first)];
}

/** Finalizer of splitmix64 (Steele, Lea, Flood 2014). */
function mix(value: bigint): bigint {
  value = word((value ^ (value >> 30n)) * 0xbf58476d1ce4e5b9n);
  value = word((value ^ (value >> 27n)) * 0x94d049bb133111ebn);
  return value ^ (value >> 31n);
}

/** Position of each hash of a value in a cohort. */
export function murmur3Positions(value: Uint8Array, cohort: number, numBits: number, numHashes: number): number[] {
  const [first, second] = murmur3(value);
  const base = mix(first ^ mix(BigInt(cohort))) + second;
  const taken: number[] = [];
  for (let hash = 0; hash < numHashes; hash++) {
    const drawn = mix(word(base + BigInt(hash))) >> 32n;
    let position = Number((drawn * BigInt(numBits - hash)) >> 32n);
    for (const lower of [...taken].sort((a, b) => a - b)) if (lower <= position) position++;
    taken.push(position);
  }
  return taken;
}
