"""A Flask app with a subject per user.

STATE=/var/lib/my-app/hubbub gunicorn --preload --workers 2 'flask_app:create_app()'
"""

from __future__ import annotations

import os
from pathlib import Path

from flask import Flask

from hubbub import Client

METRICS = Path(__file__).with_name("app_metrics.toml")
AGGREGATOR = "http://127.0.0.1:8000"


def create_app() -> Flask:
    """Create the app and its client. Workers forked afterwards share the client's state."""
    client = Client(METRICS, os.environ["STATE"], AGGREGATOR, per_subject=True)
    client.set_consent("on")  # a real app asks each user, and records only for those who agreed
    app = Flask(__name__)

    @app.post("/users/<user>/open")
    def open_document(user: str) -> dict[str, str]:
        client.subject(user).record("command", "open")
        return {"opened": "document"}

    return app
