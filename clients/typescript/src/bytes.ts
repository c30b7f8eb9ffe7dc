/** Numbers and text as bytes: little-endian, UTF-8. */

/** Source of `length` random bytes: the cryptographic generator of the platform, or a script of a test. */
export type RandomBytes = (length: number) => Uint8Array;

const encoder = new TextEncoder();

/** UTF-8 of a text; null for a text with a lone surrogate, which has none. */
export function utf8(text: string): Uint8Array | null {
  return /\p{Surrogate}/u.test(text) ? null : encoder.encode(text);
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

export function toHex(bytes: Uint8Array): string {
  let hex = "";
  for (const byte of bytes) hex += HEX[byte];
  return hex;
}

/** Throws SyntaxError for a text that is no hex. */
export function fromHex(hex: string): Uint8Array {
  if (!/^([0-9a-f]{2})*$/i.test(hex)) throw new SyntaxError("hex has two digits for each byte");
  const bytes = new Uint8Array(hex.length / 2);
  for (let at = 0; at < bytes.length; at++) bytes[at] = parseInt(hex.slice(2 * at, 2 * at + 2), 16);
  return bytes;
}

export function concatBytes(...parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let start = 0;
  for (const part of parts) {
    bytes.set(part, start);
    start += part.length;
  }
  return bytes;
}

export function toBigInt(bytes: Uint8Array): bigint {
  return bytes.length ? BigInt(`0x${toHex(bytes.slice().reverse())}`) : 0n;
}

export function fromBigInt(value: bigint, length: number): Uint8Array {
  return fromHex(BigInt.asUintN(8 * length, value).toString(16).padStart(2 * length, "0")).reverse();
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
