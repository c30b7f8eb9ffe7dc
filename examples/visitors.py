"""Play 50 installations of an app: each records one value and sends its report at once."""

from hubbub import Client
from hubbub.testing import deliver

for visitor in range(50):
    client = Client("metrics.toml", f"visitors/{visitor}", "http://127.0.0.1:8000")
    client.set_consent("on")  # an app asks its user first
    client.record("homepage", "https://example.org/")
    deliver(client)  # tests only: send the report now instead of at a random time tomorrow
    client.close()
