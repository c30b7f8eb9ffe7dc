"""Machine id, used to notice that a state directory was copied. The id itself is neither stored nor sent."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from pathlib import Path

MACHINE_ID_FILE = Path("/etc/machine-id")
MachineIdReader = Callable[[], bytes | None]

_VALID = re.compile(rb"[0-9a-f]{32}")
_TAG_BYTES = 16


def read_machine_id(path: Path = MACHINE_ID_FILE) -> bytes | None:
    """Return the systemd id of this machine; None if there is none (macOS, most containers, an image before its first boot)."""
    try:
        with path.open("rb") as file:
            content = file.read(64).strip()
    except OSError:
        return None
    return content if _VALID.fullmatch(content) else None


def machine_tag(ledger_key: str, machine_id: bytes) -> str:
    """Return the tag of a machine in a state directory: HMAC-SHA256(ledger key, machine id), 16 bytes in hex.

    ledger_key : hex, kept in the same directory
    """
    message = b"hubbub/machine/v1" + machine_id
    return hmac.new(bytes.fromhex(ledger_key), message, hashlib.sha256).digest()[:_TAG_BYTES].hex()
