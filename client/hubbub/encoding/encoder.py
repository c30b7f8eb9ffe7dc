"""Encode a value of one metric into a report of one client: the pipeline of RAPPOR.

    B       Bloom bits of the value in the client's cohort             `encoding/bloom.py`
    B'      permanent randomized response of B, with noise f           `encoding/responses.py`
    S       instantaneous randomized response of B', with p and q      `encoding/responses.py`
    report  (cohort, S)                                                `wire/batch.py`

`Encoder.encode` makes every report: those of apps (`sdk/recording/subject_encoders.py`), of `hubbub encode` and of the demo.
The tests of the decoder's simulator compare its reports with those of `Encoder.encode`.

Source: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), sec. 2.
"""

from __future__ import annotations

from hubbub.encoding.bloom import bloom_bits
from hubbub.encoding.responses import InstantaneousResponse, PermanentResponse
from hubbub.encoding.secret import Secret
from hubbub.errors import InvalidValueError, ParameterError
from hubbub.metrics.kinds import BloomBits, JointValue, Value
from hubbub.metrics.metric import Metric
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.wire.batch import Report


class Encoder:
    """Encoder of one client's values of one metric.

    Parameters
    ----------
    metric
        Metric whose parameters a client may collect under.
    secret
        It determines the cohort and all permanent responses, so no table of permanent responses is stored.
    random_bytes
        Randomness of the instantaneous responses.

    Raises
    ------
    ParameterError
        `metric` is not a Metric, or `secret` is not a Secret.
    DefinitionError
        The metric has parameters that only imported reports may have.

    Examples
    --------
    >>> from hubbub.metrics.params import Params
    >>> metric = Metric.string(
    ...     "homepage", Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    ... )
    >>> report = Encoder(metric, Secret.generate()).encode("https://example.org/")
    >>> len(report.bits), 0 <= report.cohort < 64
    (128, True)
    """

    def __init__(self, metric: Metric, secret: Secret, random_bytes: RandomBytes = system_random_bytes) -> None:
        if not isinstance(metric, Metric):
            raise ParameterError(
                f"metric must be a Metric, got {type(metric).__name__}: pass Metric.string(...), for example"
            )
        if not isinstance(secret, Secret):
            raise ParameterError(
                f"secret must be a Secret, got {type(secret).__name__}: pass Secret(key) or Secret.generate()"
            )
        self.metric = metric = metric.require_collectable().in_group(None)
        m, kind = metric.num_cohorts, metric.kind
        self.cohort = secret.metric_cohort(metric.name, m) if kind.has_own_cohort else secret.cohort(m)
        self._threshold = secret.threshold(metric.name, self.cohort, m) if kind.has_threshold else None
        self._permanent_response = PermanentResponse(metric, secret)
        self._instantaneous_response = InstantaneousResponse(metric.blocks, random_bytes)

    def encode(self, value: Value | JointValue | BloomBits, epoch: int | None = None) -> Report:
        """Return the report of a value: its Bloom bits after both randomized responses.

        Parameters
        ----------
        value
            A string for a string or categorical metric, a bool for a boolean metric, a number for an ordinal metric. None
            means that no value was recorded, and has the Bloom bits 0. For a joint metric a tuple, or a mapping, of
            its parts' values. Bloom bits from `bloom_bits` are accepted in place of their value.
        epoch
            Number of the permanent response. It is required for a metric with `hold` and rejected for all others.

        Returns
        -------
        Report
            Report in the client's cohort.

        Raises
        ------
        InvalidValueError
            The value is not one of the metric. The message never contains the value.
        ParameterError
            `epoch` is missing, or is not allowed.
        """
        self._check_epoch(epoch)
        bloom = self.bloom_bits(value)
        permanent = self._permanent_response(bloom, epoch)
        bits = self._instantaneous_response(permanent)
        return Report.from_int(self.cohort, bits, self.metric.num_bits)

    def bloom_bits(self, value: Value | JointValue | BloomBits) -> BloomBits:
        """Return the true bits of a value in the client's cohort.

        Never send them, and store them only as `Sealer.seal` returns them.

        Parameters
        ----------
        value
            Value, as for `encode`.

        Returns
        -------
        BloomBits
            True bits, before both randomized responses.

        Raises
        ------
        InvalidValueError
            The value is of the wrong kind. An app can so check a value before it is encoded.
        """
        if isinstance(value, BloomBits):
            return value
        return bloom_bits(self.metric, value, self.cohort, self._threshold)

    def _check_epoch(self, epoch: int | None) -> None:
        has_hold = self.metric.hold is not None
        if has_hold and epoch is None:
            raise InvalidValueError(
                f"{self.metric.name}: epoch is missing: for a metric with `hold`, pass the number of the current epoch, "
                "the number of the period divided by `hold`, rounded down"
            )
        if not has_hold and epoch is not None:
            raise InvalidValueError(f"{self.metric.name}: epoch was given, but the metric has no `hold`: omit epoch")
