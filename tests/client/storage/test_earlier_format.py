"""A state directory that a client with the first format of the permanent response wrote.

`tests/data/state_version_1` was written by commit e80e62f3: three metrics, reports of two days, a draft of the third day.
"""

from __future__ import annotations

import shutil

from hubbub import Metric, Params, Policy, UnaryResponse
from hubbub.client import collaborators
from hubbub.testing import deliver
from tests.client.conftest import Rig, require_balanced
from tests.support.paths import DATA

SHAPE = Params(num_bits=64, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.5)
METRICS = (
    Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)),
    Metric.string("page", SHAPE, hold=7),
    Metric.string("theme", SHAPE),
)


def test_earlier_format_is_another_enrollment_that_is_charged_again(rig: Rig) -> None:
    """The secret and the budget that was spent stay; the same values and the same epoch cost one more unit each."""
    shutil.copytree(DATA / "state_version_1", rig.state)
    (rig.state / "secret").chmod(0o600)
    before = (rig.state / "secret").read_bytes()
    rig.clock.move(days=2)
    client = rig.client(*METRICS, policy=Policy())
    client.record("dark", True)
    client.record("page", "a")
    deliver(client)
    ledger = client.ledger()
    assert (rig.state / "secret").read_bytes() == before
    assert ledger.enrollments == 2
    units = {account.metric: account.units for account in ledger.accounts}
    assert units == {"dark": 2, "page": 2, "theme": 3}
    # The draft of an epoch is deleted. A value may have been spent, whatever was recorded.
    limits = {account.metric: account.reserved_units for account in ledger.accounts}
    assert limits == {
        "dark": 1 + 1 + 2,
        "page": 1 + 4,
        "theme": 2 + 1 + 4,
    }
    require_balanced(client.accounting())
    with collaborators(client).journal as state:
        assert {len(account.tags) for account in state.accounts.values() if account.unit == "value"} == {1}
