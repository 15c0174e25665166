"""Writes JSON files with seals, without gangline: the SHA-256 of the file with zeros in it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ZEROS = "0" * 64


def put_sealed(path: Path, kind: str, data: Mapping[str, Any]) -> None:
    """Write JSON like another program that knows the form of a seal."""
    content = {key: value for key, value in data.items() if key != "seal"}
    text = json.dumps({"seal": f"gangline {kind} {ZEROS}", **content})
    digits = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(text.replace(ZEROS, digits, 1))
