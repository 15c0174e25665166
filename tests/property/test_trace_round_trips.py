"""Checks that writing and reading gives the same trace, for every format and column."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline.trace.formats import FORMATS
from gangline.trace.writers import WRITERS, writer_of

if TYPE_CHECKING:
    from pathlib import Path

# Columns that a format holds only in part are compared where it holds them.

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\t\"',|"), min_size=1)
LABELS = NAMES.map(str.strip).filter(bool)
SECONDS = st.one_of(
    st.integers(0, 10**7).map(float), st.floats(0.0, 1e7).map(lambda x: round(x, 3))
)


@st.composite
def traces(draw: st.DrawFn) -> gl.Trace:
    """Draw any trace whose clock starts at its first job."""
    count = draw(st.integers(1, 8))

    def column(values: st.SearchStrategy[Any], *, blanks: bool = True) -> list[Any]:
        cell = st.one_of(st.none(), values) if blanks else values
        return draw(st.lists(cell, min_size=count, max_size=count))

    arrivals = sorted(column(SECONDS, blanks=False))
    gpus = column(st.integers(1, 40), blanks=False)
    fractions = column(st.floats(0.001, 0.999))
    table = {
        "job_id": [f"job-{i}" for i in draw(st.permutations(range(count)))],
        "arrival_s": [at - arrivals[0] for at in arrivals],
        "gpus": gpus,
        "duration_s": [max(x, 0.001) for x in column(SECONDS, blanks=False)],
        "iterations": [max(x, 1.0) for x in column(SECONDS, blanks=False)],
        "model": column(LABELS, blanks=False),
        "batch_size": column(st.integers(1, 10**4), blanks=False),
        "user": column(LABELS),
        "vc": column(LABELS),
        "trace_status": column(st.sampled_from(["finished", "failed", "killed", "unknown"])),
        "gpu_types": column(st.lists(LABELS, min_size=1, max_size=3, unique=True)),
        "time_limit_s": column(st.floats(1.0, 1e6)),
        "weight": column(st.floats(1e-3, 1e3)),
        "priority": column(st.integers(0, 9).map(float)),
        "servers": [draw(st.one_of(st.none(), st.integers(1, size))) for size in gpus],
        "cpus": column(st.integers(0, 10**4).map(lambda x: x / 4)),
        "host_memory_gb": column(st.integers(0, 10**5).map(lambda x: x / 8)),
        "gpu_fraction": [f if size == 1 else None for f, size in zip(fractions, gpus, strict=True)],
        "stage_times": column(st.lists(SECONDS, min_size=2, max_size=2), blanks=False),
    }
    waits = column(SECONDS)
    table["start_s"] = [
        None if wait is None else at + wait
        for at, wait in zip(table["arrival_s"], waits, strict=True)
    ]
    optional = draw(st.sets(st.sampled_from(["user", "vc", "start_s", "cpus", "servers"])))
    kept = {name: values for name, values in table.items() if name not in optional}
    return gl.Trace.from_arrow(pa.table(kept))


# The unit of a number by format and column; a number without a unit is exact.
_S = dict.fromkeys(("arrival_s", "duration_s", "start_s", "time_limit_s"), 1.0)
UNITS: dict[str, dict[str, float]] = {
    "swf": _S,
    "philly-csv": _S,
    "philly-json": _S,
    "helios": {**_S, "cpus": 1.0},
    "openb": {**_S, "gpu_fraction": 1e-3, "cpus": 1e-3, "host_memory_gb": 1 / 1024},
    "gavel": {"iterations": 1.0},
    "muri": {"arrival_s": 1e-3, "duration_s": 1e-3},
}


def expected(name: str, column: str, value: Any, row: dict[str, Any]) -> Any:
    """Return a value after a round trip: the nearest multiple of the unit, halves up."""
    if name == "native":
        return value
    unit = UNITS.get(name, {}).get(column)
    if value is None or unit is None:
        if column == "weight" and value is None:
            return 1.0
        if name == "openb" and value is None:
            if column in ("cpus", "host_memory_gb"):
                return 0.0
            if column == "start_s":
                return expected(name, column, row["arrival_s"], row)
        if name == "philly-json" and value is None:
            if column == "start_s":
                return expected(name, column, row["arrival_s"], row)
            if column == "servers":
                return -(-row["gpus"] // 8)
        if column == "trace_status" and value is None:
            return "unknown"
        return value
    units = math.floor(value / unit + 0.5)
    if column in ("duration_s", "time_limit_s", "iterations", "gpu_fraction"):
        units = max(units, 1)
    return units * unit


@pytest.mark.parametrize("name", WRITERS)
@given(jobs=traces())
def test_round_trips(name: str, jobs: gl.Trace, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("round") / "jobs"
    if name == "gavel":
        labels = [f"{label} (batch size {size})" for label, size in _labels(jobs)]
        place = jobs.columns.index("model")
        table = jobs.table.set_column(place, "model", pa.array(labels))
        jobs = gl.Trace.from_arrow(table)
    lost = {loss.column for loss in gl.write_trace(jobs, path, format=name)}
    given_options = {"format": name}
    if name == "pollux":
        durations = dict.fromkeys(jobs.column("model").to_pylist(), 1.0)
        given_options |= {"durations": durations}  # type: ignore[dict-item]
    back = gl.read_trace(path, **given_options)
    assert back.notes.get("bad_row", 0) == 0
    carried = [c for c in jobs.columns if c in writer_of(name).CARRIES and c not in lost]
    rows = jobs.table.to_pylist()
    found = back.table.to_pylist()
    assert len(found) == len(rows)
    for before, after in zip(rows, found, strict=True):
        for column in carried:
            value = expected(name, column, before[column], before)
            got = after.get(column)
            if isinstance(value, float) and isinstance(got, float):
                assert got == pytest.approx(value, rel=1e-9, abs=1e-9), (column, before)
            elif isinstance(value, list) and column == "stage_times":
                assert got == pytest.approx(value, rel=1e-12), (column, before)
            else:
                assert got == value, (column, before)


def _labels(jobs: gl.Trace) -> list[tuple[str, int]]:
    return list(
        zip(jobs.column("model").to_pylist(), jobs.column("batch_size").to_pylist(), strict=True)
    )


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv", ".csv.gz"])
@given(jobs=traces())
def test_native_round_trips_whole(
    suffix: str, jobs: gl.Trace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("round") / f"jobs{suffix}"
    assert gl.write_trace(jobs, path) == ()
    assert gl.read_trace(path).table.to_pylist() == jobs.table.to_pylist()


@given(st.floats(0.0, 1e9))
def test_halves_round_up_and_durations_stay_above_zero(value: float) -> None:
    from gangline.trace.writers._common import whole, whole_durations

    (rounded,) = whole(np.asarray([value])).tolist()
    assert rounded - 0.5 <= value < rounded + 0.5 or math.isclose(value, rounded + 0.5)
    one = pa.table({"job_id": ["a"], "arrival_s": [0.0], "gpus": [1], "duration_s": [value + 1e-3]})
    assert whole_durations(gl.Trace.from_arrow(one), "swf")[0] >= 1


def test_every_format_that_is_written_can_be_read() -> None:
    assert set(WRITERS) <= {item.name for item in FORMATS if item.reader}


@pytest.mark.shared
@pytest.mark.parametrize("name", sorted(set(WRITERS) - {"muri", "gavel", "pollux"}))
def test_the_philly_trace_round_trips(shared: Path, name: str, tmp_path: Path) -> None:
    jobs = gl.read_trace(shared / "traces/philly-sia/philly.csv.gz", limit=5000)
    path = tmp_path / "jobs"
    gl.write_trace(jobs, path, format=name)
    back = gl.read_trace(path)  # the format is detected
    assert back.metadata["reader"] == name
    for column in ("arrival_s", "gpus", "duration_s"):
        assert np.array_equal(back.numbers(column), jobs.numbers(column)), column
