"""Reads small CSV files row by row with line numbers, and groups the servers that they list."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gangline.files.source import Source

__all__ = ["Rows", "blocks_of", "cells", "gpu_types", "grouped", "simple"]

# Memory of one GPU in GiB, by its name in public node lists. The values for the masked types G2, G3
# and MISC are our own choice.
MEMORY_GB = {
    "K80": 12.0,
    "T4": 16.0,
    "P100": 16.0,
    "V100": 16.0,
    "V100M16": 16.0,
    "V100M32": 32.0,
    "A10": 24.0,
    "A100": 80.0,
    "A800": 80.0,
    "H100": 80.0,
    "H800": 80.0,
    "H20": 96.0,
    "G2": 24.0,
    "G3": 80.0,
    "MISC": 11.0,
}
_UNKNOWN_GB = 16.0
GPUS_MAX = 64  # the maximum for one server, as the engine has one bit for each GPU
_IN_NAME = re.compile(r"(\d{1,4})\s*GI?B?$", re.IGNORECASE)
Server = tuple[str, int, float | None, float | None]  # GPU type, GPUs, cores and GiB of a host


def simple(name: str) -> str:
    """Return a header name, normalised for comparison."""
    return name.strip().strip('"').lower()


class Rows:
    """The rows of a file as (line number, cells keyed by column)."""

    def __init__(
        self,
        path: str,
        names: Sequence[str],
        rows: list[tuple[int, list[str]]],
        *,
        title: str = "",
    ) -> None:
        self.path = path
        self.names = list(names)
        self._rows = rows
        self._title = title

    def __iter__(self) -> Iterator[tuple[int, dict[str, str]]]:
        for line, row in self._rows:
            yield line, dict(zip(self.names, (cell.strip() for cell in row), strict=True))

    def __len__(self) -> int:
        return len(self._rows)

    def cluster_name(self) -> str:
        """Return the name of the cluster in the file; if there is none, the name of the file."""
        file = Path(self.path.rpartition("::")[2]).name
        return self._title or file.lstrip(".").partition(".")[0] or "cluster"

    def gpus(self, line: int, row: Mapping[str, str], name: str, least: int = 0) -> int:
        """Return the number of GPUs of one server."""
        count = self.number(line, row, name, least)
        if count > GPUS_MAX:
            words = f"an integer from {least} to {GPUS_MAX}"
            raise self.error(line, name, row[name], words)
        return count

    def number(self, line: int, row: Mapping[str, str], name: str, least: int = 0) -> int:
        """Return an integer cell; `96.0` counts as an integer."""
        text = row[name]
        whole = text[:-2] if text.endswith(".0") else text
        if not (whole.isascii() and whole.isdigit()) or len(whole) > 15 or int(whole) < least:
            raise self.error(line, name, text, f"an integer >= {least}")
        return int(whole)

    def error(self, line: int, name: str, value: str, expected: str) -> ClusterError:
        """Build the error for a cell."""
        return ClusterError(
            f'{self.path}:{line}: {name}: expected {expected}, got "{value}"',
            path=self.path,
            line=line,
            key=name,
            value=value,
            expected=expected,
        )


def cells(source: Source, columns: Sequence[str], separator: str = ",") -> Rows:
    """Parse the file; if it has no header line, `columns` names its columns in order.

    If the separator is a space, any number of spaces separates two fields.

    Raises
    ------
    ClusterError
        If the file is not CSV text or has no rows, or if a row has a different number of fields.
    """
    data = source.data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _broken(source.name, line, f"UTF-8 text (byte {error.start})") from None
    if "\0" in text:
        raise _broken(source.name, text.count("\n", 0, text.index("\0")) + 1, "no NUL bytes")
    if separator == " ":
        text = "\n".join(" ".join(line.split()) for line in text.splitlines())
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=separator == ",")
    rows: list[tuple[int, list[str]]] = []
    line = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append((line, row))
            line = reader.line_num + 1
    except csv.Error as error:
        raise _broken(source.name, line, f"CSV ({error})") from None
    names = [simple(cell) for cell in rows[0][1]] if rows else []
    if set(columns) <= set(names):
        twice = next((name for name in columns if names.count(name) > 1), None)
        if twice is not None:
            raise _broken(source.name, rows[0][0], f"one column {twice}, got {names.count(twice)}")
        rows = rows[1:]
    else:
        names = list(columns)
    for line, row in rows:
        if len(row) != len(names):
            raise _broken(source.name, line, f"{len(names)} fields, got {len(row)}")
    if not rows:
        raise _broken(source.name, 1, "at least one row")
    return Rows(source.name, names, rows)


def grouped(servers: Sequence[Server], servers_per_rack: int) -> list[dict[str, Any]]:
    """Return blocks of equal servers in racks of a fixed size, ordered by their first servers."""
    counts: dict[Server, int] = {}
    for server in servers:
        counts[server] = counts.get(server, 0) + 1
    return blocks_of(counts, servers_per_rack)


def blocks_of(counts: Mapping[Server, int], servers_per_rack: int) -> list[dict[str, Any]]:
    """Return a block for each kind of server, in racks of a fixed size."""
    blocks = []
    for (gpu, gpus, cpus, memory_gb), count in counts.items():
        block: dict[str, Any] = {"count": count, "gpu": gpu, "gpus": gpus}
        block["rack"] = f"fill:{servers_per_rack}"
        if cpus and cpus >= 1:
            block["cpus"] = int(cpus)
        if memory_gb:
            block["memory_gb"] = memory_gb
        blocks.append(block)
    return blocks


def gpu_types(
    names: Sequence[str], memory_gb: float | None, notes: dict[str, int]
) -> list[dict[str, Any]]:
    """Return an entry for each GPU type, with its memory if known."""
    kinds = []
    for name in dict.fromkeys(names):
        known = MEMORY_GB.get(name.upper())
        match = _IN_NAME.search(name)
        if known is None and match is not None and int(match[1]) > 0:
            known = float(match[1])
        if known is None:
            known = memory_gb or _UNKNOWN_GB
            notes["memory_assumed"] = notes.get("memory_assumed", 0) + (memory_gb is None)
        kinds.append({"name": name, "memory_gb": known})
    return kinds


def _broken(path: str, line: int, expected: str) -> ClusterError:
    return ClusterError(
        f"{path}:{line}: expected {expected}", path=path, line=line, expected=expected
    )
