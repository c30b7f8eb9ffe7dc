"""Whose report it is, and which bits it has: secret -> channel -> choice.

secret   the client's; one that the ledger has not seen is a new enrollment
subject  a person that a server reports for, under a secret of their own that is derived from the client's
channel  one person's way through one metric
choice   the bits that a value is reported as, after both randomizations, and what they cost
"""

from __future__ import annotations

from collections.abc import Callable

from hubbub.encoding.encoder import Encoder
from hubbub.encoding.sealed_values import Sealer
from hubbub.encoding.secret import SECRET_BYTES, Secret
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import ordinal
from hubbub.privacy.ledger import Account, Choice, Key
from hubbub.randomness import RandomBytes
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State

_MAX_CHANNELS = 4096


class Channel:
    """One person's way through one metric."""

    __slots__ = ("_sealer", "encoder")

    def __init__(self, metric: Metric, secret: Secret, random_bytes: RandomBytes) -> None:
        self.encoder = Encoder(metric, secret, random_bytes)
        self._sealer = Sealer(metric, secret, random_bytes)

    def choose(self, account: Account, bloom: int, day: str) -> Choice | None:
        """Decide which bits a value is reported as, and encode them; None where the policy leaves nothing to report."""
        metric, remembered = self.encoder.metric, account.sealed
        epoch = None if metric.hold is None else ordinal(metric.period, day) // metric.hold
        if epoch is not None and remembered and account.epoch == epoch:
            return self._again(account, epoch)
        tag = self._sealer.tag(bloom)
        fresh = account.unit != "value" or tag not in account.tags
        if fresh and not account.has_room:
            return self._again(account, None, stood_in=True) if account.unit == "value" and remembered else None
        return self._encoded(account, bloom, epoch, tag, self._sealer.seal(bloom), fresh=fresh)

    def _again(self, account: Account, epoch: int | None, *, stood_in: bool = False) -> Choice:
        """Report what was reported last."""
        bloom = self._sealer.open(account.sealed)
        return self._encoded(account, bloom, epoch, account.tag, account.sealed, fresh=False, stood_in=stood_in)

    def _encoded(
        self,
        account: Account,
        bloom: int,
        epoch: int | None,
        tag: str,
        sealed: str,
        *,
        fresh: bool,
        stood_in: bool = False,
    ) -> Choice:
        response = None if epoch is None else account.response_number(epoch)
        row = self.encoder.respond(bloom, response).to_bytes(self.encoder.metric.params.row_bytes, "little").hex()
        return Choice(self.encoder.cohort, row, tag, sealed, epoch, fresh, stood_in)


class Channels:
    """The channels of one client, under the secret that `load` returns. Nothing here may be called but inside `with journal`."""

    def __init__(self, journal: Journal, load: Callable[[], Secret | None], random_bytes: RandomBytes) -> None:
        self._journal = journal
        self._load = load
        self._coins = random_bytes
        self._secret: Secret | None = None
        self._secret_tag = ""
        self._ledger_secret: Secret | None = None
        self._ledger_tag = ""
        self._channels: dict[Key, Channel] = {}

    def secret(self, state: State) -> Secret | None:
        """Return the client's secret; one that the ledger has not seen is a new enrollment.

        None while the disk shows no ledger or no secret: a file that cannot be opened today is no reason to enrol anew.
        """
        if self._secret is None or self._secret_tag != state.secret_tag:
            secret = self._load() if self._journal.is_read else None
            if secret is None:
                return None
            tag = secret.stream("hubbub/enrollment/v1").digest(16).hex()
            if tag != state.secret_tag:
                if not state.ledger_key:
                    self._journal.write({"e": "ledger_key", "key": self._coins(SECRET_BYTES).hex()})
                self._journal.write({"e": "enrollment", "number": state.enrollments + 1, "tag": tag})
            self._secret, self._secret_tag = secret, tag
            self._channels.clear()
        return self._secret

    def forget_secret(self) -> None:
        """Drop it from memory: consent was withdrawn, or another process must not share it."""
        self._secret, self._secret_tag = None, ""
        self._channels.clear()

    def subject(self, state: State, secret: Secret, subject_id: str) -> str:
        """Return what stands for a person in the directory: a keyed hash of their id, hex.

        The key is the ledger's, which `off` keeps; a directory from before there was one goes on under the secret.
        """
        if self._ledger_tag != state.ledger_key:
            self._ledger_tag = state.ledger_key
            self._ledger_secret = Secret(bytes.fromhex(state.ledger_key)) if state.ledger_key else None
        key, name = self._ledger_secret or secret, subject_id.encode("utf-8", "surrogatepass")
        return key.stream("hubbub/subject-id/v1", name).digest(16).hex()

    def channel(self, metric: Metric, subject: str, secret: Secret) -> Channel:
        """Return the way of one person, by what `subject` returned or "" for the client's own, through a metric."""
        key = (subject, metric.digest)
        channel = self._channels.get(key)
        if channel is None:
            if len(self._channels) >= _MAX_CHANNELS:
                self._channels.clear()
            if subject:
                secret = Secret(secret.stream("hubbub/subject/v1", bytes.fromhex(subject)).digest(SECRET_BYTES))
            channel = self._channels[key] = Channel(metric, secret, self._coins)
        return channel
