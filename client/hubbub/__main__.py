"""`python -m hubbub`: the `hubbub` command."""

from __future__ import annotations

from hubbub.cli import main

main(prog_name="hubbub")
