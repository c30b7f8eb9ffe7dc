"""Generate encoder_vectors.json. Run this only for a new format: a new hash scheme or domain.

python tests/data/make_encoder_vectors.py > tests/data/encoder_vectors.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hubbub import Encoder, Metric, Params, Secret, UnaryResponse
from hubbub.encoding.bloom import bloom_bits
from hubbub.encoding.responses import PermanentResponse
from hubbub.metrics.kinds import Value
from hubbub.testing import SeededBytes

METRICS: list[Metric] = [
    Metric.string("homepage", Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)),
    Metric.string("odd", Params(num_bits=13, num_hashes=3, num_cohorts=256, prob_p=0.39, prob_q=0.61, prob_f=0.45)),
    Metric.string("wide", Params(num_bits=32, num_hashes=2, num_cohorts=8, prob_p=0.5, prob_q=0.75, prob_f=0.25)),
    Metric.string(
        "held", Params(num_bits=16, num_hashes=1, num_cohorts=1, prob_p=0.1, prob_q=0.9, prob_f=0.125), hold=7
    ),
    Metric.categorical(
        "os", ("linux", "macos", "windows", "other"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), other="other"
    ),
    Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)),
    Metric.string(
        "sparse",
        Params(num_bits=64, num_hashes=1, num_cohorts=32, prob_p=0.2, prob_q=0.8, permanent_p=0.1, permanent_q=0.5),
    ),
    Metric.categorical(
        "browser", ("a", "b", "c"), UnaryResponse(prob_p=0.1, prob_q=0.9, permanent_p=0.3, permanent_q=0.875), hold=7
    ),
]
VALUES: dict[str, list[Value]] = {
    "homepage": ["https://example.org/", "", "日本語", None],
    "odd": ["https://example.org/", "v1", None],
    "wide": ["v1", "v2", None],
    "held": ["https://example.org/", None],
    "os": ["macos", "other", None],
    "from_jfk": [True, False],
    "sparse": ["https://example.org/", "v1", None],
    "browser": ["b", None],
}


def vector(metric: Metric, value: Value, number: int) -> dict[str, Any]:
    key = SeededBytes(f"secret {number}")(32)
    random_bytes = SeededBytes(f"coins {number}")(8 * metric.row_bytes * 6)
    secret, epoch, width = Secret(key), (3 if metric.hold else None), metric.row_bytes
    cohort = secret.cohort(metric.num_cohorts)
    bloom = bloom_bits(metric, value, cohort)
    left = bytearray(random_bytes)

    def scripted(num_bytes: int) -> bytes:
        taken = bytes(left[:num_bytes])
        del left[:num_bytes]
        return taken

    return {
        "metric": metric.to_dict(),
        "secret": key.hex(),
        "value": value,
        "epoch": epoch,
        "cohort": cohort,
        "bloom": bloom.to_bytes(width, "little").hex(),
        "prr": PermanentResponse(metric, secret)(bloom, epoch).to_bytes(width, "little").hex(),
        "coins": random_bytes.hex(),
        "irr": Encoder(metric, secret, scripted).encode(value, epoch).to_bytes().hex(),
    }


def main() -> None:
    about = {
        "metric": "the definition, probabilities exact",
        "secret": "the client's 32 bytes, hex",
        "value": "what was recorded; null is nothing",
        "epoch": "of a metric with hold, else null",
        "cohort": "first byte of SHAKE-256 over the framed fields (hubbub/cohort/v1, secret), mod num_cohorts",
        "bloom": "true bits, rows as on the wire, hex",
        "prr": "permanent response: SHAKE-256 over the framed (hubbub/prr/v2, secret, digest, empty name of the part, epoch, key); key: bloom, then for strings the first 16 bytes of SHA-256 of the value",
        "coins": "what the system's generator gave, in order; words are read from it in order",
        "irr": "the report's row, hex",
    }
    vectors = [
        vector(m, v, 1000 * i + j + 17 * s)
        for i, m in enumerate(METRICS)
        for j, v in enumerate(VALUES[m.name])
        for s in (0, 1)
    ]
    json.dump({"fields": about, "vectors": vectors}, sys.stdout, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
