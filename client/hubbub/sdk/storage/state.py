"""What a client knows, as a fold over the events of its journal.

    Draft    what the current period's report will be           Account  what a metric has spent, see `ledger.py`
    Waiting  a formed batch that is not acknowledged yet        State    all of them, the counters, the consent

An event says what now *is* (how many recordings a draft stands for, what an account has spent), so a lost one is mended by the next of
its kind. Reports are numbered as they are formed: numbers that the fold never sees are counted as `corrupt`.

    formed = acknowledged + spooled + quarantined + dropped{quota, age, expired, consent, local, copied, corrupt, refused, clock}
    recorded = chosen + superseded + ignored{consent, invalid, unknown-metric, policy, expired, no-state}

`stood_in` of the reports formed repeat the value reported last, because the budget had no room for another value.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from hubbub.consent import Consent
from hubbub.metrics.periods import Period, PeriodKind, midnight
from hubbub.privacy.ledger import Account, EncodedReport, Key
from hubbub.sdk.storage.events import Event
from hubbub.wire.batch import Batch

DROPPED = ("quota", "age", "expired", "consent", "local", "copied", "corrupt", "refused", "clock")
MAX_RUNS = 64
KEPT_SENT = 10
IGNORED = ("consent", "invalid", "unknown-metric", "policy", "expired", "no-state")


@dataclass(slots=True)
class Draft(EncodedReport):
    """What would be sent if the period ended now; `n` is how many recordings it was chosen from.

    local : it was recorded under consent `local`, so it is never sent
    """

    period: str
    n: int
    local: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a snapshot holds them."""
        return EncodedReport.to_dict(self) | {"period": self.period, "n": self.n, "local": self.local}


@dataclass(slots=True)
class Waiting:
    """A batch as it was formed, once; `at` is when it is sent (POSIX seconds), `doubt` whether it may be stored already.

    late  : its time passed while nobody could send it, so that it was given another; see `due.spread`
    local : it was formed under consent `local`, so it is never sent
    """

    batch: Batch
    period: PeriodKind
    at: float
    doubt: bool = False
    late: bool = False
    local: bool = False

    def ends(self) -> datetime:
        """Return when the period that it is of is over."""
        return midnight(Period(date.fromisoformat(self.batch.period), self.period).next().start)


def account_event(account: Account) -> Event:
    """Return the event that replaces an account by this one."""
    return {"e": "account", "account": account.to_dict()}


def batch_event(batch: Batch) -> Event:
    """Return a batch as an event holds it."""
    return {
        "id": str(batch.batch_id),
        "metric": batch.metric,
        "digest": batch.digest,
        "period": batch.period,
        "cohorts": batch.cohorts.hex(),
        "rows": batch.rows.hex(),
    }


def _batch(fields: Event) -> Batch:
    import uuid

    return Batch(
        uuid.UUID(fields["id"]),
        fields["metric"],
        fields["digest"],
        fields["period"],
        bytes.fromhex(fields["cohorts"]),
        bytes.fromhex(fields["rows"]),
    )


def joined(runs: list[list[str]], start: str, end: str) -> list[list[str]]:
    """Add a run of days to others; beyond `MAX_RUNS` the first two become one, with the gap between them.

    >>> joined([["2026-01-01", "2026-01-03"], ["2026-01-05", "2026-01-06"]], "2026-01-03", "2026-01-04")
    [['2026-01-01', '2026-01-04'], ['2026-01-05', '2026-01-06']]
    """
    apart = [run for run in runs if run[1] < start or end < run[0]]
    touching = [run for run in runs if run not in apart]
    together = [min([start, *(run[0] for run in touching)]), max([end, *(run[1] for run in touching)])]
    found = sorted([*apart, together])
    return found if len(found) <= MAX_RUNS else [[found[0][0], found[1][1]], *found[2:]]


class State:
    """Everything in the journal. `apply` is the only way to change it."""

    def __init__(self) -> None:
        self.consent = Consent.OFF
        self.consent_text = ""
        self.consent_time = 0.0
        """When this consent was first given with this text (POSIX seconds); 0 if that is not known."""
        self.reports_from = ""
        """The day on which consent became `on`: no report is formed of a period that ended before."""
        self.enrollments = 0
        self.secret_tag = ""
        self.ledger_key = ""
        self.machines: list[str] = []
        """A tag of each machine that the directory was used on under this secret, see `machine_id.py`."""
        self.drafts: dict[Key, Draft] = {}
        self.accounts: dict[Key, Account] = {}
        self.digests: dict[str, set[str]] = {}
        self.soonest = date.max
        """No account has a period that is over before this day: `Former.form` need not look before it."""
        self.waiting: dict[str, Waiting] = {}
        self.quarantine: dict[str, tuple[Batch, str]] = {}
        self.last_sent: dict[str, Batch] = {}
        """The batches sent last, by id, the newest at the end; at most `KEPT_SENT`."""
        self.held: dict[str, float | None] = {}
        self.failures = 0
        self.not_before = 0.0
        self.trouble = ""
        """What the last of these failures was."""
        self.detached_at = 0.0
        self.confirmed = 0.0
        """What the clock said when an aggregator's last agreed with it (POSIX seconds): it cannot be earlier now."""
        self.tried: dict[str, list[list[str]]] = {}
        """The days of a definition's periods that a batch was ever tried for: runs [from, to) in their order."""
        self.formed = 0
        self.acknowledged = 0
        self.damaged = 0
        self.erased = False
        self.dropped: Counter[str] = Counter()
        self.chosen = 0
        self.superseded = 0
        self.stood_in = 0
        self.ignored: Counter[str] = Counter()

    def apply(self, event: Event) -> None:
        """Fold one event in; one of a kind that is not known (a newer version wrote it) changes nothing."""
        fold = getattr(self, "_on_" + event["e"], None)
        if fold is not None:
            fold(event)

    def _on_head(self, event: Event) -> None:
        self.formed = max(self.formed, event["formed"])
        self.acknowledged, self.damaged = event["acknowledged"], event["damaged"]
        self.chosen, self.superseded, self.stood_in = event["chosen"], event["superseded"], event["stood_in"]
        self.dropped, self.ignored = Counter(event["dropped"]), Counter(event["ignored"])

    def _on_consent(self, event: Event) -> None:
        self.consent, self.consent_text = Consent(event["to"]), event["text"]
        self.consent_time, self.reports_from = event["time"], event["reports_from"]
        if self.consent is Consent.ON:
            self._drop_local()

    def _drop_local(self) -> None:
        """Drop the reports and drafts that were made under `local`; the event of consent itself does it, so that no kill comes between."""
        for batch_id in [each for each, waiting in self.waiting.items() if waiting.local]:
            self.dropped["local"] += len(self.waiting.pop(batch_id).batch)
        for key in [each for each, draft in self.drafts.items() if draft.local]:
            del self.drafts[key]

    def _on_enrollment(self, event: Event) -> None:
        if self.enrollments not in (0, event["number"]):
            for draft in self.drafts.values():  # made under an earlier secret: the empty report stands for it
                draft.bits, draft.costs_unit = b"", False
        self.enrollments, self.secret_tag = event["number"], event["tag"]

    def _on_ledger_key(self, event: Event) -> None:
        self.ledger_key = event["key"]

    def _on_account(self, event: Event) -> None:
        account = Account.from_dict(event["account"])
        self.accounts[account.key] = account
        self.digests.setdefault(account.subject, set()).add(account.digest)
        self.soonest = min(self.soonest, account.period_end())
        draft = self.drafts.get(account.key)
        if draft is not None and draft.period < account.next_period_start:
            del self.drafts[account.key]

    def _on_draft(self, event: Event) -> None:
        n = self._counted(event)
        fields = event["report"] | {"period": event["p"], "n": n, "local": event["local"]}
        self.drafts[event["s"], event["m"]] = Draft.from_dict(fields)

    def _on_kept(self, event: Event) -> None:
        self.drafts[event["s"], event["m"]] = Draft.from_dict(event["draft"])

    def _on_again(self, event: Event) -> None:
        n = self._counted(event)
        draft = self.drafts.get((event["s"], event["m"]))
        if draft is None or draft.period != event["p"]:
            draft = self.drafts[event["s"], event["m"]] = Draft(0, b"", b"", b"", None, False, False, event["p"], n)
        draft.n = n

    def _counted(self, event: Event) -> int:
        """Count the recordings up to this one, whether or not the events between were lost."""
        draft = self.drafts.get((event["s"], event["m"]))
        before = draft.n if draft is not None and draft.period == event["p"] else 0
        n = max(before, int(event["n"]))
        if before == 0 and n > 0:
            self.chosen += 1
        self.superseded += max(0, n - max(before, 1))
        return n

    def _on_formed(self, event: Event) -> None:
        waiting = Waiting(_batch(event["batch"]), PeriodKind(event["kind"]), event["at"], local=event["local"])
        self.stood_in += event["stood_in"]
        self.formed = max(self.formed, event["formed"])
        self.waiting[event["batch"]["id"]] = waiting
        for account in event["accounts"]:
            self._on_account({"account": account})

    def _on_waiting(self, event: Event) -> None:
        self.waiting[event["batch"]["id"]] = Waiting(
            _batch(event["batch"]),
            PeriodKind(event["kind"]),
            event["at"],
            event["doubt"],
            event["late"],
            event["local"],
        )

    def _on_split(self, event: Event) -> None:
        self.waiting.pop(event["id"], None)
        for half in event["halves"]:
            self.waiting[half["id"]] = Waiting(_batch(half), PeriodKind(event["kind"]), event["at"], late=True)

    def _on_trying(self, event: Event) -> None:
        waiting = self.waiting.get(event["id"])
        if waiting is not None:
            waiting.doubt = True
            self._remember_sent(waiting.batch)
            period = Period(date.fromisoformat(event["p"]), waiting.period)
            self.tried[event["m"]] = joined(self.tried.get(event["m"], []), str(period), str(period.next()))
        else:
            self._mend(event["m"], event["p"])

    def _mend(self, digest: str, period: str) -> None:
        """The record that formed a batch is lost, and it was sent: never form another for its period."""
        for key, account in self.accounts.items():
            if account.digest == digest and account.next_period_start <= period:
                account.next_period_start = str(Period(date.fromisoformat(period), account.period).next())
                self.tried[digest] = joined(self.tried.get(digest, []), period, account.next_period_start)
                self.drafts.pop(key, None)

    def _on_answered(self, event: Event) -> None:
        """An answer that stored nothing: a batch that was never in doubt before this attempt is not in doubt now."""
        waiting = self.waiting.get(event["id"])
        if waiting is not None:
            waiting.doubt = event["doubt"]
            if not event.get("sent", True) and not waiting.doubt:
                self.last_sent.pop(event["id"], None)

    def _on_later(self, event: Event) -> None:
        for batch_id, at in event["at"].items():
            if batch_id in self.waiting:
                waiting = self.waiting[batch_id]
                waiting.at, waiting.late = at, waiting.late or event.get("late", False)

    def _on_gone(self, event: Event) -> None:
        waiting = self.waiting.pop(event["id"], None)
        if waiting is None:
            return
        match event["why"]:
            case "acknowledged":
                self.acknowledged += len(waiting.batch)
            case "quarantined":
                self.quarantine[event["id"]] = (waiting.batch, event["problem"])
            case reason:
                self.dropped[reason] += len(waiting.batch)

    def _on_quarantined(self, event: Event) -> None:
        self.quarantine[event["batch"]["id"]] = (_batch(event["batch"]), event["problem"])

    def _on_sent(self, event: Event) -> None:
        self._remember_sent(_batch(event["batch"]))

    def _remember_sent(self, batch: Batch) -> None:
        self.last_sent.pop(str(batch.batch_id), None)
        self.last_sent[str(batch.batch_id)] = batch
        while len(self.last_sent) > KEPT_SENT:
            del self.last_sent[next(iter(self.last_sent))]

    def _on_backoff(self, event: Event) -> None:
        self.failures, self.not_before, self.trouble = event["failures"], event["until"], event.get("told", "")

    def _on_clock(self, event: Event) -> None:
        self.confirmed = event["at"]

    def _on_tried(self, event: Event) -> None:
        self.tried[event["m"]] = event["runs"]

    def was_tried(self, digest: str, period: str) -> bool:
        """Say whether a batch of this definition and period may ever have left."""
        return any(start <= period < end for start, end in self.tried.get(digest, ()))

    def _on_detached(self, event: Event) -> None:
        self.detached_at = event["at"]

    def _on_held(self, event: Event) -> None:
        self.held[event["m"]] = event["until"]

    def _on_ignored(self, event: Event) -> None:
        self.ignored.update(event["add"])

    def _on_erased(self, _event: Event) -> None:
        """Consent was withdrawn: everything but the ledger goes."""
        self._end_identity("consent")
        self.held.clear()
        self.erased = True

    def _on_new_identity(self, _event: Event) -> None:
        """The directory is a copy: what was made under the copied secret is the original's."""
        self._end_identity("copied")

    def _on_machines(self, event: Event) -> None:
        self.machines = event["tags"]

    def _end_identity(self, reason: str) -> None:
        """Drop everything that was made under the secret; the ledger stays."""
        self.dropped[reason] += self.spooled + self.quarantined
        self.drafts.clear()
        self.waiting.clear()
        self.quarantine.clear()
        self.last_sent.clear()
        self.machines = []
        self.secret_tag = ""
        for account in self.accounts.values():
            account.sealed = account.tag = b""
            account.tags, account.epoch = [], None

    @property
    def spooled(self) -> int:
        """Reports that wait to be acknowledged."""
        return sum(len(waiting.batch) for waiting in self.waiting.values())

    @property
    def quarantined(self) -> int:
        """Reports that were set aside for the developer."""
        return sum(len(batch) for batch, _ in self.quarantine.values())

    def settle(self, damaged: int) -> None:
        """After a fold from the start: what was formed and is nowhere any more was lost to damage."""
        self.damaged += damaged
        known = self.acknowledged + self.spooled + self.quarantined + self.dropped.total()
        self.formed = max(self.formed, known)
        self.dropped["corrupt"] += self.formed - known

    def consent_event(self) -> Event:
        """Return what the journal says of consent."""
        return {
            "e": "consent",
            "to": self.consent,
            "text": self.consent_text,
            "time": self.consent_time,
            "reports_from": self.reports_from,
        }

    def recall(self, sent: dict[str, list[list[str]]]) -> None:
        """After a fold from the start: take over the days that were sent and that no event tells of, since records of the journal were lost.

        Accounts pass over these days, as they do after a clock that was ahead.
        """
        for digest, runs in sent.items():
            known = self.tried.get(digest, [])
            lost = [run for run in runs if not any(start <= run[0] and run[1] <= end for start, end in known)]
            for start, end in lost:
                self.tried[digest] = joined(self.tried.get(digest, []), start, end)
            for account in self.accounts.values():
                if lost and account.digest == digest:
                    account.replanned_before = max(account.replanned_before, lost[-1][1])

    def accounts_of(self, subject: str) -> list[Account]:
        """Return what one subject has spent, by every definition it ever saw."""
        return [self.accounts[subject, digest] for digest in sorted(self.digests.get(subject, ()))]

    def spent(self, subject: str) -> float:
        """Epsilon of one subject over all definitions it ever saw, and what drafts will spend."""
        spent = 0.0
        for account in self.accounts_of(subject):
            draft = self.drafts.get(account.key)
            will_be_sent = draft is not None and draft.costs_unit and not draft.local
            spent += account.spent + (account.epsilon_per_unit if will_be_sent else 0.0)
        return spent

    def reserved(self, subject: str) -> float:
        """Epsilon that is reserved for one subject's metrics, spent or not."""
        return sum(account.reserved_epsilon for account in self.accounts_of(subject))

    def accounting(self) -> dict[str, Any]:
        """Return the counters; both identities in the module's docstring hold between them."""
        return {
            "recorded": self.chosen + self.superseded + self.ignored.total(),
            "chosen": self.chosen,
            "superseded": self.superseded,
            "ignored": {reason: self.ignored[reason] for reason in IGNORED},
            "formed": self.formed,
            "stood_in": self.stood_in,
            "acknowledged": self.acknowledged,
            "spooled": self.spooled,
            "quarantined": self.quarantined,
            "dropped": {reason: self.dropped[reason] for reason in DROPPED},
            "damaged_records": self.damaged,
        }
