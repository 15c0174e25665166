"""Phases of jobs in traces, and the batch-size modes of Shockwave's traces."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline.errors import TraceError
from gangline.trace.jobs.phases import parse_phases, phase_classes
from gangline.trace.readers._shockwave import Batches, batches_of, phases_of
from reference import phases as reference_phases
from reference.world import TraceError as OracleError
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

NATIVE = "arrival_s,gpus,duration_s,phases\n"
LINE = "{label}\tcmd\tdir\t--n\t1\t{steps}\t{gpus}\t{mode}\t1\t{slo}\t{seconds}\t{at}\n"


def line(label: str, steps: int, mode: str, **more: Any) -> str:
    given: dict[str, Any] = {"gpus": 1, "slo": -1, "seconds": 1000, "at": 0, **more}
    return LINE.format(label=label, steps=steps, mode=mode, **given)


def read(tmp_path: Path, text: str, **options: Any) -> gl.Trace:
    path = tmp_path / "trace"
    path.write_text(text)
    return gl.read_trace(path, **options)


# The column

TEXTS = [
    *("0:1", "0:1;0.3:1.6", " 0 : 1 ; 3e-1 : 16E-1 ", "0.0:.5;.5:2.", "+0:+1", "-0:1", "", "  "),
    *("0", "0:", ":1", "0:1;", ";0:1", "0:1;;0.5:2", "0:1:2:3", "a:1", "0:b", "0:1,0.5:2", "0 1"),
    *("0.1:1", "0:1;0:2", "0:1;0.5:2;0.4:1", "0:1;1:2", "-0.5:1", "0:1;nan:2", "0:1;1e400:1"),
    *("0:0", "0:-1", "0:inf", "0:nan", "0:1e-7", "0:1e-6", "0:1e6", "0:2e6", "0:1_0", "0:0x1"),
    *("0:1:2", "0:1: 2 ;0.5:1:.5;0.7:2", "0:1:", "0:1:0", "0:1:1e7", "0:1:1e6", "0::1", "0:1:x"),
    *("0:1;0.5: ", "0:\u0661", "0:1e", "0:1;0.5\n:2"),
    ";".join(f"{i / 1024}:{1 + i % 2}" for i in range(1024)),
    ";".join(f"{i / 2000}:{1 + i % 2}" for i in range(1025)),
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_reader_and_the_reference_accept_the_same(text: str) -> None:
    try:
        expected = reference_phases.read(text, "A")
    except OracleError:
        assert parse_phases(text) is None
    else:
        assert parse_phases(text) == expected


def test_a_malformed_list_names_its_line(tmp_path: Path) -> None:
    text = NATIVE + "0,1,5,0:1;0.5:2\n0,1,5,0.5:2\n"
    with refused(TraceError, line=3, column="phases", value="0.5:2"):
        read(tmp_path, text)
    left = read(tmp_path, text, on_bad_row="drop")
    assert (len(left), left.notes) == (1, {"bad_row": 1})


def test_the_column_survives_every_form_of_file(tmp_path: Path) -> None:
    trace = read(tmp_path, NATIVE + "0,1,5,0:1;0.5:2\n1,1,5,\n2,1,5,0:3\n")
    expected = ["0:1;0.5:2", None, "0:3"]
    for name in ("a.csv", "a.parquet", "a.arrow"):
        gl.write_trace(trace, tmp_path / name)
        found = gl.read_trace(tmp_path / name).column("phases").to_pylist()
        assert [text or None for text in found] == expected


def test_a_column_of_numbers_is_no_list_of_phases() -> None:
    table = pa.table({"arrival_s": [0.0], "gpus": [1], "duration_s": [5.0], "phases": [[1.0]]})
    with refused(TraceError, column="phases"):
        gl.Trace.from_arrow(table)


def test_classes_are_those_of_equal_texts() -> None:
    texts = pa.array(["0:1;0.5:2", None, "", "0:3;0.1:2", "0:1;0.5:2"]).dictionary_encode()
    found = phase_classes(texts)
    assert found is not None
    none = 2**32 - 1
    assert found[0].tolist() == [0, none, none, 1, 0]
    assert found[1] == [
        [(0.0, 1.0, 1.0), (0.5, 2.0, 1.0)],
        [(0.0, 3.0, 1.0), (0.1, 2.0, 1.0)],
    ]
    assert phase_classes(texts.slice(1, 2)) is None


# Batch sizes by epoch

SAMPLES = {"ResNet-18": 50_000, "ResNet-50": 100_000, "LM": 59_675, "Recommendation": 117_907}
LARGEST = {"ResNet-18": 256, "ResNet-50": 128, "LM": 80, "Recommendation": 8192}
SMALLEST = {"ResNet-18": 16, "ResNet-50": 16, "LM": 5, "Recommendation": 512}


KINDS = [
    (model, size << i)
    for model, size in SMALLEST.items()
    for i in range(5)
    if size << i <= LARGEST[model]
]


def is_critical(model: str, first: int, epoch: int) -> bool:
    if model == "ResNet-18":
        head = 20 if first == 256 else 10
        return epoch < head or epoch in range(150, 160) or epoch in range(250, 260)
    if model == "ResNet-50":
        return epoch < 600 and epoch % 30 < 10
    if model == "LM":
        return epoch < 10
    head = {512: 30, 1024: 30, 2048: 40}.get(first, 10)
    return epoch < head or epoch in range(60, 70) or epoch in range(80, 90)


@pytest.mark.parametrize(("model", "first"), KINDS)
def test_accordion_by_epoch(model: str, first: int) -> None:
    of_epoch = math.ceil(SAMPLES[model] / first)
    for epochs in (1, 2, 9, 10, 11, 30, 33, 34, 70, 71, 100, 101, 300, 640, 2000, 2601):
        expected = [
            LARGEST[model] if not is_critical(model, first, e) and 10 * e > 3 * epochs else first
            for e in range(epochs)
        ]
        starts = [0, *(e for e in range(1, epochs) if expected[e] != expected[e - 1])]
        job = Batches(model, first, 1, epochs * of_epoch - 1 if of_epoch > 1 else epochs)
        assert batches_of(job, "accordion") == [(e, expected[e]) for e in starts]


def test_gns_doubles_up_to_the_largest() -> None:
    """Some models and gang sizes double at these epochs; all others keep their batch size."""
    epochs = 400
    for model, first, gpus, expected in (
        ("ResNet-18", 16, 2, [(0, 16), (21, 32), (31, 64), (91, 128), (111, 256)]),
        ("ResNet-50", 32, 4, [(0, 32), (131, 64), (221, 128)]),
        ("LM", 40, 4, [(0, 40), (61, 80)]),
        ("Recommendation", 1024, 1, [(0, 1024), (21, 2048), (51, 4096), (91, 8192)]),
        ("ResNet-50", 16, 1, [(0, 16)]),
        ("ResNet-18", 32, 8, [(0, 32)]),
    ):
        steps = epochs * math.ceil(SAMPLES[model] / first)
        assert batches_of(Batches(model, first, gpus, steps), "gns") == expected
        # A job that ends one epoch after the first change sees only that change.
        if len(expected) > 1:
            short = (expected[1][0] + 1) * math.ceil(SAMPLES[model] / first)
            assert batches_of(Batches(model, first, gpus, short), "gns") == expected[:2]
            less = expected[1][0] * math.ceil(SAMPLES[model] / first)
            assert batches_of(Batches(model, first, gpus, less), "gns") == expected[:1]


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
@pytest.mark.parametrize(("model", "first"), KINDS)
def test_gns_never_exceeds_the_largest(model: str, first: int, gpus: int) -> None:
    found = batches_of(Batches(model, first, gpus, 10**9), "gns")
    assert all(after == 2 * before for (_, before), (_, after) in pairwise(found))
    assert found[-1][1] <= LARGEST[model]


# The reader


def test_a_job_that_doubles_its_batch(tmp_path: Path) -> None:
    """22 epochs of 1,492 steps at 40; from epoch 11 on they have 746 steps, at 21.7129984 / s."""
    trace = read(tmp_path, line("LM (batch size 40)", 22 * 1492, "gns", seconds=701, slo=2))
    faster = 1492 / 746 * 21.7129984 / 46.82253256
    (text,) = trace.column("phases").to_pylist()
    assert parse_phases(text) == [
        (0.0, 1.0, 1.0),
        (0.5, pytest.approx(faster, rel=1e-15), 2.0),
    ]
    share = 0.5 + 0.5 / faster
    assert trace.numbers("duration_s").tolist() == [pytest.approx(701 * share, rel=1e-15)]
    assert trace.numbers("iterations").tolist() == [pytest.approx(22 * 1492 * share, rel=1e-15)]
    assert trace.numbers("deadline_s").tolist() == [pytest.approx(1402 * share, rel=1e-15)]
    assert trace.notes == {"batch_modes": 1}


def test_a_part_of_an_epoch_is_the_last(tmp_path: Path) -> None:
    """11 epochs and a step: the knot is at 11 x 1,492 of 11 x 1,492 + 1 steps."""
    trace = read(tmp_path, line("LM (batch size 40)", 11 * 1492 + 1, "gns"))
    (text,) = trace.column("phases").to_pylist()
    phases = parse_phases(text)
    assert phases is not None
    assert phases[1][0] == 11 * 1492 / (11 * 1492 + 1)


def test_jobs_that_keep_their_batch(tmp_path: Path) -> None:
    lines = [
        line("LM (batch size 40)", 10**6, "static"),
        line("LM (batch size 80)", 10**6, "accordion"),
        line("LM (batch size 40)", 11 * 1492, "gns"),  # ends before the change
        line("Transformer (batch size 16)", 10**6, "accordion"),
        line("Mine (batch size 40)", 10**6, "gns"),
        line("LM", 10**6, "gns"),
        line("LM (batch size 40)", 10**6, "gns", gpus=3),
    ]
    trace = read(tmp_path, "".join(lines))
    assert "phases" not in trace.columns
    assert trace.notes == {"batch_mode_unknown": 3}
    assert set(trace.numbers("duration_s").tolist()) == {1000.0}


def test_modes_may_be_ignored(tmp_path: Path) -> None:
    text = line("LM (batch size 40)", 10**6, "gns") + line("LM (batch size 5)", 10**6, "odd", at=1)
    trace = read(tmp_path, text, modes="ignore")
    assert ("phases" in trace.columns, trace.notes) == (False, {})
    assert trace.numbers("iterations").tolist() == [1e6, 1e6]


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    text = line("LM (batch size 40)", 10**6, "gns") + line("LM (batch size 5)", 10**6, "odd", at=1)
    with refused(TraceError, line=2, column="mode", value="odd"):
        read(tmp_path, text)


@pytest.mark.shared
def test_the_rate_at_the_first_batch_stays(shared: Path) -> None:
    """The public trace: iterations over duration is that of the file; the work takes as long."""
    path = shared / "hardware/shockwave/trace.trace"
    found, plain = gl.read_trace(path), gl.read_trace(path, modes="ignore")
    assert found.notes == {"batch_modes": 67}
    rates = [t.numbers("iterations") / t.numbers("duration_s") for t in (found, plain)]
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-15)
    for text, seconds, own in zip(
        found.column("phases").to_pylist(),
        found.numbers("duration_s"),
        plain.numbers("duration_s"),
        strict=True,
    ):
        phases = parse_phases(text or "0:1")
        assert phases is not None
        ends = [*(progress for progress, *_ in phases[1:]), 1.0]
        times = [(e - p) / r for (p, r, _), e in zip(phases, ends, strict=True)]
        assert seconds == pytest.approx(own * math.fsum(times), rel=1e-14)


def test_an_elastic_job_has_no_phases_of_its_own() -> None:
    trace = worlds.trace("0 2 10", model=["m"], batch_size=[64], phases=["0:1;0.5:2"])
    fit = dict.fromkeys(("a_c", "b_c", "a_n", "b_n", "a_r", "b_r"), 0.01)
    limits = {"init_batch": 64, "max_batch": 512, "min_pass_batch": 8, "max_pass_batch": 128}
    lab = worlds.cluster("1x2 g", elastic={"models": {"m": {**fit, "gamma": 2.0, **limits}}})
    with refused(TraceError, column="phases", value="0:1;0.5:2"):
        gl.simulate(lab, trace, "fifo")


def test_relative_rates_of_a_mode() -> None:
    """Recommendation: slower at the largest batch. 16 epochs of 58 steps at 2,048, 40 critical."""
    job = Batches("Recommendation", 2048, 1, 100 * 58)
    slow = 58 * 11.6316932 / (15 * 59.26267281)
    assert phases_of(job, "accordion") == [
        (0.0, 1.0, 1.0),
        (0.4, pytest.approx(slow), 58 / 15),
        (0.6, 1.0, 1.0),
        (0.7, pytest.approx(slow), 58 / 15),
        (0.8, 1.0, 1.0),
        (0.9, pytest.approx(slow), 58 / 15),
    ]
