/** Streams derived from a client's secret (docs/reference/format.md, "Streams derived from the secret"). */

import { concatBytes, framed, type RandomBytes, toBigInt, toHex } from "./bytes.ts";
import { shake256 } from "./hashes.ts";

export const SECRET_BYTES = 32;

const text = new TextEncoder();

export class Secret {
  readonly #key: Uint8Array;

  constructor(key: Uint8Array) {
    this.#key = key;
  }

  static generate(random: RandomBytes): Secret {
    return new Secret(random(SECRET_BYTES));
  }

  /** First bytes of SHAKE-256 over the domain, the secret and the fields. */
  stream(length: number, domain: string, ...fields: Uint8Array[]): Uint8Array {
    return length ? shake256(concatBytes(...[text.encode(domain), this.#key, ...fields].map(framed)), length) : new Uint8Array(0);
  }

  /** Tag of a machine, hex: a reader who knows an id can test it, and others learn nothing. */
  machineTag(id: string): string {
    return id && toHex(this.stream(16, "hubbub/machine/v1", text.encode(id)));
  }

  cohort(numCohorts: number): number {
    return this.stream(1, "hubbub/cohort/v1")[0]! % numCohorts;
  }

  metricCohort(name: string, numCohorts: number): number {
    return Number(toBigInt(this.stream(8, "hubbub/discovery-cohort/v1", text.encode(name))) % BigInt(numCohorts));
  }

  threshold(name: string, cohort: number, numCohorts: number): number {
    const word = Number(toBigInt(this.stream(5, "hubbub/threshold/v1", text.encode(name))));
    return (cohort * 2 ** 40 + word + 1) / (numCohorts * 2 ** 40);
  }
}
