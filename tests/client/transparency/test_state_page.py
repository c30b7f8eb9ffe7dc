"""Page of what a client holds and has sent: reports as bits, never values; untrusted text escaped; readable in a browser."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from hubbub import Client, Metric, UnaryResponse
from hubbub.cli import main
from hubbub.client import collaborators
from hubbub.sdk.runtime import error_guard
from hubbub.sdk.storage.state import State
from hubbub.sdk.transparency.state_page import MAX_SHOWN_REPORTS, state_page
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.testing import deliver
from tests.client.conftest import HOMEPAGE, SURVEY, Rig, logged
from tests.contracts.test_values_never_leak import CANARY, METRIC, hidden
from tests.support.chromium import chromium, requested, require

HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\x1b\ud800"
OS = Metric.categorical(
    "os",
    ("linux", "mac", "other"),
    UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5),
    other="other",
    description="Operating system",
    purpose="decide which systems to test",
)


DEVICE = Metric.joint("device", (OS, Metric.boolean("paid", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))))
VALUES: dict[str, Any] = {"os": "mac", "survey": True, "homepage": CANARY, "device": ("mac", True)}


def used_client(rig: Rig, *metrics: Metric, **options: Any) -> Client:
    """A client with a report of the current period, queued, sent and refused reports, and a hostile consent text."""
    client = rig.client(*metrics, **options)
    client.set_consent("on", "Notice of 2026-11. " + HOSTILE)
    refused = UploadResponse(422, problem="wrong-size")
    rig.transport.responses = [refused]
    for _ in range(3):
        for metric in metrics:
            client.record(metric.name, VALUES[metric.name])
        deliver(client)
        rig.clock.move(days=1)
    for metric in metrics:
        client.record(metric.name, VALUES[metric.name])
    rig.clock.move(days=1)
    with collaborators(client).journal as state:
        collaborators(client).builder.build_all(state)
    for metric in metrics:
        client.record(metric.name, VALUES[metric.name])
    collaborators(client).uploader.stop()
    return client


def bits_of(row: bytes, num_bits: int | None = None) -> str:
    bits = "".join(f"{byte:08b}"[::-1] for byte in row)[:num_bits]
    return " ".join(bits[start : start + 8] for start in range(0, len(bits), 8))


def test_page_shows_every_report_held_and_sent_as_bits(rig: Rig) -> None:
    client = used_client(rig, HOMEPAGE, OS)
    shown = client.inspect_html()
    with collaborators(client).journal as state:
        reports = [draft.report.bits for draft in state.drafts.values()]
        batches = [queued.batch for queued in state.queue.values()]
        batches += [*state.last_sent.values(), *(batch for batch, _ in state.quarantine.values())]
        reports += [batch.rows for batch in batches]
        assert (len(state.drafts), len(state.queue), len(state.quarantine)) == (2, 2, 1)
    assert len(reports) == shown.count('class="bits"') >= 10
    for row in reports:
        assert f">{bits_of(row, 64 if len(row) == 8 else 3)}</code>" in shown
    for text in ("Operating system", "decide which systems to test", "wrong-size", "current period, not complete"):
        assert text in shown


def test_page_shows_reports_of_a_joint_metric(rig: Rig) -> None:
    shown = used_client(rig, DEVICE).inspect_html()
    assert shown.count('class="bits"') >= 5
    assert {len(bits) for bits in re.findall(r'class="bits"[^>]*>([01 ]+)</code>', shown)} == {4}


def test_page_has_no_value_no_permanent_bits_and_no_secret(rig: Rig) -> None:
    client = used_client(rig, METRIC)
    needles = [needle.decode("latin-1") for needle in hidden(client, (rig.state / "secret").read_bytes())]
    encoder = next(iter(collaborators(client).encoders._encoders.values())).encoder
    needles += [bits_of(number.to_bytes(16, "little")) for number in (encoder.bloom_bits(CANARY),)]
    with collaborators(client).journal as state:
        for account in state.accounts.values():
            needles += [account.tag.hex(), account.sealed.hex()]
    shown = client.inspect_html()
    assert bits_of(rig.transport.batches[0].rows) in shown
    assert not [needle for needle in needles if needle in shown]


def test_text_of_others_stays_text(rig: Rig) -> None:
    shown = used_client(rig, HOMEPAGE).inspect_html()
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert not re.search(r"<img|onerror=[^&]*>|\ud800", shown.replace("onerror=alert(1)&gt;", ""))


def test_command_writes_the_page_of_the_client(rig: Rig, tmp_path: Path) -> None:
    client, file = used_client(rig, HOMEPAGE), tmp_path / "page.html"
    done = CliRunner().invoke(main, ["inspect", str(rig.state), "--html", str(file), "--last", "2"])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"wrote {file}\n")
    unknown = " from any number of reports of these answers"  # the command has no definitions
    assert file.read_text().replace(unknown, "") == client.inspect_html(last=2)  # no padding bits, no description
    assert client.inspect_html(last=2).count(">sent<") == 2 < client.inspect_html().count(">sent<")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--html", "{missing}/page.html"], "cannot write"),
        (["--html", "{tmp}"], "it is a directory; name a file in it"),
        (["--html", "{tmp}/page.pdf"], "must end in .html"),
        (["--definitions", "metrics.toml"], "needs --html"),
        (["--identity", "new", "--last", "2"], "Leave out --last"),
        (["--identity", "keep", "--html", "{tmp}/page.html"], "Leave out --last and --html"),
        (["--identity", "newer"], "'newer' is not one of 'new', 'keep'"),
    ],
)
def test_command_refuses_wrong_options(arguments: list[str], text: str, rig: Rig, tmp_path: Path) -> None:
    used_client(rig, SURVEY)
    given = [argument.format(tmp=tmp_path, missing=tmp_path / "missing") for argument in arguments]
    done = CliRunner().invoke(main, ["inspect", str(rig.state), *given])
    assert done.exit_code in (1, 2)
    assert text in done.stderr


def test_command_counts_ignored_recordings_apart(rig: Rig) -> None:
    client = rig.client(SURVEY)
    client.record(SURVEY.name, True)  # before consent
    client.set_consent("on")
    client.record(SURVEY.name, True)
    deliver(client)
    shown = CliRunner().invoke(main, ["inspect", str(rig.state)]).stdout
    assert "\nrecorded 2 (1 of them ignored), formed 1, acknowledged 1, " in shown


def test_page_of_many_subjects_is_short(rig: Rig) -> None:
    client = rig.agreed(OS, per_subject=True)
    for n in range(300):
        client.subject(f"ada-{n}").record("os", "mac")
    deliver(client)
    shown = client.inspect_html()
    assert shown.count('class="bits"') == MAX_SHOWN_REPORTS
    assert len(shown) < 200_000
    assert f"and {300 - MAX_SHOWN_REPORTS} more reports" in shown
    assert "ada-2" not in shown


def test_page_of_an_empty_or_unusable_state(rig: Rig, tmp_path: Path) -> None:
    for text in (rig.client().inspect_html(), state_page(State())):
        assert "Nothing is recorded and nothing is sent." in text
        assert "No report is held." in text
    file = tmp_path / "file"
    file.write_text("not a directory")
    with logged("Until the directory is usable"):
        client = rig.client(state=file)
    assert "No metric has been enrolled yet." in client.inspect_html()


def test_page_is_empty_after_an_internal_error(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not say that nothing is held; a frozen program can lack the stylesheet, so that the import fails."""
    client = used_client(rig, SURVEY)
    monkeypatch.setattr(error_guard, "suppress_internal_errors", True)
    page = Mock(side_effect=lambda state, **_: "nothing is held" if not state.queue else 1 / 0)
    monkeypatch.setattr("hubbub.sdk.transparency.state_page.state_page", page)
    assert client.inspect_html() == ""
    monkeypatch.setitem(sys.modules, "hubbub.sdk.transparency.state_page", None)
    assert client.inspect_html() == ""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    require()
    with chromium(tmp_path / "profile") as started:
        yield started


@pytest.mark.slow
def test_browser_shows_the_page_without_scripts_requests_or_overflow(browser: Any, rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(used_client(rig, HOMEPAGE, OS, SURVEY).inspect_html())
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        browser.get(file.as_uri())
        assert requested(browser) == [file.as_uri()]
        for width in (320, 390, 1280):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            browser.save_screenshot(str(tmp_path / f"{scheme}-{width}.png"))
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")] == []
    browser.find_element("css selector", "details summary").click()
    assert "<script>alert(1)" in browser.find_element("css selector", "details .text").text
