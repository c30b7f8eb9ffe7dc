/** What a client keeps of a value: a tag that tells values apart, and bytes that only its secret opens. */

import { concatBytes, fromHex, type RandomBytes, toHex } from "./bytes.ts";
import type { Secret } from "./secret.ts";

const TAG_BYTES = 16;

export class Sealer {
  readonly #secret: Secret;
  readonly #digest: Uint8Array;
  readonly #random: RandomBytes;

  /** digest : of the metric */
  constructor(secret: Secret, digest: Uint8Array, random: RandomBytes) {
    this.#secret = secret;
    this.#digest = digest;
    this.#random = random;
  }

  /** Hex that is equal for equal keys, and says nothing else of them. */
  tag(key: Uint8Array): string {
    return toHex(this.#secret.stream(TAG_BYTES, "hubbub/tag/v2", this.#digest, key));
  }

  seal(bytes: Uint8Array): string {
    const nonce = this.#random(TAG_BYTES);
    return toHex(concatBytes(nonce, this.#padded(bytes, nonce)));
  }

  open(sealed: string): Uint8Array {
    const bytes = fromHex(sealed);
    return this.#padded(bytes.subarray(TAG_BYTES), bytes.subarray(0, TAG_BYTES));
  }

  #padded(bytes: Uint8Array, nonce: Uint8Array): Uint8Array {
    const pad = this.#secret.stream(bytes.length, "hubbub/seal/v2", this.#digest, nonce);
    return bytes.map((byte, index) => byte ^ pad[index]!);
  }
}
