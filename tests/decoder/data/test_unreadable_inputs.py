"""Inputs that are too large or cannot be read: the message has the value, the rule and the next step."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub import HubbubError, Metric, Params
from hubbub.cli import main
from hubbub.summary import BitCounts, write_summary
from hubbub_decoder.batch_decoding.tasks import find_tasks
from hubbub_decoder.data import candidates
from hubbub_decoder.data.candidates import MAX_FILE_BYTES, read_candidates
from hubbub_decoder.data.weights import read_weights
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.options import Options

NOBODY = 65534


@pytest.mark.parametrize("read", [read_candidates, read_weights])
@pytest.mark.parametrize("excess", [1, 150 << 20])
def test_larger_files_are_refused_with_their_size(read: object, excess: int, tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + excess)
    with pytest.raises(
        CandidateError,
        match=rf"has {MAX_FILE_BYTES + excess:,} bytes, and at most {MAX_FILE_BYTES:,} are read.* Keep the most likely",
    ):
        read(path)  # type: ignore[operator]


def test_larger_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MAX_FILE_BYTES", 1000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc\n" * 251)))
    with pytest.raises(CandidateError, match="- has more than 1,000 bytes, and at most 1,000 are read"):
        read_candidates("-")


def test_files_up_to_the_limit_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MAX_FILE_BYTES", 8)
    (tmp_path / "names.txt").write_text("abc\ndef\n")
    assert read_candidates(tmp_path / "names.txt") == ["abc", "def"]


@pytest.fixture
def directory() -> Iterator[Path]:
    """Directory without permissions, as seen by a user who is not root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        closed = Path(name) / "closed"
        closed.mkdir()
        closed.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(NOBODY)
        yield closed
        os.seteuid(user)
        closed.chmod(0o755)


@pytest.mark.parametrize("below", [False, True])
def test_an_unreadable_directory_of_summaries_is_not_called_empty(directory: Path, below: bool) -> None:
    tasks, unreadable = find_tasks(directory.parent if below else directory, None, Options())
    assert tasks == []
    assert [file.path for file in unreadable] == [directory]
    assert "the directory cannot be read: Permission denied. Run the command as" in unreadable[0].reason


def test_an_unreadable_state_directory_is_not_called_foreign(directory: Path) -> None:
    ended = CliRunner().invoke(main, ["inspect", str(directory)])
    assert ended.exit_code == 1
    assert "cannot be read (Permission denied): run the command as the user of the app" in ended.output


def test_an_unreadable_directory_of_candidates_is_one_error(directory: Path) -> None:
    metric = Metric.string("page", Params(num_bits=8, num_hashes=1, num_cohorts=4, prob_p=0.2, prob_q=0.8, prob_f=0))
    user = os.geteuid()
    os.seteuid(os.getuid())
    write_summary(BitCounts(metric, [100] * 4, [[30] * 8] * 4, ["2026-03-02"]), directory.parent / "page.parquet")
    (directory.parent / "page.parquet").chmod(0o644)
    os.seteuid(user)
    with pytest.raises(CandidateError, match=r"closed cannot be read: Permission denied. Run the command as"):
        find_tasks(directory.parent, directory, Options())


def test_an_unreadable_candidate_file_is_one_error(directory: Path) -> None:
    with pytest.raises(HubbubError, match="cannot be read: Permission denied"):
        read_candidates(directory / "names.txt")
