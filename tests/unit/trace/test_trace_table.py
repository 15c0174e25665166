"""Tests the internal table: options, order, identifiers, Arrow producers, round trips."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import _core
from gangline.cli.app import main
from gangline.cluster.description import Cluster
from gangline.cluster.rates import JobKeys, classify
from gangline.errors import TraceError
from gangline.trace import Trace, read_trace, write_trace
from gangline.trace.jobs.schema import COLUMNS, Column, Count, Number, Real
from gangline.trace.jobs.to_core import _allowed as allowed_types
from gangline.trace.jobs.to_core import work_of
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot


def jobs(**columns: Any) -> pa.Table:
    default: dict[str, Any] = {
        "job_id": ["a", "b", "c", "d"],
        "arrival_s": [0.0, 10.0, 10.0, 30.0],
        "gpus": [1, 2, 8, 4],
        "duration_s": [5.0, 50.0, 500.0, 0.0],
    }
    return pa.table({**default, **columns})


def ids(trace: Trace) -> list[str]:
    return list(trace.column("job_id").to_pylist())


def test_zero_durations_are_dropped_and_counted_or_lifted() -> None:
    assert Trace.from_arrow(jobs()).notes == {"zero_duration": 1}
    lifted = Trace.from_arrow(jobs(), min_duration_s=20.0)
    assert lifted.notes == {"lifted_duration": 2}
    assert lifted.numbers("duration_s").tolist() == [20.0, 50.0, 500.0, 20.0]


def test_limit_and_max_gpus_keep_the_first_of_what_fits() -> None:
    trace = Trace.from_arrow(jobs(), max_gpus=4, limit=1)
    assert ids(trace) == ["a"]
    assert trace.notes == {"over_limit": 1, "over_max_gpus": 1, "zero_duration": 1}


def test_window_is_half_open_and_restarts_the_clock() -> None:
    trace = Trace.from_arrow(
        jobs(duration_s=[1.0] * 4, deadline_s=[None, 25.0, None, 60.0]), window=(10.0, 30.0)
    )
    assert ids(trace) == ["b", "c"]
    assert trace.numbers("arrival_s").tolist() == [0.0, 0.0]
    assert trace.column("deadline_s").to_pylist() == [15.0, None]
    assert trace.notes == {"outside_window": 2}


def test_rescale_stretches_arrivals_and_keeps_slack() -> None:
    trace = Trace.from_arrow(
        jobs(duration_s=[1.0] * 4, deadline_s=[5.0, 25.0, 25.0, 60.0]), rescale=0.5
    )
    assert trace.numbers("arrival_s").tolist() == [0.0, 5.0, 5.0, 15.0]
    assert trace.numbers("deadline_s").tolist() == [5.0, 20.0, 20.0, 45.0]


def test_status_filter_keeps_what_is_asked_for() -> None:
    table = jobs(duration_s=[1.0] * 4, trace_status=["finished", "failed", None, "finished"])
    assert ids(Trace.from_arrow(table, status=("finished",))) == ["a", "d"]
    assert ids(Trace.from_arrow(table, status="unknown")) == ["c"]
    with refused(TraceError, column="trace_status"):
        Trace.from_arrow(jobs(), status="finished")
    with refused(TraceError, column="status", value="done"):
        Trace.from_arrow(table, status="done")


def test_nothing_left_is_an_error_with_the_counts(snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        Trace.from_arrow(jobs(gpus=[2, 2, 8, 4]), max_gpus=1)


def test_equal_arrivals_keep_their_order() -> None:
    trace = Trace.from_arrow(jobs(arrival_s=[7.0, 3.0, 7.0, 3.0], duration_s=[1.0] * 4))
    assert ids(trace) == ["b", "d", "a", "c"]


def test_duplicate_ids_get_a_suffix_and_are_counted() -> None:
    trace = Trace.from_arrow(jobs(job_id=["a", "a", "a#2", "a"], duration_s=[1.0] * 4))
    assert ids(trace) == ["a", "a#3", "a#2", "a#4"]
    assert trace.notes == {"duplicate_id": 2}


def test_leading_zeros_make_different_ids() -> None:
    trace = Trace.from_arrow(jobs(job_id=["1", "01", "2", "3"], duration_s=[1.0] * 4))
    assert ids(trace) == ["1", "01", "2", "3"]


@given(names=st.lists(st.text("01a#", max_size=3), min_size=2, max_size=12), ordered=st.booleans())
def test_ids_are_renamed_just_where_they_are_equal(names: list[str], ordered: bool) -> None:
    if ordered:
        names = sorted(names, key=lambda name: (len(name), name))
    columns = {"job_id": names, "arrival_s": [0.0] * len(names), "gpus": [1] * len(names)}
    table = pa.table({**columns, "duration_s": [1.0] * len(names)})
    for part in (table, table.slice(1)):  # a slice shares the bytes of the whole
        trace, own = Trace.from_arrow(part), part["job_id"].to_pylist()
        equal = len(own) - len(set(own))
        assert len(set(ids(trace))) == len(own)
        assert trace.notes == ({"duplicate_id": equal} if equal else {})
        assert sum(a != b for a, b in zip(ids(trace), own, strict=True)) == equal


@pytest.mark.parametrize("offsets", [[0, 3], [2, 1], [-1, 0]])
def test_texts_outside_their_bytes_are_refused(offsets: list[int], snapshot: Snapshot) -> None:
    with refused(ValueError, snapshot):
        _core.surely_distinct(np.array(offsets, np.int32), np.zeros(2, np.uint8))


def test_absent_ids_are_numbered_in_order() -> None:
    table = jobs(arrival_s=[9.0, 1.0, 5.0, 0.0], duration_s=[1.0, 2.0, 3.0, 4.0])
    trace = Trace.from_arrow(table.drop_columns(["job_id"]))
    assert ids(trace) == ["0", "1", "2", "3"]
    assert trace.numbers("duration_s").tolist() == [4.0, 2.0, 3.0, 1.0]


def test_missing_columns_and_wrong_types_are_named() -> None:
    with refused(TraceError, column="gpus"):
        Trace.from_arrow(pa.table({"arrival_s": [1.0]}))
    with refused(TraceError, column="gpus", value="1.5"):
        Trace.from_arrow(jobs(gpus=[1.5, 2.0, 3.0, 4.0]))
    with refused(TraceError, column="gpus", value="0"):
        Trace.from_arrow(jobs(gpus=[1, 0, 1, 1]))


@pytest.mark.parametrize(
    ("column", "values", "value"),
    [
        ("gpus", ["0", "1", "1", "1"], "0.0"),
        ("gpus", ["1", "1.5", "1", "1"], "1.5"),
        ("gpus", ["1", "-5", "1", "1"], "-5.0"),
        ("gpus", [True] * 4, None),
        ("priority", [True] * 4, None),
        (
            "gpus",
            [Decimal("-1"), Decimal(1), Decimal(1), Decimal(1)],
            "-1.0",
        ),
        (
            "gpus",
            [Decimal(1), Decimal("2.5"), Decimal(1), Decimal(1)],
            "2.5",
        ),
        ("gpus", [None] * 4, "None"),
        ("arrival_s", [None] * 4, "None"),
        ("arrival_s", ["nan", "1", "1", "1"], "nan"),
        ("duration_s", ["1", "1e300", "1", "1"], "1e+300"),
        ("duration_s", ["1", "inf", "1", "1"], "inf"),
        ("duration_s", [Decimal("1e30")] * 4, "1e+30"),
        ("memory_gb", ["-4", None, None, None], "-4.0"),
        ("weight", ["0", None, None, None], "0.0"),
        ("stage_times", [["1"], ["-2"], None, None], "[-2.0]"),
        (
            "gpu_types",
            [["A", None], None, None, None],
            "['A', None]",
        ),
        (
            "arrival_s",
            [datetime(2024, 1, 1, tzinfo=UTC)] * 4,
            None,
        ),
        ("duration_s", [timedelta(1)] * 4, None),
        ("duration_s", ["1", "soon", "1", "1"], None),
        ("gpus", [[1], [1], [1], [1]], None),
        ("user", [{"a": 1}] * 4, None),
        ("gpu_types", ["A"] * 4, None),
    ],
)
def test_what_is_out_of_bounds_is_refused_whatever_its_type(
    column: str, values: list[Any], value: str | None
) -> None:
    with refused(TraceError, column=column, value=value):
        Trace.from_arrow(jobs(**{column: values}))


def test_numbers_may_come_as_text_or_decimals() -> None:
    table = jobs(
        arrival_s=["0", "1e1", "10", "30"],
        gpus=pa.array(["1", "2", "8", "4"]).dictionary_encode(),
        duration_s=[Decimal("5.5"), Decimal(50), Decimal(500), Decimal(7)],
        priority=[Decimal(1), Decimal(0), None, Decimal(1)],
        stage_times=[["1.5", "2"], None, [], None],
    )
    trace = Trace.from_arrow(table)
    assert trace.column("gpus").to_pylist() == [1, 2, 8, 4]
    assert trace.column("duration_s").to_pylist() == [5.5, 50.0, 500.0, 7.0]
    assert trace.column("priority").to_pylist() == [1.0, 0.0, None, 1.0]
    assert trace.column("stage_times").to_pylist() == [[1.5, 2.0], None, [], None]


def test_types_of_columns_are_those_of_the_table() -> None:
    """The names that mypy knows are the existing ones, with the right numpy types."""
    numbers = {"gpus": pa.int32(), **dict.fromkeys(get_args(Real), pa.float64())}
    numbers |= dict.fromkeys(get_args(Count), pa.int32())
    assert set(get_args(Number)) == set(numbers)
    assert {name: kind for name, kind in COLUMNS.items() if name in numbers} == numbers
    assert set(get_args(Column)) == set(COLUMNS)
    known = Trace.from_arrow(pa.table({"arrival_s": [0.0], "gpus": [1], "duration_s": [1.0]}))
    assert [known.numbers(name).dtype for name in ("gpus", "arrival_s")] == ["int32", "float64"]


def test_bad_rows_of_text_can_be_dropped() -> None:
    trace = Trace.from_arrow(
        jobs(gpus=["1", "0", "1.5", "1"], duration_s=[1] * 4), on_bad_row="drop"
    )
    assert (ids(trace), trace.notes) == (["a", "d"], {"bad_row": 2})


def test_a_missing_column_is_told_what_is_there(snapshot: Snapshot) -> None:
    table = jobs().rename_columns(["JOB_ID", "Arrival_S", "cards", "duration_s"])
    with refused(TraceError, snapshot):
        Trace.from_arrow(table)


def test_durations_that_are_all_unknown_have_no_quantiles() -> None:
    unknown = pa.nulls(4, pa.float64())
    info = Trace.from_arrow(jobs(duration_s=unknown, iterations=[1.0] * 4)).info()
    assert "duration_s" not in info
    assert info["gpu_hours"] == 0.0


@pytest.mark.parametrize("kind", ["table", "dictionary", "csv"])
def test_words_of_status_are_those_of_the_format_or_unknown(kind: str, tmp_path: Path) -> None:
    words = pa.array(["Finished", "COMPLETED", None, "failed"])
    table = jobs(duration_s=[1.0] * 4, trace_status=words)
    if kind == "csv":
        pa_csv.write_csv(table, tmp_path / "t.csv")
        trace = read_trace(tmp_path / "t.csv")
    else:
        encoded = words.dictionary_encode() if kind == "dictionary" else words
        trace = Trace.from_arrow(jobs(duration_s=[1.0] * 4, trace_status=encoded))
    assert trace.column("trace_status").to_pylist() == ["finished", "unknown", None, "failed"]
    assert trace.notes == {"unknown_status": 1}


def test_unknown_options_are_refused(snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        Trace.from_arrow(jobs(), limits=3)
    wrong = {
        "limit": 0,
        "rescale": 0.0,
        "window": (5.0, 5.0),
        "on_bad_row": "skip",
        "max_gpus": "x",
    }
    for name, value in wrong.items():
        with pytest.raises(TraceError) as caught:
            Trace.from_arrow(jobs(), **{name: value})
        assert caught.value.column == name


class Producer:
    """A table of another library, which offers only the stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_any_arrow_producer_is_accepted() -> None:
    assert ids(Trace.from_arrow(Producer(jobs()))) == ["a", "b", "c"]


def test_chunks_slices_dictionaries_and_wide_types_are_accepted() -> None:
    table = jobs(duration_s=[1.0] * 4, model=pa.array(["x", "y", "x", None]).dictionary_encode())
    table = table.set_column(0, "job_id", table.column("job_id").cast(pa.large_string()))
    table = pa.concat_tables([table.slice(1, 2), table.slice(3)])
    trace = Trace.from_arrow(table)
    assert ids(trace) == ["b", "c", "d"]
    assert trace.column("model").to_pylist() == ["y", "x", None]
    assert trace.table.schema.field("gpus").type == pa.int32()


def test_unknown_columns_are_ignored_and_counted() -> None:
    assert Trace.from_arrow(jobs(colour=["r"] * 4)).notes["ignored_columns"] == 1


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
def test_round_trip_keeps_every_column(tmp_path: Path, suffix: str) -> None:
    trace = Trace.from_arrow(
        jobs(
            duration_s=[1.0, 2.5, None, 4.0],
            iterations=[None, 7.0, 8.0, None],
            model=["m", None, "with, comma", 'q"uote'],
            gpu_types=[["A", "B"], None, ["B"], ["A"]],
            memory_gb=[1.5, None, 2.0, 3.0],
            weight=[1.0, 2.0, 3.0, 4.0],
            trace_status=["finished", "failed", "killed", "unknown"],
            batch_size=[1, None, 3, 4],
        )
    )
    path = tmp_path / f"t.{suffix}"
    write_trace(trace, path)
    again = read_trace(path)
    assert again.table.to_pylist() == trace.table.to_pylist()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    first = path.read_bytes()
    write_trace(trace, path)
    assert path.read_bytes() == first


def test_metadata_travels_in_parquet(tmp_path: Path) -> None:
    trace = Trace.from_arrow(jobs())
    trace.metadata["origin"] = "invented"
    write_trace(trace, tmp_path / "t.parquet")
    assert read_trace(tmp_path / "t.parquet").metadata["origin"] == "invented"


def test_other_suffixes_are_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        write_trace(Trace.from_arrow(jobs()), tmp_path / "t.json")


def test_info_and_repr_say_what_there_is() -> None:
    trace = Trace.from_arrow(jobs(user=["u", "v", "u", None]))
    facts = trace.info()
    assert (facts["jobs"], facts["span_s"], facts["users"]) == (3, 10.0, 2)
    assert facts["gpu_hours"] == pytest.approx((5 + 100 + 4000) / 3600)
    assert facts["duration_s"]["p50"] == 50.0
    assert repr(trace) == "Trace(3 jobs, 1.14 GPU-h, 10 s, native)"
    one = Trace.from_arrow(pa.table({"arrival_s": [0.0], "gpus": [8], "duration_s": [86400]}))
    assert repr(one) == "Trace(1 job, 192 GPU-h, 0 s, native)"
    assert "<bdi>jobs</bdi>" in trace._repr_html_()


def test_work_in_iterations_has_no_gpu_hours(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    work = pa.table({"arrival_s": [0.0], "gpus": [2], "model": ["VGG11"], "iterations": [1000]})
    trace = Trace.from_arrow(work)
    assert repr(trace) == "Trace(1 job, work in iterations, 0 s, native)"
    write_trace(trace, tmp_path / "t.csv")
    assert main(["trace", "info", str(tmp_path / "t.csv")]) == 0
    assert "GPU-hours" not in capsys.readouterr().out


def test_info_counts_jobs_with_phases(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    phases = Trace.from_arrow(jobs(phases=["0:1;0.3:2", None, "0:1;0.5:2;0.6:1", " "]))
    assert phases.info()["phases"] == {"jobs": 2, "max": 3}
    assert "phases" not in Trace.from_arrow(jobs()).info()
    write_trace(phases, tmp_path / "t.csv")
    assert main(["trace", "info", str(tmp_path / "t.csv")]) == 0
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["jobs", "with", "phases", "2"] in said
    assert ["phases", "of", "a", "job,", "max", "3"] in said


def test_sha256_of_a_table_depends_on_its_jobs_alone() -> None:
    one, two = Trace.from_arrow(jobs()), Trace.from_arrow(jobs())
    assert one.sha256 == two.sha256
    assert (
        Trace.from_arrow(jobs(gpus=[1, 2, 8, 5])).sha256
        != Trace.from_arrow(jobs(gpus=[1, 2, 9, 4])).sha256
    )


def test_work_is_iterations_where_known_and_seconds_elsewhere() -> None:
    trace = Trace.from_arrow(
        jobs(duration_s=[10.0, 20.0, None, 4.0], iterations=[None, 40.0, 7.0, None])
    )
    work, rate, known = work_of(trace)
    assert work.tolist() == [10.0, 40.0, 7.0, 4.0]
    assert rate is not None
    assert rate.tolist() == [1.0, 2.0, 1.0, 1.0]
    assert known is not None
    assert known.tolist() == [True, True, False, True]


def test_allowed_types_become_bits() -> None:
    cluster = Cluster.from_dict(
        {
            "gpu_types": [{"name": n, "memory_gb": 1} for n in ("A", "B", "C")],
            "servers": [{"count": 1, "gpu": "A", "gpus": 1}],
        }
    )
    table = jobs(duration_s=[1.0] * 4, gpu_types=[["C", "A"], None, ["X"], ["B", "X"]])
    bits = allowed_types(Trace.from_arrow(table), cluster)
    assert bits is not None
    assert bits.tolist() == [0b101, 0b111, 0, 0b010]


def test_rate_classes_prefer_the_row_of_the_batch() -> None:
    from gangline.cluster.description import Throughput, ThroughputRow

    rows = [
        ThroughputRow(gpu_type="A", model="m", gpus=1, iters_per_s=10.0),
        ThroughputRow(gpu_type="B", model="m", gpus=1, iters_per_s=5.0),
        ThroughputRow(gpu_type="A", model="m", gpus=1, iters_per_s=20.0, batch_size=64),
        ThroughputRow(gpu_type="A", model="m", gpus=1, iters_per_s=1.0, placement="spread"),
    ]
    none = 2**32 - 1
    keys = JobKeys(
        model=np.array([0, 0, 1, 0, none, 0], np.uint32),
        batch_size=np.array([0, 64, 0, 32, 0, 0], np.uint32),
        gpus=np.array([1, 1, 1, 1, 1, 2], np.uint32),
        labels=["m", "other"],
    )
    found = classify(Throughput(rows=tuple(rows)), ["A", "B"], keys, np.ones(6, np.bool_))
    rates = [None if c == none else found.table[c].tolist() for c in found.of_job.tolist()]
    assert rates == [[10.0, 5.0], [20.0, 5.0], None, [10.0, 5.0], None, None]


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(1, 64), st.floats(0, 1e5)), min_size=1, max_size=30
    )
)
def test_any_jobs_are_sorted_stably_and_none_is_lost(rows: list[tuple[float, int, float]]) -> None:
    table = pa.table(
        {
            "job_id": [str(i) for i in range(len(rows))],
            "arrival_s": [row[0] for row in rows],
            "gpus": [row[1] for row in rows],
            "duration_s": [row[2] for row in rows],
        }
    )
    kept = [(row[0], i) for i, row in enumerate(rows) if row[2] > 0]
    if not kept:
        with pytest.raises(TraceError):
            Trace.from_arrow(table)
        return
    trace = Trace.from_arrow(table)
    assert ids(trace) == [str(i) for _, i in sorted(kept)]
    assert trace.notes.get("zero_duration", 0) == len(rows) - len(kept)


def test_arrivals_that_are_stretched_beyond_the_clock_are_refused() -> None:
    with refused(TraceError, column="arrival_s", value="1e+301"):
        Trace.from_arrow(jobs(), rescale=1e300)
    with refused(TraceError, column="arrival_s", value="inf"):
        Trace.from_arrow(jobs(), rescale=1e308)


@pytest.mark.parametrize("name", ["job_id", "user", "gpu_types", "trace_status"])
@pytest.mark.parametrize("kind", ["memory", "parquet", "arrow", "dictionary"])
def test_bytes_that_are_no_text_are_refused_in_every_column(
    name: str, kind: str, tmp_path: Path
) -> None:
    bytes_ = pa.array([b"\xc3\xa9", b"a\xff"], pa.binary())
    texts = pa.StringArray.from_buffers(2, *bytes_.buffers()[1:])
    if kind == "dictionary":
        texts = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), texts)
    if name == "gpu_types":
        texts = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), texts)
    rows = {"arrival_s": [0.0, 1.0], "gpus": [1, 1], "duration_s": [5.0, 5.0]}
    table = pa.table({**rows, name: texts})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    if kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    in_memory = kind in ("memory", "dictionary")
    facts = {"column": name, "value": r"a\xff", "expected": "UTF-8 text"}
    with refused(TraceError, **(facts if kind != "arrow" else {"expected": "a complete file"})):
        Trace.from_arrow(table) if in_memory else read_trace(path)
