"""Encoders of each subject and metric, and the memory of the values that they reported.

secret   the client's; a secret that the ledger has not seen starts a new enrollment
subject  a person that a server reports for, with a secret that is derived from the client's; "" is the client itself
"""

from __future__ import annotations

from collections.abc import Callable

from hubbub.encoding.encoder import Encoder
from hubbub.encoding.sealed_values import Sealer
from hubbub.encoding.secret import SECRET_BYTES, Secret
from hubbub.metrics.kinds import BloomBits, JointValue, Value
from hubbub.metrics.metric import Metric, name_errors
from hubbub.metrics.periods import period_number
from hubbub.privacy.ledger import Account, EncodedReport, Key
from hubbub.randomness import RandomBytes
from hubbub.sdk.storage.events import EnrollmentStart, LedgerKey
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State

_MAX_ENCODERS = 4096


class SubjectEncoder:
    """Encoder of one subject's values of one metric: `Encoder`, and which value the budget and `hold` allow to report."""

    __slots__ = ("_sealer", "encoder")

    def __init__(self, metric: Metric, secret: Secret, random_bytes: RandomBytes) -> None:
        self.encoder = Encoder(metric, secret, random_bytes)
        self._sealer = Sealer(metric, secret, random_bytes)

    def bloom_bits(self, value: Value | JointValue) -> BloomBits:
        """Return the true bits of a value; raises InvalidValueError for a value of the wrong kind."""
        return self.encoder.bloom_bits(value)

    def check(self, value: Value | JointValue) -> Value | BloomBits:
        """Return a valid value in the form that `encode_period` or `add_recording` takes; raises InvalidValueError for another kind.

        The Bloom bits; the number itself where the number of a period depends on all its recordings.
        """
        metric = self.encoder.metric
        buckets = metric.kind.accumulating
        if buckets is None:
            return self.bloom_bits(value)
        with name_errors(metric.name):
            return None if value is None else buckets.number(value)

    def add_recording(
        self, value: Value | JointValue | BloomBits, sealed: bytes
    ) -> tuple[Value | JointValue | BloomBits, bytes]:
        """Return the value to report after one more recording, and the number to keep for the next, sealed.

        sealed : number of the earlier recordings of the period, or their bits; empty if there is none. Without such numbers the value is
        unchanged
        """
        kind = self.encoder.metric.kind
        if kind.adds_up and isinstance(value, BloomBits):
            value = BloomBits(value | self._sealer.open(sealed))
            return value, self._sealer.seal(value)
        buckets = kind.accumulating
        if buckets is None:
            return value, b""
        number = self._sealer.open_number(sealed)
        if isinstance(value, float):
            number = buckets.combine(number, value)
        return number, b"" if number is None else self._sealer.seal_number(number)

    def encode_period(
        self, account: Account, value: Value | JointValue | BloomBits, period: str
    ) -> EncodedReport | None:
        """Return the report of a period in which this value was recorded; None if the account has no unit left for it.

        The last reported value is reported again in the rest of its epoch (metrics with `hold`). It also stands in for a value that
        the account has no unit for (metrics charged per value).

        account : the account of this subject and metric; it is not changed
        period  : first day of the period, ISO 8601
        """
        metric = self.encoder.metric
        epoch = None if metric.hold is None else period_number(metric.period, period) // metric.hold
        if epoch is not None and account.sealed and account.epoch == epoch:
            return self._repeat_last(account, epoch)
        bloom = self.encoder.bloom_bits(value)
        tag = self._sealer.tag(bloom)
        costs_unit = account.unit != "value" or tag not in account.tags
        if costs_unit and not account.has_room:
            can_stand_in = account.unit == "value" and account.sealed
            return self._repeat_last(account, None, stood_in=True) if can_stand_in else None
        return self._encode(account, bloom, epoch, tag, self._sealer.seal(bloom), costs_unit=costs_unit)

    def _repeat_last(self, account: Account, epoch: int | None, *, stood_in: bool = False) -> EncodedReport:
        """Return another report of the value that was reported last."""
        bloom = self._sealer.open(account.sealed)
        return self._encode(account, bloom, epoch, account.tag, account.sealed, costs_unit=False, stood_in=stood_in)

    def _encode(
        self,
        account: Account,
        bloom: BloomBits,
        epoch: int | None,
        tag: bytes,
        sealed: bytes,
        *,
        costs_unit: bool,
        stood_in: bool = False,
    ) -> EncodedReport:
        response = None if epoch is None else account.response_number(epoch)
        report = self.encoder.encode(bloom, response)
        return EncodedReport(report.cohort, report.to_bytes(), tag, sealed, epoch, costs_unit, stood_in, response)


class SubjectEncoders:
    """Encoders of one client under the secret that `load` returns. Call its methods only inside `with journal`."""

    def __init__(self, journal: Journal, load: Callable[[], Secret | None], random_bytes: RandomBytes) -> None:
        self._journal = journal
        self._load = load
        self._random_bytes = random_bytes
        self._secret: Secret | None = None
        self._secret_tag = ""
        self._ledger_secret: Secret | None = None
        self._ledger_tag = ""
        self._encoders: dict[Key, SubjectEncoder] = {}

    def secret(self, state: State) -> Secret | None:
        """Return the client's secret; one that the ledger has not seen is a new enrollment.

        A directory of an earlier format of the permanent response is one, too: its secret now draws other responses, and the ledger
        charges both. The version in the stream's name tells the formats apart; increase it with that of `PermanentResponse`.

        None while the ledger or the secret cannot be read: a file that cannot be opened today must not start a new enrollment.
        """
        if self._secret is None or self._secret_tag != state.secret_tag:
            secret = self._load() if self._journal.is_read else None
            if secret is None:
                return None
            tag = secret.stream("hubbub/enrollment/v2").digest(16).hex()
            if tag != state.secret_tag:
                if not state.ledger_key:
                    self._journal.write(LedgerKey(self._random_bytes(SECRET_BYTES).hex()))
                self._journal.write(EnrollmentStart(state.enrollments + 1, tag))
            self._secret, self._secret_tag = secret, tag
            self._encoders.clear()
        return self._secret

    def forget_secret(self) -> None:
        """Drop it from memory: consent was withdrawn, or another process must not share it."""
        self._secret, self._secret_tag = None, ""
        self._encoders.clear()

    def subject(self, state: State, secret: Secret, subject_id: str) -> str:
        """Return what stands for a person in the directory: a keyed hash of their id, hex.

        The key is the ledger's, which `off` keeps; a directory from before there was one goes on under the secret.
        """
        if self._ledger_tag != state.ledger_key:
            self._ledger_tag = state.ledger_key
            self._ledger_secret = Secret(bytes.fromhex(state.ledger_key)) if state.ledger_key else None
        key, name = self._ledger_secret or secret, subject_id.encode("utf-8", "surrogatepass")
        return key.stream("hubbub/subject-id/v1", name).digest(16).hex()

    def encoder(self, metric: Metric, subject: str, secret: Secret) -> SubjectEncoder:
        """Return the encoder of one subject (as `subject` returns it, or "" for the client itself) and one metric."""
        key = (subject, metric.digest)
        encoder = self._encoders.get(key)
        if encoder is None:
            if len(self._encoders) >= _MAX_ENCODERS:
                self._encoders.clear()
            if subject:
                secret = Secret(secret.stream("hubbub/subject/v1", bytes.fromhex(subject)).digest(SECRET_BYTES))
            encoder = self._encoders[key] = SubjectEncoder(metric, secret, self._random_bytes)
        return encoder
