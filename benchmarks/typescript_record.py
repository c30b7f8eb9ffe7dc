"""How long does `record` of the TypeScript client keep its caller? In Node, Chromium and Firefox.

    make typescript && python -m benchmarks.typescript_record

Mean of 50 calls, because browsers round their clocks; median and largest of 100 such means, each after the recordings before are durable.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.support.browsers import start_browser
from tests.support.paths import REPOSITORY

DIST = REPOSITORY / "clients" / "typescript" / "dist"
DEFINITION = {
    "name": "homepage", "kind": "string", "num_bits": 128, "num_hashes": 2, "num_cohorts": 64, "hash_scheme": "murmur3-v1", "period": "day", "hold": 7,
    "prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5,
}  # fmt: skip
MEASURE = """
async function measure(Client, storage) {
  const client = new Client({ definitions: [%s], url: "http://127.0.0.1:9", storage, pauseWhenAutomated: false, requirePersistence: false });
  await client.setConsent("on");
  const means = [];
  for (let block = 0; block < 100; block++) {
    const outcomes = [];
    const start = performance.now();
    for (let call = 0; call < 50; call++) outcomes.push(client.record("homepage", `https://example.org/${block %% 7}`));
    means.push(((performance.now() - start) * 1000) / 50);
    for (const outcome of await Promise.all(outcomes)) if (outcome !== "recorded") throw new Error(outcome);
  }
  means.sort((a, b) => a - b);
  return [means[50], means[99]];
}
""" % json.dumps(DEFINITION)  # noqa: UP031  (braces of JavaScript)


def in_node(place: Path) -> list[float]:
    """Median and largest mean, in microseconds."""
    storage = f"new FileStorage({json.dumps(str(place))})"
    script = f"{MEASURE}\nconst {{ Client, FileStorage }} = await import({json.dumps(str(DIST / 'node.js'))});"
    script += f"console.log(JSON.stringify(await measure(Client, {storage})));"
    done = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    times: list[float] = json.loads(done.stdout)
    return times


def in_browser(name: str, place: Path, url: str) -> list[float]:
    """Median and largest mean, in microseconds."""
    measured = "import('/hubbub.js').then(({ Client, IndexedDbStorage }) => measure(Client, new IndexedDbStorage()))"
    with start_browser(name, place) as browser:
        browser.open(f"{url}/", 800, "light")
        found: list[float] = browser.run_async(f"{MEASURE}\n{measured}.then(arguments[arguments.length - 1]);")
    return found


def measurements(place: Path, url: str) -> Iterator[tuple[str, list[float]]]:
    """Yield the platforms with their times."""
    yield "Node", in_node(place / "node")
    for name in ("chromium", "firefox"):
        yield name.capitalize(), in_browser(name, place / name, url)


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(DIST)))
    Thread(target=server.serve_forever, daemon=True).start()
    print("| platform | median | largest |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as place:
        for name, (median, largest) in measurements(Path(place), f"http://127.0.0.1:{server.server_address[1]}"):
            print(f"| {name} | {median:.1f} us | {largest:.1f} us |", flush=True)


if __name__ == "__main__":
    main()
