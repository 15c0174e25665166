"""Checks that readers return a trace or a TraceError, and do not confuse formats."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import fuzz_damage, fuzz_readers

from gangline.errors import TraceError
from gangline.files import columns
from gangline.files.source import Source
from gangline.trace import read_trace
from gangline.trace.detect import detect
from gangline.trace.formats import FORMATS
from gangline.trace.readers import swf
from samples.traces import OPTIONS, SAMPLES

if TYPE_CHECKING:
    from pathlib import Path

READABLE = [item.name for item in FORMATS if item.reader]
HEADED = {
    name: content.decode()
    for name, (kind, content) in SAMPLES.items()
    if name.endswith(".csv") and kind != "pai"
}
PIECES = st.sampled_from(fuzz_damage.PIECES)
EDITS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3), PIECES | st.binary(max_size=3)),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readers")


@pytest.mark.parametrize("name", SAMPLES)
@given(edits=EDITS, drop=st.booleans(), forced=st.booleans())
def test_damage_is_an_error_of_ours_or_harmless(
    folder: Path, name: str, edits: list[tuple[float, int, bytes]], drop: bool, forced: bool
) -> None:
    kind, content = SAMPLES[name]
    for place, removed, piece in edits:
        at = int(place * len(content))
        content = content[:at] + piece + content[at + removed :]
    path = folder / name
    path.write_bytes(content)
    how = "drop" if drop else "error"
    options = OPTIONS.get(kind, {}) if forced else {}
    try:
        trace = read_trace(
            path, format=kind if forced else None, on_bad_row=how, max_bytes=1 << 20, **options
        )
    except TraceError as error:
        assert str(error)
        assert len(str(error)) < 20_000
        return
    fuzz_readers.check(trace)


@pytest.mark.parametrize("kind", READABLE)
@given(content=st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode()))
def test_any_bytes_are_read_or_refused(folder: Path, kind: str, content: bytes) -> None:
    path = folder / "any"
    path.write_bytes(content)
    for forced in (None, kind):
        try:
            trace = read_trace(path, format=forced, max_bytes=1 << 20)
        except TraceError:
            continue
        fuzz_readers.check(trace)


@pytest.mark.parametrize("name", HEADED)
@given(
    order=st.randoms(use_true_random=False),
    extra=st.lists(st.sampled_from(["colour", "note", "x y", "Ünit"]), unique=True),
    upper=st.booleans(),
    crlf=st.booleans(),
    bom=st.booleans(),
)
def test_order_case_and_further_columns_do_not_change_the_format(
    folder: Path, name: str, order: object, extra: list[str], upper: bool, crlf: bool, bom: bool
) -> None:
    kind = SAMPLES[name][0]
    rows = list(csv.reader(io.StringIO(HEADED[name])))
    places = list(range(len(rows[0]) + len(extra)))
    order.shuffle(places)  # type: ignore[attr-defined]
    rows = [row + (extra if i == 0 else ["1"] * len(extra)) for i, row in enumerate(rows)]
    if upper:
        rows[0] = [cell.upper() for cell in rows[0]]
    sink = io.StringIO()
    csv.writer(sink, lineterminator="\r\n" if crlf else "\n").writerows(
        [[row[place] for place in places] for row in rows]
    )
    path = folder / "permuted.csv"
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + sink.getvalue().encode())
    assert detect(Source(path, 1 << 20)) == kind
    options = OPTIONS.get(kind, {})
    original = folder / "original.csv"
    original.write_text(HEADED[name], encoding="utf-8")
    assert read_trace(path, **options).table.equals(read_trace(original, **options).table)


@pytest.mark.parametrize("name", SAMPLES)
def test_no_reader_takes_the_file_of_another_format(folder: Path, name: str) -> None:
    kind, content = SAMPLES[name]
    path = folder / "other"
    path.write_bytes(content)
    # these formats also contain its columns
    related = {"muri": {"tiresias"}, "chronus": {"tiresias"}}
    for other in READABLE:
        if other == kind or other in related.get(kind, set()):
            continue
        with pytest.raises(TraceError):
            read_trace(path, format=other, **OPTIONS.get(other, {}))


@pytest.mark.parametrize("name", SAMPLES)
def test_threads_read_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, content = SAMPLES[name]
    path = tmp_path / name
    path.write_bytes(content)
    options = OPTIONS.get(kind, {})
    plain = read_trace(path, format=kind, **options)
    monkeypatch.setattr(columns, "_LONG", 1)  # this treats every column as a long one
    monkeypatch.setattr(pa, "cpu_count", lambda: 3)
    threaded = read_trace(path, format=kind, **options)
    assert threaded.table.equals(plain.table)
    assert (threaded.notes, threaded.metadata) == (plain.notes, plain.metadata)


@given(text=st.text("12 \t\r\n\v", max_size=30), piece=st.integers(1, 9))
def test_swf_lines_keep_single_spaces(text: str, piece: int) -> None:
    lines = re.split(r"([\r\n])", text)
    expected = "".join(" ".join(re.findall(r"[^ \t\r\n]+|[\r\n]", line)) for line in lines)
    with mock.patch.object(swf, "_PIECE", piece):
        assert swf._single_spaces(text.encode()).decode() == expected
