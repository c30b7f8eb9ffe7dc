"""The whole public API as an app uses it: never run, only type-checked (`make types`).

Each variable has the name of its class. tests/contracts/test_api.py uses the names to check that all members occur.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, assert_type

from bitarray import frozenbitarray

from hubbub import (
    Accounting,
    Batch,
    Buckets,
    Client,
    Consent,
    ConsentRecord,
    DefinitionError,
    Definitions,
    Discovery,
    Encoder,
    Estimand,
    Group,
    HubbubError,
    Inspection,
    InvalidValueError,
    Kind,
    KindWord,
    Ledger,
    Limits,
    Metric,
    ParameterError,
    Params,
    Period,
    PeriodKind,
    Policy,
    PrivSet,
    ProblemType,
    RefusedError,
    Report,
    Secret,
    Several,
    Subject,
    SubsetSelection,
    SummaryError,
    UnaryResponse,
    consent_notice,
    load_definitions,
    load_secret,
    parse_definitions,
)
from hubbub.wire.dates import parse_period


def an_app(path: Path) -> None:
    definitions = load_definitions(path)
    policy = Policy(epsilon_report=2, epsilon_enrollment=5, epsilon_metric=10, epsilon_total=40)
    limits = Limits(max_reports=100, max_bytes=1 << 20)
    with Client(
        definitions,
        "state",
        "https://telemetry.example.org",
        durability="power",
        policy=policy,
        limits=limits,
        ca_certs="/etc/ssl/ca.pem",
        authorization=lambda: "token",
        detached=True,
        environment={"DO_NOT_TRACK": "0"},
    ) as client:
        client.set_consent(Consent.ON, text="privacy notice of 2026-11")
        client.set_consent("off")
        assert_type(client.consent, ConsentRecord)
        consentrecord = client.consent
        assert_type((consentrecord.level, consentrecord.effective, consentrecord.paused), tuple[Consent, Consent, str])
        assert_type((consentrecord.text, consentrecord.time), tuple[str, datetime | None])
        inspection, ledger = client.inspect(last=3), client.ledger()
        assert_type((inspection, ledger), tuple[Inspection, Ledger])
        assert_type((inspection.to_dict(), ledger.to_dict()), tuple[dict[str, Any], dict[str, Any]])
        assert_type(
            (inspection.consent.level, inspection.consent.text, inspection.consent.time),
            tuple[Consent, str, datetime | None],
        )
        assert_type((inspection.machines, inspection.failures, inspection.last_error), tuple[int, int, str])
        assert_type([batch.send_time for batch in inspection.queued], list[datetime | None])
        assert_type([batch.problem for batch in inspection.quarantined], list[str])
        assert_type((inspection.last_sent, inspection.accounting), tuple[tuple[str, ...], Accounting])
        assert_type((ledger.consent, ledger.enrollments, ledger.accounting), tuple[Consent, int, Accounting])
        assert_type((ledger.epsilon_total, ledger.epsilon_reserved), tuple[Mapping[str, float], Mapping[str, float]])
        assert_type([account.epsilon_spent for account in ledger.accounts], list[float])
        assert_type(client.inspect_html(last=3), str)
        client.record("homepage", "https://example.org/")
        client.record("dark_mode", True)
        client.record("both", ("linux", True))
        client.record("nothing_to_say")
        assert_type(client.flush(2.5), bool)
        accounting = client.accounting()
        assert_type(accounting, Accounting)
        assert_type(
            (accounting.recorded, accounting.waiting, accounting.chosen, accounting.superseded, accounting.formed),
            tuple[int, int, int, int, int],
        )
        assert_type((accounting.acknowledged, accounting.queued, accounting.quarantined), tuple[int, int, int])
        assert_type((accounting.stood_in, accounting.damaged_records), tuple[int, int])
        assert_type((accounting.ignored, accounting.dropped), tuple[Mapping[str, int], Mapping[str, int]])
        assert_type(accounting.failed_uploads, Mapping[str, int])
        assert_type(accounting.to_dict(), dict[str, Any])
        client.close()
    assert_type(limits.max_reports, int)
    assert_type(limits.max_bytes, int)
    assert_type((policy.epsilon_report, policy.epsilon_enrollment), tuple[float, float])
    assert_type((policy.epsilon_metric, policy.epsilon_total), tuple[float, float])
    assert_type(Consent.OFF < Consent.LOCAL, bool)


async def a_server(user: str) -> None:
    client = Client("metrics.toml", Path("state"), "https://telemetry.example.org", per_subject=True)
    subject = client.subject(user)
    assert_type(subject, Subject)
    subject.record("homepage", "https://example.org/")
    await subject.arecord("dark_mode", False)
    await client.arecord("homepage")


def definitions_of_metrics(text: str) -> None:
    definitions = parse_definitions(text)
    definitions = Definitions([metric for metric in definitions.versions() if metric.kind.needs_candidates])
    assert_type(definitions["homepage"], Metric)
    assert_type(consent_notice(definitions, app="Editor", recipient="Example Ltd", policy=Policy()), str)
    assert_type(definitions.version("homepage", "0123abcd"), Metric | None)
    assert_type(definitions.versions(), Iterator[Metric])
    assert_type(definitions.collections(), Iterator[Metric])
    as_mapping: Mapping[str, Metric] = definitions
    assert_type(as_mapping.get("homepage"), Metric | None)


def metrics() -> Metric:
    params = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    assert_type((params.num_bits, params.num_hashes, params.num_cohorts), tuple[int, int, int])
    assert_type(
        (params.mechanism.prob_p, params.mechanism.prob_q, params.mechanism.prob_f), tuple[float, float, float | None]
    )
    assert_type((params.mechanism.permanent_p, params.mechanism.permanent_q), tuple[float, float])
    assert_type((params.mechanism.probabilities, params.mechanism.fields), tuple[dict[str, float], dict[str, Any]])
    assert_type(params.mechanism.has_permanent_noise, bool)
    assert_type((params.mechanism.p_star, params.mechanism.q_star), tuple[float, float])
    assert_type(params.hash_scheme, str)
    unaryresponse = UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)
    assert_type((unaryresponse.prob_p, unaryresponse.prob_q), tuple[float, float])
    assert_type((unaryresponse.permanent_p, unaryresponse.permanent_q), tuple[float, float])
    subsetselection = SubsetSelection(num_values=4, num_ones=1, prob_q=0.5, permanent_q=0.75)
    assert_type((subsetselection.num_values, subsetselection.num_ones), tuple[int, int])
    assert_type((subsetselection.prob_p, subsetselection.prob_q), tuple[float, float])
    assert_type((subsetselection.permanent_p, subsetselection.permanent_q), tuple[float, float])
    privset = PrivSet(num_values=6, max_items=2, num_ones=1, prob_hit=0.6)
    assert_type((privset.num_values, privset.max_items, privset.num_ones), tuple[int, int, int])
    assert_type((privset.prob_hit, privset.prob_p, privset.prob_q), tuple[float, float, float])
    assert_type((privset.permanent_p, privset.permanent_q), tuple[float, float])
    assert_type(Params.one_hot(4, prob_p=0, prob_q=1, prob_f=0.5), Params)
    metric = Metric.string("homepage", params, period=PeriodKind.WEEK, hold=4, owner="you@example.org")
    metric = Metric.categorical(
        "os", ("linux", "mac", "other"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), other="other"
    )
    metric = Metric.boolean("dark_mode", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), expires=date(2027, 1, 1))
    buckets = Buckets((0, 10, 20.5), Several.SUM, "ms", representatives=(5, 12), default=0)
    assert_type([buckets.edges, buckets.representatives, buckets.centers], list[tuple[float, ...]])
    assert_type((buckets.several, buckets.unit, buckets.default), tuple[Several, str, float | None])
    assert_type(buckets.labels, tuple[str, ...])
    assert_type((buckets.to_dict(), Buckets.from_dict(buckets.to_dict())), tuple[dict[str, Any], Buckets])
    buckets = Buckets((0, 50), default=0, estimate=Estimand.MEAN)
    assert_type((buckets.estimate, buckets.is_mean), tuple[Estimand, bool])
    assert_type([Estimand.MEAN, Estimand.DISTRIBUTION], list[Estimand])
    assert_type([Several.ONE, Several.SUM, Several.MAX, Several.LAST], list[Several])
    metric = Metric.ordinal("delay", buckets, UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
    metric = Metric.ordinal("delay", (0, 10, 20), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
    assert_type(metric.kind.labels, tuple[str, ...])
    assert_type((metric.name, metric.description, metric.owner, metric.digest), tuple[str, str, str, str])
    assert_type((metric.purpose, metric.review), tuple[str, str])
    assert_type((metric.kind, metric.period), tuple[Kind, PeriodKind])
    assert_type((metric.hold, metric.expires), tuple[int | None, date | None])
    assert_type(metric.params, Params)
    discovery = Discovery(longest=12, step=2, first=3, alphabet="abc", held_out=0.2)
    assert_type((discovery.longest, discovery.step, discovery.shortest), tuple[int, int, int])
    assert_type((discovery.first, discovery.alphabet, discovery.held_out), tuple[int | None, str | None, float])
    assert_type(discovery.to_dict(), dict[str, Any])
    assert_type(Discovery.from_dict(discovery.to_dict()), Discovery)
    group = Group("version", ("1.x", "2.x", "other"))
    assert_type((group.name, group.values, group.value), tuple[str, tuple[str, ...], str | None])
    assert_type((group.value_of("1.4.2"), group.of("1.x")), tuple[str, Group])
    assert_type(Group.from_dict(group.to_dict()), Group)
    assert_type((metric.group, metric.title, metric.in_group("1.x")), tuple[Group | None, str, Metric])
    assert_type((metric.collections, metric.group_value({"version": "1.4.2"})), tuple[tuple[Metric, ...], str])
    assert_type(metric.lifetime_epsilon, float | None)
    plugins = Metric.set("plugins", ("vim", "preview"), UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    assert_type(plugins.kind.word is KindWord.SET, bool)
    metric = Metric.joint("both", (metric, Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))))
    assert_type(metric.components, tuple[Metric, ...])
    assert_type((metric.blocks, params.blocks), tuple[tuple[Params, ...], tuple[Params]])
    assert_type((metric.num_bits, metric.num_cohorts), tuple[int, int])

    assert_type(params.mechanism.prob_f, float | None)
    assert_type(metric.kind.word is KindWord.JOINT, bool)
    kind = metric.kind
    assert_type((kind.blocks, kind.labels), tuple[tuple[Params, ...], tuple[str, ...]])
    assert_type((kind.num_bits, kind.num_cohorts, kind.named_values), tuple[int, int, tuple[str, ...]])
    assert_type(params.to_dict(), dict[str, Any])
    assert_type(Params.from_dict(params.to_dict()), Params)
    assert_type(metric.to_dict(), dict[str, Any])
    assert_type(Metric.from_dict(metric.to_dict()), Metric)
    policy = Policy()
    assert_type(policy.objection(metric), str | None)
    assert_type(policy.units(4.39), float)
    assert_type(
        {KindWord.STRING: 0, KindWord.BOOLEAN: 1, KindWord.CATEGORICAL: 3, KindWord.ORDINAL: 8}, dict[KindWord, int]
    )
    assert_type([PeriodKind.DAY, PeriodKind.WEEK, PeriodKind.MONTH], list[PeriodKind])
    return metric.require_collectable()


def one_report(metric: Metric) -> bytes:
    secret = load_secret("state/secret")
    secret = Secret(bytes(32))
    secret = Secret.generate()
    assert_type((secret.cohort(64), secret.metric_cohort("command", 64)), tuple[int, int])
    assert_type(secret.threshold("use", 3, 16), float)
    encoder = Encoder(metric, secret)
    assert_type((encoder.metric, encoder.cohort), tuple[Metric, int])
    bits = encoder.bloom_bits("x")
    assert_type(bits + 0, int)
    report = encoder.encode(bits, epoch=3)
    report = encoder.encode("x")
    report = Report.from_int(cohort=3, bits=5, num_bits=8)
    assert_type((report.cohort, report.bits, report.to_bytes()), tuple[int, frozenbitarray, bytes])
    period = Period.containing(PeriodKind.DAY, date(2026, 11, 21))
    period = parse_period(PeriodKind.MONTH, "2026-11-01")
    assert_type(period.next(), Period)
    assert_type(
        (period.start, period.kind, period.opens(), period.closes()), tuple[date, PeriodKind, datetime, datetime]
    )
    batch = Batch.from_reports(metric, period, [report])
    batch = Batch.from_json(batch.to_json())
    batch.require_fit(metric, max_reports=100)
    assert_type((batch.batch_id, batch.metric, batch.digest, batch.period), tuple[uuid.UUID, str, str, str])
    assert_type((batch.cohorts, batch.rows), tuple[bytes, bytes])
    assert_type((batch.group, batch.collection_digest), tuple[str, str])
    return batch.to_json()


def what_went_wrong(body: bytes) -> str:
    try:
        batch = Batch.from_json(body)
    except RefusedError as refused:
        assert_type(refused.problem_type, ProblemType)
        return f"{refused.problem_type.slug} {refused.problem_type.status}: {refused.problem_type.meaning}"
    except (DefinitionError, ParameterError, InvalidValueError, SummaryError) as failure:
        base: HubbubError = failure
        return str(base)
    return batch.metric
