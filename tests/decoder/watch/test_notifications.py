"""`hubbub watch --webhook` and `--atom`: what is sent, what a failure leaves, and what a feed reader gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hubbub import Metric, UnaryResponse
from hubbub.cli import main
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.summary import write_summary
from hubbub_decoder import simulate
from hubbub_decoder.watch import notifications
from tests.support.atom import atom_problems

HOSTILE = "<b>&amp;\x1b[31m\u202e]]></b>"
NAMES = (HOSTILE, "light")
THEME = Metric.categorical("theme", NAMES, UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0), period="week")
ATOM = "{http://www.w3.org/2005/Atom}"


class Webhook(ThreadingHTTPServer):
    """Answers each POST with `status`, and None never; keeps the bodies."""

    def __init__(self, status: int | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.bodies, self.end = status, list[dict[str, Any]](), Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/SECRET?key=SECRET"


class _Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self.server.status is None:
            while not self.server.end.wait(0.05):  # bytes that keep a socket's timeout from ending
                self.wfile.write(b"H")
            return
        follows = self.path == "/elsewhere"  # a redirect, and is accepted
        self.send_response(200 if follows else self.server.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def webhook(status: int | None) -> Iterator[Webhook]:
    with Webhook(status) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.end.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def watched(tmp_path: Path) -> list[str]:
    """Arguments of a watch whose last week has a leap of 40 points."""
    period = Period.containing(PeriodKind.WEEK, (datetime.now(UTC) - timedelta(weeks=4)).date())
    rng, files = np.random.default_rng(7), list[str]()
    for number in range(4):
        first = 16_000 if number == 3 else 8_000
        files.append(str(tmp_path / f"{number}.parquet"))
        write_summary(simulate(THEME, {HOSTILE: first, "light": 20_000 - first}, rng, periods=[str(period)]), files[-1])
        period = period.next()
    return [
        "watch",
        *files,
        "--database",
        str(tmp_path / "watch.sqlite"),
        "--open-after",
        "0",
        "--false-alarms",
        "1e-6",
    ]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def test_new_alarms_are_posted_once(watched: list[str]) -> None:
    """With their numbers, and with sentences on printable lines; a second run has nothing to send."""
    with webhook(204) as server:
        result = run(*watched, "--webhook", server.url)
        assert result.exit_code == 3, result.output
        assert run(*watched, "--webhook", server.url).exit_code == 0
    (body,) = server.bodies
    assert body["metric"] == THEME.to_dict()
    assert body["digest"] == THEME.digest
    assert {(alarm["value"], alarm["side"]) for alarm in body["alarms"]} == {(HOSTILE, "above"), ("light", "below")}
    assert [line.isprintable() for line in body["text"].split("\n")] == [True, True]
    assert "light changed by -4" in body["text"]


@pytest.mark.parametrize("status", [500, 302, None], ids=["an error", "a redirect", "no answer"])
def test_alarms_of_a_failed_webhook_are_sent_by_the_next_run(
    status: int | None, watched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command fails without showing the secret URL, and the next run sends the same alarms, and then none."""
    monkeypatch.setattr(notifications, "WEBHOOK_SECONDS", 0.5)
    with webhook(status) as server:
        failed = run(*watched, "--webhook", server.url)
    assert failed.exit_code == 1
    assert "the webhook at 127.0.0.1" in failed.stderr
    assert "SECRET" not in failed.output
    monkeypatch.undo()
    assert run(*watched, "--webhook", server.url).exit_code == 1  # nobody listens any more
    with webhook(200) as again:
        assert run(*watched, "--webhook", again.url).exit_code == 3
        assert run(*watched, "--webhook", again.url).exit_code == 0
    assert again.bodies == server.bodies[:1]


@pytest.mark.parametrize(
    "url",
    ["http://chat.example.org/SECRET", "https://u:SECRET@host/", "SECRET", "https://[::1/SECRET", "file:///SECRET"],
)
def test_urls_that_are_not_sent_to_are_refused(url: str, watched: list[str]) -> None:
    result = CliRunner().invoke(main, watched, env={"HUBBUB_WEBHOOK": url})
    assert result.exit_code == 2
    assert "must be https" in result.stderr
    assert "SECRET" not in result.output


def entries(path: Path) -> list[Element]:
    return fromstring(path.read_bytes()).findall(f"{ATOM}entry")  # noqa: S314  (our file)


def test_feed_has_the_alarms_of_all_runs_and_the_same_bytes_without_new_ones(
    watched: list[str], tmp_path: Path
) -> None:
    """RFC 4287: the feed and each entry have one id, title and time; an entry without a link has content."""
    path = tmp_path / "alarms.atom"
    three = [argument for argument in watched if not argument.endswith("3.parquet")]
    assert run(*three, "--atom", str(path)).exit_code == 0
    assert entries(path) == []
    assert atom_problems(path.read_bytes()) == []
    assert run(*watched, "--atom", str(path)).exit_code == 3
    first = path.read_bytes()
    assert atom_problems(first) == []
    assert run(*watched, "--atom", str(path)).exit_code == 0
    assert path.read_bytes() == first
    found, feed = entries(path), fromstring(first)  # noqa: S314  (our file)
    assert len(found) == len({entry.findtext(f"{ATOM}id") for entry in found}) == 2
    for element in (feed, *found):
        for name in ("id", "title", "updated"):
            (part,) = element.findall(f"{ATOM}{name}")
            assert part.text
            assert part.text.isprintable()
    days = {entry.findtext(f"{ATOM}updated") for entry in found}
    assert days == {feed.findtext(f"{ATOM}updated")}
    assert all(datetime.fromisoformat(str(day)).tzinfo for day in days)
    titles = [entry.findtext(f"{ATOM}title") or "" for entry in found]
    assert any("light has changed" in title for title in titles)
    texts = [entry.findtext(f"{ATOM}content") or "" for entry in found]
    assert any("<b>&amp;\\x1b[31m\\u202e]]></b> changed by +4" in text for text in texts)


def test_file_of_the_feed_is_checked_before_the_work(watched: list[str], tmp_path: Path) -> None:
    result = run(*watched, "--atom", str(tmp_path / "none" / "alarms.atom"))
    assert result.exit_code == 1
    assert "there is no directory" in result.stderr
    assert not (tmp_path / "watch.sqlite").exists()


@pytest.mark.parametrize("option", ["--atom", "--out"])
def test_an_output_never_replaces_what_the_command_reads(option: str, watched: list[str], tmp_path: Path) -> None:
    """A summary and the database, which the run before has made, also if their names end as the output's."""
    summary = next(Path(argument) for argument in watched if argument.endswith(".parquet"))
    database = tmp_path / "watch.csv"
    named = [argument.replace("watch.sqlite", database.name) for argument in watched]
    assert run(*named).exit_code == 3
    link = tmp_path / "link.csv"
    link.symlink_to(summary)
    for path, read in ((link, summary), (database, database)):
        before = read.read_bytes()
        result = run(*named, option, str(path))
        assert (result.exit_code, read.read_bytes()) == (1, before)
        assert "is an input of this command, and would be lost. Name another file." in result.stderr


def test_file_of_alarms_ends_in_csv(watched: list[str], tmp_path: Path) -> None:
    result = run(*watched, "--out", str(tmp_path / "alarms.parquet"))
    assert (result.exit_code, "must end in .csv" in result.stderr) == (1, True)
