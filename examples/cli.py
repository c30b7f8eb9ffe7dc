"""A command-line program that exits at once.

Its recordings are durable when `record` returns. Once a day, a run starts a process that sends the reports that are due.

python cli.py STATE greet ada
"""

from __future__ import annotations

from pathlib import Path

import click

from hubbub import Client

METRICS = Path(__file__).with_name("app_metrics.toml")


@click.group()
@click.argument("state")
@click.pass_context
def main(context: click.Context, state: str) -> None:
    """Greet people, and record which command was used."""
    client = context.obj = Client(METRICS, state, "http://127.0.0.1:8000", detached=True)
    client.set_consent("on")  # a real program asks the user once
    client.record("command", context.invoked_subcommand)


@main.command()
@click.argument("name")
def greet(name: str) -> None:
    """Print a greeting."""
    click.echo(f"hello {name}")


if __name__ == "__main__":
    main()
