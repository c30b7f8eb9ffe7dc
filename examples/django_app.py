"""A Django project in one file, with a subject per user. `telemetry` makes one client for each process.

STATE=/var/lib/my-app/hubbub gunicorn --workers 2 django_app:application
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from hubbub import Client

METRICS = Path(__file__).with_name("app_metrics.toml")
AGGREGATOR = "http://127.0.0.1:8000"


@cache
def telemetry() -> Client:
    """Return the client of this process. Management commands such as `migrate` never create it."""
    client = Client(METRICS, os.environ["STATE"], AGGREGATOR, per_subject=True)
    client.set_consent("on")  # a real app asks each user, and records only for those who agreed
    return client


def open_document(request: HttpRequest, user: str) -> JsonResponse:  # noqa: ARG001  (signature of Django)
    telemetry().subject(user).record("command", "open")
    return JsonResponse({"opened": "document"})


urlpatterns = [path("users/<str:user>/open", open_document)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"])
application = get_wsgi_application()
