"""Checks that tables of any Arrow producer become traces, and that they read tables of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import gangline as gl
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

LAB = gl.Cluster.homogeneous(servers=2, gpus=2)
ROWS = {
    "job_id": ["a", "b", "c"],
    "arrival_s": [0.0, 1.0, 2.5],
    "gpus": [1, 4, 2],
    "duration_s": [10.0, 20.0, 5.0],
    "user": ["ann", None, "ann"],
}


def with_duckdb(rows: dict[str, list[Any]]) -> Any:
    given = pa.table(rows)  # noqa: F841 - duckdb finds it by its name
    return duckdb.sql("select * from given order by arrival_s")


PRODUCERS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pyarrow": pa.table,
    "pyarrow, many chunks": lambda rows: pa.concat_tables(
        [pa.table(rows).slice(i, 1) for i in range(3)]
    ),
    "pyarrow, batches": lambda rows: pa.RecordBatchReader.from_batches(
        pa.table(rows).schema, pa.table(rows).to_batches(max_chunksize=1)
    ),
    "polars": pl.DataFrame,
    "polars, sliced": lambda rows: pl.concat([pl.DataFrame(rows).head(1), pl.DataFrame(rows)])[1:],
    "polars, categories": lambda rows: pl.DataFrame(rows).with_columns(
        pl.col("user").cast(pl.Categorical)
    ),
    "duckdb": with_duckdb,
    "pandas": pd.DataFrame,
    "pandas, another index": lambda rows: pd.DataFrame(rows, index=[7, 7, 7]),
    "pandas, small ints": lambda rows: pd.DataFrame(rows).astype({"gpus": "int16"}),
    "pandas, categories": lambda rows: pd.DataFrame(rows).astype({"user": "category"}),
}


@pytest.mark.parametrize("name", PRODUCERS)
def test_a_table_of_any_producer_is_a_trace(name: str) -> None:
    expected = gl.Trace.from_arrow(pa.table(ROWS))
    trace = gl.Trace.from_arrow(PRODUCERS[name](ROWS))
    for column in ROWS:
        assert trace.column(column).to_pylist() == expected.column(column).to_pylist(), column
    assert trace.column("user").to_pylist() == ["ann", None, "ann"]
    direct = gl.simulate(LAB, PRODUCERS[name](ROWS), "fifo")
    assert direct.log_hash == gl.simulate(LAB, expected, "fifo").log_hash
    # b needs all four GPUs and waits for a; c waits for b.
    assert direct.jobs["finish_s"].to_pylist() == [10.0, 30.0, 35.0]


@pytest.mark.parametrize("name", PRODUCERS)
def test_a_bad_row_of_any_producer_is_named(name: str) -> None:
    bad = {**ROWS, "gpus": [1, -4, 2]}
    with refused(gl.TraceError, column="gpus", value="-4"):
        gl.Trace.from_arrow(PRODUCERS[name](bad))


def test_results_go_back_into_each() -> None:
    jobs = gl.simulate(LAB, pa.table(ROWS), "fifo").jobs
    finish = [10.0, 30.0, 35.0]
    assert pl.DataFrame(jobs)["finish_s"].to_list() == finish
    assert jobs.to_pandas()["finish_s"].tolist() == finish
    found = duckdb.sql("select finish_s from jobs order by finish_s").fetchall()
    assert [row[0] for row in found] == finish
