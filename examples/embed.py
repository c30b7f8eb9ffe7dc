"""Ten lines in an app: randomize a value here, send only what comes out."""

from datetime import UTC, datetime

import urllib3

from hubbub import Batch, Encoder, Period, load_definitions, secret_at

metric = load_definitions("metrics.toml")["homepage"]
encoder = Encoder(metric, secret_at("state/hubbub-secret"))  # one secret an installation
report = encoder.encode("https://example.org/")  # randomized twice; the value stays here
today = Period.containing(metric.period, datetime.now(UTC).date())
batch = Batch.of_reports(metric, today, [report])  # a retry sends the same batch again
answer = urllib3.request(
    "POST", "http://127.0.0.1:8000/v1/reports", body=batch.to_json(), headers={"Content-Type": "application/json"}
)
print(answer.status, answer.json())
