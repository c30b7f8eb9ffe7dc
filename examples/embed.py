"""Record a value in an app: only randomized bits of it are sent."""

from hubbub import Client

client = Client("metrics.toml", "state", "http://127.0.0.1:8000")
client.set_consent("on")  # off by default; ask the user first; show client.consent.effective
client.record("homepage", "https://example.org/")  # does not wait for the network; never raises
