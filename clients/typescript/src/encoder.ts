/** Encoder of one client's values of one metric: true bits, permanent response, instantaneous response. */

import { fromBigInt, fromHex, type RandomBytes } from "./bytes.ts";
import type { TrueBits, Value } from "./kinds.ts";
import type { Metric } from "./metric.ts";
import type { Secret } from "./secret.ts";

/** A report: its cohort and its row of ceil(k / 8) bytes. */
export interface Report {
  readonly cohort: number;
  readonly bits: Uint8Array;
}

export class Encoder {
  readonly cohort: number;
  readonly #threshold: number;
  readonly #digest: Uint8Array;
  readonly #secret: Secret;
  readonly #random: RandomBytes;

  constructor(readonly metric: Metric, secret: Secret, random: RandomBytes) {
    this.#secret = secret;
    this.#random = random;
    const { name, kind } = metric;
    this.cohort = kind.hasOwnCohort ? secret.metricCohort(name, kind.numCohorts) : secret.cohort(kind.numCohorts);
    this.#threshold = kind.hasThreshold ? secret.threshold(name, this.cohort, kind.numCohorts) : 0;
    this.#digest = fromHex(metric.digest);
  }

  /** Never send or store true bits. */
  trueBits(value: Value): TrueBits {
    return this.metric.kind.trueBits(value, this.cohort, this.#threshold);
  }

  /** response : number of the permanent response of a metric with `hold`, else null */
  encode(value: TrueBits, response: number | null): Report {
    const number = response === null ? new Uint8Array(0) : fromBigInt(BigInt(response), 8);
    const [key, text] = [this.metric.kind.key(value), new TextEncoder()];
    let bits = 0n;
    for (const { name, numBits, firstBit, mechanism } of this.metric.kind.blocks) {
      const stream = this.#secret.stream(mechanism.permanentBytes, "hubbub/prr/v2", this.#digest, text.encode(name), number, key);
      const mine = (value.bits >> BigInt(firstBit)) & ((1n << BigInt(numBits)) - 1n);
      const permanent = mechanism.permanentResponse(mine, stream);
      bits |= mechanism.instantaneousResponse(permanent, this.#random) << BigInt(firstBit);
    }
    return { cohort: this.cohort, bits: fromBigInt(bits, this.metric.kind.rowBytes) };
  }
}

