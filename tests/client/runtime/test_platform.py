"""On a system without POSIX (Windows), the client imports, pauses and writes nothing. A process that hides POSIX stands for it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.support.no_posix import names_of, posix_modules, typeshed
from tests.support.paths import DATA, REPOSITORY

BEGIN = "from tests.support.no_posix import hide_posix\nhide_posix()\n"
APP = """
import asyncio, itertools, json, logging, sys, warnings
from pathlib import Path
place, definitions = Path(sys.argv[1]), sys.argv[2]
warnings.simplefilter("error")
from hubbub import Client
from hubbub.testing import RecordingTransport, Seams, raise_internal_errors
logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append((record.levelname, record.getMessage()))
logging.getLogger("hubbub").addHandler(handler)
options = ({}, {"durability": "memory"}, {"durability": "power"}, {"detached": True}, {"per_subject": True}, {"pause_when_automated": False},
           {"seams": Seams(transport=RecordingTransport())})
environments = ({}, {"CI": "1"}, {"HUBBUB_CONSENT": "on"}, {"HUBBUB_CONSENT": "local"}, {"HUBBUB_DEBUG": "1"}, {"DO_NOT_TRACK": "1"})
for option, environment in itertools.product(options, environments):
    logged.clear()
    with raise_internal_errors():
        client = Client(definitions, place, "https://example.org", environment=environment, **option)
        granted = client.set_consent("on", "text")
        for _ in range(3):
            client.record("homepage", "a")
        client.subject("someone").record("homepage", "a")
        asyncio.run(client.arecord("homepage", "b"))
        client.flush(0.2)
        client.inspect(), client.inspect_html(), client.ledger()
        found = {"about": str((option, environment)), "paused": client.consent.paused, "effective": client.consent.effective,
                 "ignored": client.accounting().ignored, "granted": granted, "withdrawn": client.set_consent("off"),
                 "files": sorted(map(str, place.parent.rglob("*")))}
        client.close()
    print(json.dumps(found | {"warned": [text for level, text in logged if level == "WARNING"]}))
"""


def run(program: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BEGIN + program, *arguments]
    return subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=120, check=False, cwd=REPOSITORY
    )


def test_what_is_hidden() -> None:
    assert {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix"} <= posix_modules()
    assert not {"os", "signal", "socket", "select", "msvcrt", "winreg"} & posix_modules()
    stub = typeshed() / "os" / "__init__.pyi"
    hidden = names_of(stub, on_windows=False) - names_of(stub, on_windows=True)
    assert {"fork", "register_at_fork", "getuid", "geteuid", "O_NOFOLLOW", "O_CLOEXEC", "uname", "pread"} <= hidden
    assert not {"open", "O_RDWR", "O_BINARY", "fsync", "getpid", "replace", "startfile"} & hidden


def test_every_module_of_the_client_is_imported() -> None:
    done = run(
        "import pkgutil, importlib, hubbub\n"
        "names = [module.name for module in pkgutil.walk_packages(hubbub.__path__, 'hubbub.') if module.name != 'hubbub.__main__']\n"
        "print(len([importlib.import_module(name) for name in names]))"
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_every_client_is_paused_and_writes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "app" / "state"
    place.parent.mkdir()
    done = run(APP, str(place), str(DATA / "metrics.toml"))
    assert done.returncode == 0, done.stderr
    clients = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(clients) == 7 * 6
    for found in clients:
        assert found["paused"] == "platform (win32)", found
        assert found["effective"] == "off", found
        assert found["ignored"] == {**dict.fromkeys(found["ignored"], 0), "consent": 5}, found
        assert (found["granted"], found["withdrawn"]) == (False, True), found
        assert found["files"] == [], found
        assert ["platform (win32)" in text for text in found["warned"]] == [True], found


def test_a_withdrawal_leaves_a_state_that_was_copied_there(tmp_path: Path) -> None:
    """It cannot be locked, so the withdrawal is not saved, and the client says so."""
    program = """
import logging, sys
from hubbub import Client
logging.basicConfig(level=logging.WARNING)
client = Client(sys.argv[1], sys.argv[2], "https://example.org")
print(client.set_consent("off"), client.consent.level)
"""
    state = tmp_path / "state"
    shutil.copytree(DATA / "journals" / "lived", state)
    before = {path: path.read_bytes() for path in state.iterdir()}
    done = run(program, str(DATA / "metrics.toml"), str(state))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False on\n"), done.stdout
    assert "not all of it was saved: this process is paused, platform (win32)" in done.stderr
    assert {path: path.read_bytes() for path in state.iterdir()} == before


COMMANDS = """
import json, sys
from click.testing import CliRunner
from hubbub.cli import main
for line in sys.stdin:
    words = json.loads(line)
    done = CliRunner().invoke(main, words)
    ended = done.exception is None or isinstance(done.exception, SystemExit)
    print(json.dumps([words, done.exit_code, done.output, ended or repr(done.exception)]))
"""


def test_commands_end_with_a_result_or_a_sentence(tmp_path: Path) -> None:
    state, metrics = DATA / "journals" / "lived", str(DATA / "metrics.toml")
    before = {path: path.read_bytes() for path in state.iterdir()}
    helps = [[entry.name, "--help"] for entry in entry_points(group="hubbub.commands")]
    results = [
        ["--help"],
        *helps,
        ["encode", metrics, "homepage", "x"],
        ["metrics", "check", metrics],
        ["inspect", str(state)],
        ["doctor", "--state", str(state)],
    ]
    refusals = [
        ["inspect", str(state), "--identity", "new"],
        ["inspect", str(state), "--identity", "keep"],
        ["serve", metrics, "--database", str(tmp_path / "reports.db")],
    ]
    done = run(COMMANDS, given="".join(json.dumps(words) + "\n" for words in (*results, *refusals)))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(results) + len(refusals) > 20
    for words, code, output, ended in lines:
        assert ended is True, (words, ended)
        if words in refusals:
            assert code == 1, (words, output)
            assert output.startswith("Error: "), (words, output)
            assert "use Linux or macOS" in output, (words, output)
        else:
            assert code == 0 or words[0] == "doctor", (words, output)
            assert output, words
    assert {path: path.read_bytes() for path in state.iterdir()} == before
    assert list(tmp_path.iterdir()) == []
