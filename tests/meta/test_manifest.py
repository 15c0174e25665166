"""Checks that every bundled trace has an origin, a licence and the right hash in the manifest."""

from __future__ import annotations

import gzip
import hashlib
import json
import tomllib
from typing import TYPE_CHECKING, Any

import pyarrow.parquet

from meta.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TRACES = ROOT / "python" / "gangline" / "trace" / "mini"
KEYS = {"name", "file", "origin", "licence", "rows", "sha256", "command"}


def rows_of(path: Path) -> int:
    """Return the rows of a table, or the jobs of an export: its lines or objects with a user."""
    if path.suffix == ".parquet":
        rows: int = pyarrow.parquet.ParquetFile(path).metadata.num_rows
        return rows
    content = gzip.decompress(path.read_bytes()).decode()
    if path.name.endswith(".json.gz"):
        return len(json.loads(content)["items"])
    return sum(not line.split("|")[0].endswith(".batch") for line in content.splitlines()[1:])


def manifest_offenders(folder: Path, entries: list[dict[str, Any]]) -> list[str]:
    """Compare the manifest with the files in both directions."""
    offenders = []
    for entry in entries:
        name = entry.get("name", "an entry without a name")
        if missing := sorted(KEYS - entry.keys()):
            offenders.append(f"{name}: no {', '.join(missing)}")
            continue
        path = folder / entry["file"]
        if not path.is_file():
            offenders.append(f"{name}: {entry['file']} does not exist")
            continue
        if hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
            offenders.append(f"{name}: sha256 of {entry['file']} differs")
        if rows_of(path) != entry["rows"]:
            offenders.append(f"{name}: {entry['file']} does not have {entry['rows']} rows")
    listed = {entry.get("file") for entry in entries}
    for path in sorted(folder.rglob("*")):
        inside = str(path.relative_to(folder))
        if path.is_file() and path.suffix in (".parquet", ".csv", ".gz") and inside not in listed:
            offenders.append(f"{inside}: not in MANIFEST.toml")
    return offenders


def test_traces_match_their_manifest() -> None:
    entries = tomllib.loads((TRACES / "MANIFEST.toml").read_text("utf-8"))["trace"]
    assert entries, "the manifest is empty"
    assert manifest_offenders(TRACES, entries) == []


def test_a_changed_and_a_foreign_trace_are_named(tmp_path: Path) -> None:
    table = pyarrow.table({"job_id": ["a"], "arrival_s": [0.0]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("job_id\n")
    entry = {"name": "a", "file": "a.parquet", "origin": "x", "licence": "y", "command": "z"}
    named = manifest_offenders(tmp_path, [{**entry, "rows": 2, "sha256": "0"}, {"name": "c"}])
    assert named == [
        "a: sha256 of a.parquet differs",
        "a: a.parquet does not have 2 rows",
        "c: no command, file, licence, origin, rows, sha256",
        "b.csv: not in MANIFEST.toml",
    ]
