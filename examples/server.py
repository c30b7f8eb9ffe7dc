"""A FastAPI app with one client for its own installation, and one client with a subject per user.

python server.py STATE PORT
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from hubbub import Client

METRICS = Path(__file__).with_name("app_metrics.toml")
AGGREGATOR = "http://127.0.0.1:8000"


def create_app(state: Path) -> FastAPI:
    """Create the app with two clients: one for the installation, one for its users."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Client]]:
        with (
            Client(METRICS, state / "installation", AGGREGATOR) as installation,
            Client(METRICS, state / "users", AGGREGATOR, per_subject=True) as users,
        ):
            for client in (installation, users):
                client.set_consent("on")
            await installation.arecord("dark_mode", False)
            app.state.users = users
            yield {}

    app = FastAPI(lifespan=lifespan)

    @app.post("/users/{user}/open")
    async def open_document(user: str) -> dict[str, str]:
        await app.state.users.subject(user).arecord("command", "open")
        return {"opened": "document"}

    return app


if __name__ == "__main__":
    uvicorn.run(create_app(Path(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
