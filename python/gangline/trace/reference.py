"""Describes the origin of a trace, so that the trace can be read or drawn again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from gangline._support import toml
from gangline._support.builtin_values import Json  # noqa: TC001 - msgspec reads annotations

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SYNTH", "TraceReference", "address", "hashes", "value_of"]

SYNTH = "synth:"
_CHUNK = 1 << 20


class TraceReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments with which `gangline.read_trace` returns the same jobs again.

    Parameters
    ----------
    source : str
        A file, or the `synth:` address of a generator with all of its parameters; empty for a table
        in memory.
    format : str
        The format of a file.
    options : dict
        Options of the reader that differ from their defaults.
    inputs : dict of str to str
        SHA-256 hashes of the inputs: `trace` is the hash of the file or of the table in memory;
        other keys are options and parameters that name a file, such as `models`.
    """

    source: str = ""
    format: str = ""
    options: dict[str, Json] = {}
    inputs: dict[str, str] = {}

    @property
    def identity(self) -> dict[str, Json]:
        """The inputs on which the jobs depend; files are identified by content, not by path."""
        options = {
            name: self.inputs.get(name, value)
            for name, value in self.options.items()
            if name not in ("max_bytes", "max_errors")
        }
        source = self.source if self.source.startswith(SYNTH) else ""
        return {"source": source, "format": self.format, "options": options, "inputs": self.inputs}


def address(name: str, parameters: Mapping[str, Any]) -> str | None:
    """Return the address of a generator with parameters; None if a parameter is a table in memory.

    Examples
    --------
    >>> address("synth:philly", {"seed": 1, "jobs": 20, "arrivals": "batch"})
    'synth:philly?arrivals=batch&jobs=20&seed=1'
    """
    words = []
    for key in sorted(parameters):
        try:
            text = toml.inline(parameters[key])
        except TypeError:
            return None
        plain = parameters[key]
        if isinstance(plain, str) and value_of(plain) == plain:
            text = plain
        words.append(f"{key}={quote(text, safe='/')}")
    return f"{name}?{'&'.join(words)}" if words else name


def value_of(text: str) -> object:
    """Return the value of a parameter in an address: a TOML value, or else the plain string."""
    try:
        return toml.loads(f"v = {text}")["v"]
    except ValueError:
        return text


def hashes(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of every file that a value names."""
    return {
        name: _sha256(Path(value))
        for name, value in values.items()
        if isinstance(value, str) and _is_file(value)
    }


def _is_file(text: str) -> bool:
    try:
        return bool(text) and "\0" not in text and Path(text).is_file()
    except OSError:  # the text is too long for a file name
        return False


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
