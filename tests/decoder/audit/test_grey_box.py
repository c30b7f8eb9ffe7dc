"""Grey-box tests: clients of every kind pass, and faults that reports show in a thousandth of the clients are found."""

from __future__ import annotations

import pytest

from hubbub import Metric, UnaryResponse
from hubbub.encoding.bloom import bloom_bits
from hubbub.encoding.secret import Secret
from hubbub.randomness import RandomBytes
from hubbub_decoder.audit.clients import AuditedValue
from hubbub_decoder.audit.grey_box import GreyBoxClient, encoder_client, grey_box_test
from hubbub_decoder.kinds.operations import operations_of
from tests.support.every_kind import METRICS

SURVEY = Metric.boolean("survey", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
OTHER = Metric.categorical(
    "browser", ("firefox", "chromium", "other"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)
)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_client_of_this_project_passes(metric: Metric) -> None:
    test = grey_box_test(encoder_client, metric, operations_of(metric).audited_values(), runs=200)
    assert not test.refuted, test.finding
    assert "reports as the mechanism makes them" in test.finding


def true_report_of_a_thousandth(
    metric: Metric, value: AuditedValue, epoch: int | None, secret: Secret, random_bytes: RandomBytes
) -> tuple[int, int]:
    """One report of 1,024 has no noise. The client decides before it draws the noise, or does not draw it at all."""
    bare = int.from_bytes(random_bytes(2), "little") < 64
    cohort, bits = encoder_client(metric, value, epoch, secret, random_bytes)
    return cohort, bloom_bits(metric, value, cohort) if bare else bits


def no_noise_for_no_value(
    metric: Metric, value: AuditedValue, epoch: int | None, secret: Secret, random_bytes: RandomBytes
) -> tuple[int, int]:
    return (0, 0) if value is None else encoder_client(metric, value, epoch, secret, random_bytes)


def noise_of_the_value(
    metric: Metric, value: AuditedValue, epoch: int | None, secret: Secret, random_bytes: RandomBytes
) -> tuple[int, int]:
    """The bits beside the true one are inverted for one value."""
    cohort, bits = encoder_client(metric, value, epoch, secret, random_bytes)
    return cohort, bits ^ (4 if value == "firefox" else 0)


def no_noise_in_later_epochs(
    metric: Metric, value: AuditedValue, epoch: int | None, secret: Secret, random_bytes: RandomBytes
) -> tuple[int, int]:
    """Every fourth epoch has no noise."""
    cohort, bits = encoder_client(metric, value, epoch, secret, random_bytes)
    return cohort, bloom_bits(metric, value, cohort) if epoch is not None and epoch % 4 == 3 else bits


def no_noise_for_one_value(
    metric: Metric, value: AuditedValue, epoch: int | None, secret: Secret, random_bytes: RandomBytes
) -> tuple[int, int]:
    """The value "other" has no noise: it is neither one of the first two values, nor the last."""
    cohort, bits = encoder_client(metric, value, epoch, secret, random_bytes)
    return cohort, bloom_bits(metric, value, cohort) if value == "other" else bits


FAULTS = {
    "a report that the mechanism does not make": (SURVEY, true_report_of_a_thousandth),
    "draw different numbers of coins": (SURVEY, no_noise_for_no_value),
    "differ in bits that both of them set": (OTHER, noise_of_the_value),
}


@pytest.mark.parametrize(
    ("metric", "client"),
    [
        (
            Metric.boolean("monthly", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), hold=4),
            no_noise_in_later_epochs,
        ),
        (OTHER, no_noise_for_one_value),
    ],
    ids=["every fourth epoch", "the third of four values"],
)
def test_fault_of_some_epochs_and_values_is_found(metric: Metric, client: GreyBoxClient, unseen_seed: int) -> None:
    """A quarter of 200 runs or more have the epoch or the value, and .375 of their reports or more change: missed with probability 3e-9."""
    values = operations_of(metric).audited_values()
    assert grey_box_test(client, metric, values, runs=200, seed=unseen_seed % 2**32).refuted


@pytest.mark.parametrize("finding", FAULTS)
def test_fault_is_found(finding: str, unseen_seed: int) -> None:
    """A thousandth of the reports is missed in all of 14,000 runs with probability 1e-6."""
    metric, client = FAULTS[finding]
    test = grey_box_test(client, metric, operations_of(metric).audited_values(), seed=unseen_seed % 2**32)
    assert test.refuted
    assert finding in test.finding


def test_client_with_a_sampler_of_its_own_passes() -> None:
    """Its reports are those of other coins, but the same for all values."""

    def client(
        metric: Metric, value: AuditedValue, epoch: int | None, secret: Secret, random_bytes: RandomBytes
    ) -> tuple[int, int]:
        return encoder_client(
            metric, value, epoch, secret, lambda number: bytes(255 - byte for byte in random_bytes(number))
        )

    test = grey_box_test(client, OTHER, operations_of(OTHER).audited_values(), runs=200)
    assert not test.refuted
    assert "another sampler than this project's" in test.finding
