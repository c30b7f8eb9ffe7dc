/** Numbers and text as bytes: little-endian, UTF-8. */

export { bytesToHex as toHex, concatBytes, hexToBytes as fromHex } from "@noble/hashes/utils.js";
import { bytesToHex, hexToBytes } from "@noble/hashes/utils.js";

/** Source of `length` random bytes: the cryptographic generator of the platform, or a script of a test. */
export type RandomBytes = (length: number) => Uint8Array;

const encoder = new TextEncoder();

/** UTF-8 of a text; null for a text with a lone surrogate, which has none. */
export function utf8(text: string): Uint8Array | null {
  return /\p{Surrogate}/u.test(text) ? null : encoder.encode(text);
}

export function toBigInt(bytes: Uint8Array): bigint {
  return bytes.length ? BigInt(`0x${bytesToHex(bytes.slice().reverse())}`) : 0n;
}

export function fromBigInt(value: bigint, length: number): Uint8Array {
  return hexToBytes(BigInt.asUintN(8 * length, value).toString(16).padStart(2 * length, "0")).reverse();
}

export function toBase64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

/** A field of a stream: its length in 8 bytes, and then its bytes. */
export function framed(field: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(8 + field.length);
  bytes.set(fromBigInt(BigInt(field.length), 8));
  bytes.set(field, 8);
  return bytes;
}
