"""Imports of the decoder: `hubbub decode` of a few candidates takes about a second, most of it imports."""

from __future__ import annotations

import subprocess
import sys

SLOW_MODULES = {
    "scipy.stats": "0.35 s; use hubbub_decoder.model.distributions",
    "scipy.optimize": "0.15 s; write the few steps that are needed",
    "sklearn": "0.2 s; import it in the function that needs it",
    "matplotlib": "0.3 s; import it in the function that needs it",
    "pyarrow.dataset": "0.04 s; read files with pyarrow.parquet.ParquetFile",
}


def test_decode_does_not_import_slow_modules() -> None:
    program = (
        "import sys\n"
        "from hubbub import Metric, UnaryResponse\n"
        "from hubbub.summary import BitCounts, summary_from_bytes, summary_to_bytes\n"
        "import hubbub_decoder.cli.decode, hubbub_decoder.pipeline, hubbub_decoder.documents.terminal\n"
        "os = Metric.boolean('os', UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))\n"
        "summary = summary_from_bytes(summary_to_bytes(BitCounts(os, [1000], [[400]])))\n"
        "hubbub_decoder.pipeline.decode(summary)\n"
        f"print([name for name in {list(SLOW_MODULES)} if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert printed == "[]\n", SLOW_MODULES
