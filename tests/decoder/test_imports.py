"""Imports of the decoder: `hubbub decode` of a few candidates takes about a second, most of it imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from hubbub import Metric, Params
from hubbub.summary import write_summary
from hubbub_decoder import simulate

SLOW_MODULES = {
    "scipy.stats": "0.35 s; use hubbub_decoder.model.distributions",
    "scipy.optimize": "0.15 s; import it in the function that needs it",
    "sklearn": "0.2 s; import it in the function that needs it",
    "matplotlib": "0.3 s; import it in the function that needs it",
    "pandas": "0.3 s where it is installed; pyarrow's to_numpy and pa.array import it, hubbub.summary.summary_file.numbers_of does not",
    "pyarrow.dataset": "0.04 s; read files with pyarrow.parquet.ParquetFile",
}


def test_decode_does_not_import_slow_modules(tmp_path: Path, unseen_seed: int) -> None:
    metric = Metric.string(
        "homepage", Params(num_bits=32, num_hashes=1, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0)
    )
    clients = {f"v{number}": 1_000 for number in range(20)}
    write_summary(simulate(metric, clients, np.random.default_rng(unseen_seed)), tmp_path / "summary.parquet")
    (tmp_path / "candidates").write_text("v0\nv1\n")
    program = (
        "import sys\n"
        "from hubbub.cli import main\n"
        "try:\n"
        "    main(['decode', 'summary.parquet', '--candidates', 'candidates'])\n"
        "finally:\n"
        "    print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    imported = set(done.stdout.splitlines()[-1].split())
    # the search for other strings needs a maximum
    assert imported & SLOW_MODULES.keys() == {"scipy.optimize"}, SLOW_MODULES
