"""Tests tables with any column names, mapped by `columns`, against values by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gangline as gl
from gangline.errors import TraceError
from gangline.files.quantities import durations, mapping_of, sizes
from gangline.trace.read import read_again, refer
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

PLAIN = {"arrival_s": "submit", "gpus": "cards", "duration_s": "run"}


def read(folder: Path, content: str, columns: Any = PLAIN, **options: Any) -> gl.Trace:
    path = folder / "mine.csv"
    path.write_text(content, encoding="utf-8")
    return gl.read_trace(path, columns=columns, **options)


def refusal(folder: Path, content: str, columns: Any = PLAIN, **options: Any) -> str:
    with pytest.raises(TraceError) as caught:
        read(folder, content, columns, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("1.5e3", 1500.0),
        ("+7", 7.0),
        ("00:01:30", 90.0),
        ("01:30", 90.0),
        ("1-02:03:04", 86400 + 2 * 3600 + 3 * 60 + 4),
        ("00:00:01.250", 1.25),
        ("1 day, 2:03:04", 93784.0),
        ("2 days 00:00:01", 172801.0),
        ("90m", 5400.0),
        ("1h30m", 5400.0),
        ("2 d 3 hours", 2 * 86400 + 3 * 3600),
        ("250ms", 0.25),
        ("45 min", 2700.0),
        ("1w", 604800.0),
        ("PT1H30M", 5400.0),
        ("P1DT0.5S", 86400.5),
        ("P2W", 1209600.0),
    ],
)
def test_durations_as_text(text: str, seconds: float) -> None:
    values, wrong = durations(pa.array([text]))
    assert values.tolist() == [seconds]
    assert not wrong.any()


@pytest.mark.parametrize(
    "text", ["soon", "P", "PT", "1-", "1:2:3:4", "h", "5 parsecs", "--1", "1e"]
)
def test_texts_that_are_no_durations(text: str) -> None:
    values, wrong = durations(pa.array([text, "1"]))
    assert wrong.tolist() == [True, False]
    assert values[1] == 1.0


def test_empty_cells_are_unknown_and_not_wrong() -> None:
    values, wrong = durations(pa.array(["", None, " ", "2"]))
    assert str(values.tolist()) == "[nan, nan, nan, 2.0]"
    assert not wrong.any()


def test_sizes_are_powers_of_1024() -> None:
    values, wrong = sizes(pa.array(["64G", "1.5Ti", "2048MiB", "1T", "3", "512K", "x"]))
    assert values[:6].tolist() == [64.0, 1536.0, 2.0, 1024.0, 3.0, 512 / 2**20]
    assert wrong.tolist() == [False] * 6 + [True]


def test_a_mapping_as_text(snapshot: Snapshot) -> None:
    assert mapping_of("a=b, c = d*e ,f=") == {"a": "b", "c": "d*e", "f": ""}
    assert mapping_of('duration_s="run, s"@h,gpus=n') == {"duration_s": "run, s@h", "gpus": "n"}
    for wrong in ("a", "=b", "a=b,a=c"):
        with refused(TraceError, snapshot):
            mapping_of(wrong)


def test_products_differences_units_and_words(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "id\tdate\tn\tper\tfrom\tto\tmem\tstate\tteam\n"
        "a\t1000\t2\t8\t60\t120\t64G\tDone\tt\n"
        "b\t4000\t1\t4\t61\t3661\t512M\tblown\tu\n",
        "job_id=id,arrival_s=date@ms,gpus=n*per,duration_s=to-from,host_memory_gb=mem*n,"
        "trace_status=state,user=team",
        status_words={"blown": "failed"},
    )
    table = trace.table.to_pydict()
    assert table["arrival_s"] == [0.0, 3.0]
    assert table["gpus"] == [16, 4]
    assert table["duration_s"] == [60.0, 3600.0]
    assert table["host_memory_gb"] == [128.0, 0.5]
    assert table["trace_status"] == ["finished", "failed"]
    assert trace.notes == {}


def test_dates_with_and_without_zones_and_of_other_forms(tmp_path: Path) -> None:
    for dates, form in (
        (("2024-03-01T10:00:00Z", "2024-03-01T12:00:05+02:00"), ""),
        (("2024-03-01 10:00:00", "2024-03-01 10:00:05"), ""),
        (("01.03.2024 10:00:00", "01.03.2024 10:00:05"), "@%d.%m.%Y %H:%M:%S"),
        (("1709287200", "1709287205"), ""),
        (("1709287200000000", "1709287205000000"), "@us"),
    ):
        rows = "".join(f"{date},1,9\n" for date in dates)
        trace = read(tmp_path, "submit,cards,run\n" + rows, {**PLAIN, "arrival_s": f"submit{form}"})
        assert trace.column("arrival_s").to_pylist() == [0.0, 5.0]


def test_local_times_use_the_zone(tmp_path: Path) -> None:
    # the clock went from 2:00 to 3:00 in between
    content = "submit,cards,run\n2024-03-10 01:30:00,1,9\n2024-03-10 03:30:00,1,9\n"
    assert read(tmp_path, content).column("arrival_s").to_pylist() == [0.0, 7200.0]
    trace = read(tmp_path, content, zone="America/New_York")
    assert trace.column("arrival_s").to_pylist() == [0.0, 3600.0]
    plain = "submit,cards,run\n5,1,9\n"
    assert "has no local times" in refusal(tmp_path, plain, zone="America/New_York")


def test_observed_starts_share_the_clock_of_the_arrivals(tmp_path: Path) -> None:
    mapping = {**PLAIN, "observed_start_s": "begin", "observed_finish_s": "begin+run"}
    content = "submit,cards,run,begin\n2024-03-01,1,60,2024-03-01 00:02:00\n"
    table = read(tmp_path, content, mapping).table.to_pydict()
    assert (table["observed_start_s"], table["observed_finish_s"]) == ([120.0], [180.0])
    mixed = refusal(tmp_path, "submit,cards,run,begin\n2024-03-01,1,60,17\n", mapping)
    assert "or numbers in all of them; got arrival_s dates, observed_start_s numbers" in mixed


def test_constants_own_names_and_what_is_left_out(tmp_path: Path) -> None:
    content = "submit,run,user,colour,hat\n1,2,u,red,big\n"
    mapping = "arrival_s=submit,gpus=8,duration_s=run,user="
    trace = read(tmp_path, content, mapping)
    assert trace.column("gpus").to_pylist() == [8]
    assert "user" not in trace.columns
    assert trace.metadata["ignored_columns"] == "user, colour, hat"
    assert read(tmp_path, content, mapping[:-6]).column("user").to_pylist() == ["u"]


def test_names_with_signs_in_them(tmp_path: Path) -> None:
    content = "start-time,end-time,a*b,at@h\n3,10,2,0\n"
    mapping = {"arrival_s": "at@h", "gpus": "a*b", "duration_s": "end-time-start-time"}
    table = read(tmp_path, content, mapping).table.to_pydict()
    assert (table["gpus"], table["duration_s"]) == ([2], [7.0])


def test_comments_separators_decimals_and_no_header(tmp_path: Path) -> None:
    content = "// made by hand\n0,5;2;1,5\n// and so on\n1;4;2.000,25\n"
    mapping = {"arrival_s": "1", "gpus": "2", "duration_s": "3"}
    options = {"separator": ";", "comment": "//", "decimal": ",", "header": False}
    table = read(tmp_path, content, mapping, **options).table.to_pydict()
    assert table["arrival_s"] == [0.0, 0.5]
    assert table["duration_s"] == [1.5, 2000.25]
    wrong = refusal(tmp_path, content + "x;4;1\n", mapping, **options)
    assert wrong.startswith(f"{tmp_path}/mine.csv:5: 1: expected an instant")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("gpu=n", "unknown native name `gpu`; did you mean `gpus`?"),
        (
            "arrival_s=submxt",
            "expected a column for arrival_s, got `submxt`; did you mean `submit`",
        ),
        ("arrival_s=submit@fortnight", "columns.arrival_s: expected a unit: ns, us, ms, s, min"),
        ("memory_gb=run@h", "columns.memory_gb: expected a unit: KiB, MiB"),
        ("user=cards*run", "columns.user: expected a column that is taken unchanged"),
        ("arrival_s=submit,gpus=cards", "missing column duration_s or iterations"),
        ("gpus=2", "expected NATIVE=THEIRS for arrival_s"),
    ],
)
def test_mappings_that_are_refused(tmp_path: Path, columns: str, words: str) -> None:
    assert words in refusal(tmp_path, "submit,cards,run\n1,2,3\n", columns)


def test_wrong_cells_are_named_as_the_table_names_them(tmp_path: Path) -> None:
    content = "submit,cards,run\n1,2,3\n2,two,3\n3,2,later\n"
    lines = refusal(tmp_path, content).split("\n")
    assert lines[0].endswith('mine.csv:3: cards: expected an integer from 1 to 32768, got "two"')
    assert ":4: run: expected a duration: seconds, or a text such as 1-02:03:04" in lines[1]
    assert len(read(tmp_path, content, on_bad_row="drop")) == 1


def test_parquet_and_tables_in_memory(tmp_path: Path) -> None:
    import datetime as dt

    begin = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    table = pa.table(
        {
            "when": pa.array([begin, begin + dt.timedelta(seconds=3)], pa.timestamp("ns", "UTC")),
            "cards": pa.array([2, 4], pa.uint8()),
            "took": pa.array([dt.timedelta(minutes=2), None], pa.duration("ms")),
            "spare": [1.0, 2.0],
        }
    )
    columns = {"arrival_s": "when", "gpus": "cards", "duration_s": "took"}
    path = tmp_path / "mine.parquet"
    pq.write_table(table.slice(0, 1), path)
    for trace in (
        gl.read_trace(path, columns=columns),
        gl.Trace.from_arrow(table.slice(0, 1), columns="arrival_s=when,gpus=cards,duration_s=took"),
    ):
        found = trace.table.to_pydict()
        assert (found["arrival_s"], found["gpus"], found["duration_s"]) == ([0.0], [2], [120.0])
        assert trace.metadata["ignored_columns"] == "spare"
    with refused(
        TraceError, column="took", value="None", expected="a duration or a number of iterations"
    ):
        gl.Trace.from_arrow(table, columns=columns)


def test_a_run_repeats_its_mapping(tmp_path: Path) -> None:
    trace = read(
        tmp_path, "submit,cards,run\n1,2,3\n", "arrival_s=submit,gpus=cards,duration_s=run"
    )
    assert trace.reference.format == "table"
    assert trace.reference.options == {"columns": PLAIN}
    assert read_again(trace.reference).table.equals(trace.table)
    assert refer(trace.path, columns=PLAIN) == trace.reference


def test_a_sweep_takes_the_mapping(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("submit,cards,run\n1,2,3\n5,1,3\n")
    spec = {
        "name": str(tmp_path / "swept"),
        "grid": {"trace": [str(path)], "cluster": ["1x4xA100"], "policy": ["fifo", "las"]},
        "options": {"columns": PLAIN},
    }
    done = gl.sweep(spec, out=tmp_path / "swept")
    assert done.counts["finished"] == 2


def test_the_command_line_takes_the_mapping(tmp_path: Path) -> None:
    from gangline.cli.app import main

    path = tmp_path / "mine.csv"
    path.write_text("submit;cards;run\n1;2;3m\n5;1;3m\n")
    columns = "arrival_s=submit,gpus=cards,duration_s=run"
    assert main(["trace", "validate", str(path), "--columns", columns]) == 0
    out = tmp_path / "out"
    world = ["--trace", str(path), "--cluster", "1x4xA100", "--policy", "fifo", "--out", str(out)]
    assert main(["run", *world, "--columns", columns]) == 0
    option = [f"--option=columns.{pair}" for pair in columns.split(",")]
    audited = [str(out / "jobs.parquet"), "--cluster", "1x4xA100", "--trace", str(path)]
    assert main(["audit", *audited, *option]) == 0
