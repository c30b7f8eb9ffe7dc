"""Scenarios of recordings and of noise: what a report of several recordings says, and whether its randomness is fresh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from itertools import combinations

from hubbub.conformance.noise import FALSE_ALARM, find_bias, is_refuted
from hubbub.conformance.world import FIELDS, UNLIMITED, BrokenError, ScenarioRule, World, call, fingerprint
from hubbub.hashing.murmur3_v1 import bit_positions
from hubbub.mechanisms.privset import PrivSet
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.metrics.buckets import Buckets, Several
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params

_PROB_HIT = 0.999


def _in_a_row(name: str, items: Sequence[str] | None, num_values: int) -> Metric:
    mechanism = PrivSet(num_values=num_values, max_items=4, num_ones=1, prob_hit=_PROB_HIT)
    return Metric.set(name, items, mechanism, lifetime_epsilon=40, **FIELDS)


_DAY = timedelta(days=1)
_CHOICES = tuple(fingerprint(f"choice_{number}") for number in range(24))
_ORDERS = ("bbba", "bbab", "babb", "abbb", *("a" * 11 + "b" * 11,) * 3)
_PERMANENT = UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)
_SEVERAL = (Several.SUM, Several.MAX, Several.LAST)
_NUMBERS = {
    several: Metric.ordinal(several, Buckets(edges=tuple(range(-128, 1)), several=several), _PERMANENT, **FIELDS)
    for several in _SEVERAL
}
"""128 buckets of one number: two are equal by chance once in 1e26."""
_RECORDINGS, _RESULTS = (-30, -10, -20), {"sum": -60, "max": -10, "last": -20}
_HUGE = 1.7e308
_ITEMS = ("a", "b", "c", "d")
_SETS = tuple(Metric.set(f"set_{number}", _ITEMS, _PERMANENT, **FIELDS) for number in range(48))
_ROWS = {
    "rows of items": tuple(_in_a_row(f"listed_{number}", _ITEMS, 8) for number in range(12)),
    "rows of hashes": tuple(_in_a_row(f"hashed_{number}", None, 20) for number in range(12)),
}
"""A report is one bit, which is that of a recorded item with `_PROB_HIT` if all four items were recorded, and with a quarter of it if one was."""
_BITS = {
    "rows of items": {0, 1, 2, 3},
    "rows of hashes": {bit for item in _ITEMS for bit in bit_positions(item.encode(), 0, 16, 1)},
}
_PROB_P, _PROB_Q = 0.25, 0.75
_NOISY = tuple(
    Metric.string(
        f"noisy_{number}",
        Params(num_bits=128, num_hashes=2, num_cohorts=8, prob_p=_PROB_P, prob_q=_PROB_Q, prob_f=0.5),
        **FIELDS,
    )
    for number in range(16)
)
"""All their reports of one value differ. A generator that repeats after 64 draws repeats after days, because 16 divides 64."""
_PROCESSES = ((0, 6), (6, 2), (8, 2))
"""First day and number of days of each process: the first makes more than 64 reports, and the others begin alike."""
_IDENTITY = fingerprint("identity")
_ID_PART = 12
"""Digits of a batch's id that no two ids have in common: of 300 random ids two do with a probability of 3e-10."""
_SEALED = 64
_KEY = bytes(range(32))


def chooses_uniformly(world: World) -> None:
    """Each of four recordings, and of 22, is reported with the same probability, whichever comes first, also if the app starts between them."""
    world.policy = UNLIMITED
    first = world.today
    world.agree()
    world.live("a")
    for order in _ORDERS:
        for place, value in enumerate(order):
            if place == len(order) - 1:
                world.restart()
            for metric in _CHOICES:
                world.record(metric, value)
        world.set_time(world.aggregator.now + _DAY)
    world.live("..")
    chosen: Counter[str] = Counter()
    for position, order in enumerate(_ORDERS):
        day = first + (position + 1) * _DAY
        chosen[order] += sum(_is_same(world, metric, first, day) for metric in _CHOICES)
    for order, times in Counter(_ORDERS).items():
        share, number = order.count("a") / len(order), times * len(_CHOICES)
        if is_refuted(chosen[order], number, share, FALSE_ALARM / len(_ORDERS)):
            raise BrokenError(
                f"of the recordings {order}, {chosen[order]} of {number} reports have a, and {share:.0%} are expected"
            )


def _is_same(world: World, metric: Metric, day: date, other: date) -> bool:
    rows = world.rows(metric)
    if str(day) not in rows or str(other) not in rows:
        raise BrokenError(f"{metric.name} has no report of {day} or of {other}")
    return rows[str(day)] == rows[str(other)]


def combines_numbers(world: World) -> None:
    """The sum, the largest and the last number of a day are reported, also if the app ends between the recordings and after them.

    A sum is at most the largest double.
    """
    first = world.today
    world.agree()
    for several, metric in _NUMBERS.items():
        world.record(metric, _RESULTS[several])
    world.set_time(world.aggregator.now + _DAY)
    for _ in range(3):
        for number in _RECORDINGS:
            for metric in _NUMBERS.values():
                world.record(metric, number)
            world.restart()
        world.stop()
        world.aggregator.now += _DAY
        world.start()
        world.set_time(world.aggregator.now)
    for several, metric in _NUMBERS.items():
        world.record(metric, _RESULTS[several] + 1)
    world.set_time(world.aggregator.now + _DAY)
    total = _NUMBERS[Several.SUM]
    for amounts in ((_HUGE, _HUGE, -_HUGE, -100.0), (-1.0,)):
        for amount in amounts:
            world.record(total, amount)
        world.set_time(world.aggregator.now + _DAY)
    world.live_without_recording(2)
    for metric in _NUMBERS.values():
        world.expect_history(metric, first, "aaaabcc" if metric is total else "aaaab")


def unites_sets(world: World) -> None:
    """A set has the items of all recordings of the day."""
    world.policy = UNLIMITED | {"epsilon_report": 9.0}
    first = world.today
    world.agree()
    for recordings in ([_ITEMS * 2], [[item] for item in _ITEMS]):
        for recording in recordings:
            for metric in world.definitions:
                world.record(metric, list(recording))
        world.set_time(world.aggregator.now + _DAY)
    world.live_without_recording(2)
    for metric in _SETS:
        if not _is_same(world, metric, first, first + _DAY):
            raise BrokenError(
                f"{metric.name} has another permanent response if the items {', '.join(_ITEMS)} are recorded one by one than if they are recorded at once"
            )
    for words, metrics in _ROWS.items():
        hits = sum(bool(_ones(world, metric, first + _DAY) & _BITS[words]) for metric in metrics)
        if is_refuted(hits, len(metrics), _PROB_HIT, FALSE_ALARM):
            raise BrokenError(
                f"of {len(metrics)} {words}, {hits} have an item of the day, whose items were recorded one by one"
            )


def _ones(world: World, metric: Metric, day: date) -> set[int]:
    """Bits of the report of a day that are one."""
    row = _numbers(world, metric, day, 1)[0]
    return {bit for bit in range(metric.num_bits) if row >> bit & 1}


def draws_fresh_noise(world: World) -> None:
    """Recorded reports of one value repeat in no process, and keep each bit with the declared probability.

    Two clients that are the first of their processes share no secret, and no two ids of batches have a beginning or an end in common.
    """
    world.policy = UNLIMITED
    first = world.today
    world.kit.kill()
    world.agree()
    for start, days in _PROCESSES:
        if start:
            world.kit.kill()
            world.start()
        world.live("a" * days)
    with world.kit.beside() as kit, world.another(kit) as other:
        other.policy = UNLIMITED
        other.agree()
        other.live("aa..")
        of_other = {metric.name: _numbers(other, metric, first, 2) for metric in _NOISY}
        permanent_of_other = other.rows(_IDENTITY).get(str(first))
        ids = [batch.batch_id.hex for batch in other.batches]
        other.stop()
    world.live("..")
    if permanent_of_other == world.rows(_IDENTITY).get(str(first)):
        raise BrokenError("two clients have the same permanent response: they drew one secret")
    ids += [batch.batch_id.hex for batch in world.batches]
    for part in (slice(_ID_PART), slice(-_ID_PART, None)):
        if len({name[part] for name in ids}) < len(ids):
            raise BrokenError("two ids of batches begin or end alike, or are equal: they are not random")
    reports = {metric.name: _numbers(world, metric, first, 10) for metric in _NOISY}
    for name, rows in reports.items():
        if len(set(rows)) < len(rows):
            raise BrokenError(f"{name} has two equal reports: its noise was drawn twice")
    every = [one ^ two for rows in (*reports.values(), *of_other.values()) for one, two in combinations(rows, 2)]
    if len(set(every)) < len(every):
        raise BrokenError("reports of two metrics or clients have the same noise")
    changes = [rows[day] ^ rows[day + 1] for rows in reports.values() for day in range(0, 10, 2)]
    same = _PROB_P * _PROB_P + _PROB_Q * _PROB_Q
    bias = find_bias(changes, 0, 128, same)
    if bias is not None:
        raise BrokenError(f"the noise is not that of independent coins: from one report to the next, {bias}")
    agreeing = sum(
        128 - (reports[name][0] ^ reports[name][1] ^ one ^ two).bit_count() for name, (one, two) in of_other.items()
    )
    by_chance = same * same + (1 - same) * (1 - same)
    if is_refuted(agreeing, 128 * len(_NOISY), by_chance, FALSE_ALARM):
        raise BrokenError(
            f"two clients of the same moment agree in {agreeing:,} changes of bits, and {128 * len(_NOISY) * by_chance:,.0f} are expected: their generator has a fixed seed, or one of the time"
        )


def _numbers(world: World, metric: Metric, first: date, days: int) -> list[int]:
    """Reports of the days from the first on, as integers. Raises BrokenError if one is missing."""
    rows = world.rows(metric)
    names = [str(first + day * _DAY) for day in range(days)]
    missing = next((name for name in names if name not in rows), None)
    if missing is not None:
        raise BrokenError(f"{metric.name} has no report of {missing}")
    return [int.from_bytes(rows[name][1], "little") for name in names]


def seals_under_new_nonces(world: World) -> None:
    """What a client keeps of one value never repeats."""
    request = {"call": "seal", "definition": _CHOICES[0].to_dict(), "secret": _KEY.hex(), "value": "v1"}
    sealed = [call(world.kit, request).get("sealed") for _ in range(_SEALED)]
    if len(set(map(str, sealed))) < len(sealed):
        raise BrokenError("a value was sealed twice in the same way: its nonce repeats")


RULES = (
    ScenarioRule(
        114,
        "noise of the client's own generator",
        "format.md, Streams derived from the secret",
        "Every report draws its words anew.",
        draws_fresh_noise,
        (*_NOISY, _IDENTITY),
    ),
    ScenarioRule(
        145,
        "a uniform choice among recordings",
        "client.md, Lifecycle of a report",
        "The n-th recording of a period replaces the draft with probability 1/n, so each recording is equally likely to be reported.",
        chooses_uniformly,
        _CHOICES,
    ),
    ScenarioRule(
        146,
        "numbers of several recordings",
        "client.md, Lifecycle of a report",
        "can report the sum, the largest or the last number of the period instead.",
        combines_numbers,
        tuple(_NUMBERS.values()),
    ),
    ScenarioRule(
        147,
        "items of several recordings",
        "writing-metrics.md, Recording each kind",
        "the items of a period add up",
        unites_sets,
        (*_SETS, *_ROWS["rows of items"], *_ROWS["rows of hashes"]),
    ),
    ScenarioRule(
        148,
        "sealed values",
        "threat-model.md, Stored data",
        "Each is encrypted under a new random nonce, so that equal values have different bytes.",
        seals_under_new_nonces,
        _CHOICES[:1],
    ),
)
