"""Ten lines in an app: record a value here, send only what two randomizations left of it."""

from hubbub import Client

client = Client("metrics.toml", "state", "http://127.0.0.1:8000")
client.set_consent("on")  # ask first: it is off until you say so, and remembered
client.record("homepage", "https://example.org/")  # returns at once, never raises
