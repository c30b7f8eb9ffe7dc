"""Send all reports now: for debug mode and for tests of host applications."""

from __future__ import annotations

import math
import time

from hubbub.sdk.recording.batch_builder import BatchBuilder
from hubbub.sdk.recording.recorder import Recorder
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.sender import Sender


def send_all_now(
    journal: Journal, recorder: Recorder, builder: BatchBuilder, sender: Sender, seconds: float = math.inf
) -> int:
    """End every period now and send all reports, without their random delays; return the number of attempted uploads.

    Later recordings belong to the next period.

    seconds : no upload is started after this time
    """
    deadline = time.monotonic() + seconds

    def end_periods(state: State) -> list[str]:
        recorder.record_postponed(state)
        if not journal.lock_unavailable:
            builder.build_all(state, include_open_periods=True)
        return list(state.queue)

    batch_ids = journal.run(end_periods)
    return sum(sender.send_now(batch_id) for batch_id in batch_ids if time.monotonic() < deadline)
