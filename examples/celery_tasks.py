"""Celery tasks that record. The client is made before Celery forks its worker processes.

STATE=/var/lib/my-app/hubbub BROKER=redis://localhost celery --app celery_tasks worker
"""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

from hubbub import Client

METRICS = Path(__file__).with_name("app_metrics.toml")
AGGREGATOR = "http://127.0.0.1:8000"

client = Client(METRICS, os.environ["STATE"], AGGREGATOR, per_subject=True)
client.set_consent("on")  # a real app asks each user, and records only for those who agreed
app = Celery("tasks", broker=os.environ["BROKER"])


def save_document(user: str) -> None:
    client.subject(user).record("command", "save")


app.task(name="save_document", ignore_result=True)(save_document)
