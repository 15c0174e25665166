"""Damaged files: whatever the bytes, a reader gives a trace or a TraceError, never a crash."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.errors import TraceError
from gangline.trace import Trace, read_trace

if TYPE_CHECKING:
    from pathlib import Path

NATIVE = (
    b"job_id,arrival_s,gpus,duration_s,iterations,model,gpu_types,batch_size\n"
    b"a,0.5,1,10,100,m,A|B,32\nb,2,2,20,,,,\n"
)
PHILLY = (
    b"timestamp,duration,num_gpus,gpu_time,cluster\n"
    b"2017-03-02 00:00:10,60.0,2,120.0,vc-b\n2017-03-01 23:59:50,30.5,1,30.5,vc-a\n"
)
VENUS = b"job_id,arrival_s,service_sec,gpu_count\n9#0,100.0,172800.0,8\n7#1,40.0,5.5,1\n"
MURI = (
    b"job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
    b"iteration_time,resource_time_0,priority\n0,2,0,600,dqn,128,120000,0,200,100,1\n"
)


def parquet() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"arrival_s": [0.0, 1.0], "gpus": [1, 2], "duration_s": [5.0, 6.0]})
    pq.write_table(table, sink)
    return sink.getvalue()


def arrow() -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"arrival_s": [0.0, 1.0], "gpus": [1, 2], "duration_s": [5.0, 6.0]})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


FILES = {
    "native.csv": NATIVE,
    "philly.csv": PHILLY,
    "venus.csv": VENUS,
    "muri.csv": MURI,
    "native.csv.gz": gzip.compress(NATIVE, mtime=0),
    "native.parquet": parquet(),
    "native.arrow": arrow(),
}
PIECES = st.sampled_from(
    [
        b"",
        b",",
        b"\n",
        b'"',
        b"\r",
        b"-",
        b"e9",
        b"nan",
        b"inf",
        b"\xff",
        b"\0",
        b"1e400",
        b"9" * 30,
    ]
)
EDITS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3), PIECES | st.binary(max_size=3)),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=150)
@given(edits=EDITS, drop=st.booleans())
def test_damage_is_an_error_of_ours_or_harmless(
    folder: Path, name: str, edits: list[tuple[float, int, bytes]], drop: bool
) -> None:
    data = FILES[name]
    for place, removed, piece in edits:
        at = int(place * len(data))
        data = data[:at] + piece + data[at + removed :]
    path = folder / name
    path.write_bytes(data)
    try:
        trace = read_trace(path, on_bad_row="drop" if drop else "error", max_bytes=1 << 20)
    except TraceError:
        return
    assert isinstance(trace, Trace)
    assert (trace.numbers("gpus") >= 1).all()
    assert (trace.numbers("arrival_s") >= 0).all()
    arrival = trace.numbers("arrival_s")
    assert (arrival[1:] >= arrival[:-1]).all()
    assert len(set(trace.column("job_id").to_pylist())) == len(trace)
