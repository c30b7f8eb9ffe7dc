"""Imports of the decoder: `hubbub decode` of a few candidates takes about a second, most of it imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW_MODULES = {
    "scipy.stats": "0.35 s; use hubbub_decoder.model.distributions",
    "scipy.optimize": "0.15 s; write the few steps that are needed",
    "sklearn": "0.2 s; import it in the function that needs it",
    "matplotlib": "0.3 s; import it in the function that needs it",
    "pyarrow.dataset": "0.04 s; read files with pyarrow.parquet.ParquetFile",
}


@pytest.mark.parametrize("module", SLOW_MODULES)
def test_decode_does_not_import_slow_modules(module: str) -> None:
    program = (
        "import sys\n"
        "from hubbub import Metric\n"
        "from hubbub.summary import BitCounts, summary_from_bytes, summary_to_bytes\n"
        "import hubbub_decoder.cli.decode, hubbub_decoder.pipeline, hubbub_decoder.results.terminal\n"
        "os = Metric.boolean('os', prob_p=0, prob_q=1, prob_f=0.5)\n"
        "summary = summary_from_bytes(summary_to_bytes(BitCounts(os, [1000], [[400]])))\n"
        "hubbub_decoder.pipeline.decode(summary)\n"
        f"sys.exit({module!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0, SLOW_MODULES[module]
