"""`hubbub serve --segments s3://bucket` as a process of its own, and its memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread


@contextmanager
def served(definitions: Path, database: Path) -> Iterator[tuple[str, int]]:
    """Run `hubbub serve --segments s3://bucket`; yields its URL and process id."""
    program = str(Path(sys.executable).with_name("hubbub"))
    command = [program, "serve", str(definitions), "--port", "0", "--database", str(database)]
    options = ["--segments", "s3://bucket", "--create", "--max-queue-bytes", "1MiB", "--client-rate", "100000"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        for line in service.stderr:
            if found := re.search(r"listening on (\S+)", line):
                break
        assert found
        reader = Thread(target=service.stderr.read)  # the log of failed commits
        reader.start()
        try:
            yield found[1], service.pid
        finally:
            service.terminate()
            reader.join()


def resident_bytes(pid: int) -> int:
    return int((Path("/proc") / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
