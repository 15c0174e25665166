"""Reads clusters in the short form: `8x8xA100` means 8 servers with 8 A100 GPUs each."""

from __future__ import annotations

import re
from typing import Any

from gangline._support.safe import safe
from gangline.errors import ClusterError

__all__ = ["keys_of_text"]

_PART = re.compile(r"\s*(\d{1,18})\s*[xX×]\s*(\d{1,18})\s*[xX×]\s*([^,]*[^,\s])\s*", re.ASCII)
_COUNTS = re.compile(r"\s*(\d{1,18})\s*[xX×]\s*(\d{1,18})\s*[xX×]?\s*", re.ASCII)


def keys_of_text(text: str) -> dict[str, Any] | None:
    """Return the keys of a cluster written as SERVERSxGPUSxTYPE; None for any other string.

    Several blocks are separated by commas. All servers are in one rack, and the memory of the GPUs
    is unknown.

    Raises
    ------
    ClusterError
        If the string begins with a digit but does not have this form. The name of a preset never
        begins with a digit.

    Examples
    --------
    >>> keys_of_text("8x8xA100")["servers"]
    [{'count': 8, 'gpu': 'A100', 'gpus': 8}]
    >>> keys_of_text("pollux-64") is None
    True
    """
    if not text.strip()[:1].isdigit():
        return None
    blocks = []
    for part in text.split(","):
        found = _PART.fullmatch(part)
        if found is None:
            raise _wrong(text, part)
        servers, gpus, gpu = found.groups()
        blocks.append({"count": int(servers), "gpu": gpu, "gpus": int(gpus)})
    types = dict.fromkeys(block["gpu"] for block in blocks)
    return {"name": text.strip(), "gpu_types": [{"name": gpu} for gpu in types], "servers": blocks}


def _wrong(text: str, part: str) -> ClusterError:
    counts = _COUNTS.fullmatch(part)
    hint = "such as 8x8xA100 for 8 servers with 8 A100 each, or 8x8xA100,4x4xV100"
    if counts is not None:
        servers, gpus = counts.groups()
        hint = f"such as {servers}x{gpus}xA100; use any word if the GPU type does not matter"
    message = f"cluster: expected SERVERSxGPUSxTYPE, {hint}; got `{safe(part.strip(), 80)}`"
    return ClusterError(message, key="cluster", value=safe(text, 200))
