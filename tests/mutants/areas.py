"""Which modules are mutated, and the folders of tests in which a reader looks for them: the module's own and a neighbour's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Area:
    """Patterns of modules, and folders of tests."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]

    def files(self) -> list[str]:
        """Modules with code, in order."""
        found = (file for pattern in self.modules for file in sorted(ROOT.glob(pattern)))
        return [file.relative_to(ROOT).as_posix() for file in found if file.name != "__init__.py"]


AREAS = {
    "encoding": Area(
        ("client/hubbub/encoding/*.py", "client/hubbub/hashing/*.py", "client/hubbub/mechanisms/*.py"),
        ("tests/client/encoding", "tests/client/metrics"),
    ),
    "privacy": Area(
        ("client/hubbub/privacy/*.py", "client/hubbub/sdk/transparency/consent_notice.py"),
        ("tests/client/privacy", "tests/client/transparency"),
    ),
    "ingest": Area(
        (
            "aggregator/hubbub_aggregator/api/ingest.py",
            "aggregator/hubbub_aggregator/api/batch_validation.py",
            "aggregator/hubbub_aggregator/api/request_body.py",
            "aggregator/hubbub_aggregator/api/authentication.py",
            "aggregator/hubbub_aggregator/pipeline/*.py",
        ),
        ("tests/aggregator/api", "tests/aggregator/pipeline"),
    ),
    "store": Area(
        ("aggregator/hubbub_aggregator/store/*.py",), ("tests/aggregator/store", "tests/aggregator/pipeline")
    ),
    "estimators": Area(
        ("decoder/hubbub_decoder/estimators/**/*.py",), ("tests/decoder/estimators", "tests/decoder/inference")
    ),
    "inference": Area(
        ("decoder/hubbub_decoder/inference/*.py",), ("tests/decoder/inference", "tests/decoder/estimators")
    ),
}
