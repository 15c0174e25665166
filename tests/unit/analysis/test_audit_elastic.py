"""Tests the audit of runs whose jobs change their size: the GPUs they may hold, and their rates."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline.analysis.audit.elastic import _rates
from gangline.cluster.elastic import ElasticClass

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, Any]

FIT = {"a_c": 0.05, "b_c": 0.002, "a_n": 0.2, "b_n": 0.01, "a_r": 0.05, "b_r": 0.002}
MODEL = {**FIT, "gamma": 1.5, "init_batch": 32, "max_batch": 512, "min_pass_batch": 4}
MODEL |= {"max_pass_batch": 64, "noise": [[0.0, 1.0, 0.5], [0.4, 0.5, 1.0]]}


@cache
def lab() -> gl.Cluster:
    return worlds.cluster("2x4 T4", elastic={"models": {"m": MODEL}})


@cache
def jobs() -> gl.Trace:
    return worlds.trace(
        "a 0 1 900",
        "b 0 2 400",
        "c 100 1 300",
        "fixed 150 2 100",
        model=["m", "m", "m", "x"],
        batch_size=[32] * 4,
        memory_gb=[8.0] * 4,
        max_gpus=[4, 4, 2, 2],
    )


@cache
def run(policy: str = "pollux") -> gl.Result:
    return gl.simulate(lab(), jobs(), policy, segments=True, restart_s=5.0, first_start_s=2.0)


def audit(change: Callable[[list[Row]], object] | None = None, **terms: Any) -> gl.Audit:
    rows = run().segments.to_pylist()
    if change is not None:
        change(rows)
    table = pa.Table.from_pylist(rows, schema=run().segments.schema)
    return gl.audit(table, lab(), jobs=run().jobs, **{"trace": jobs()} | terms)


def test_a_run_that_resizes_jobs_breaks_no_rule() -> None:
    widths = {(row["job_id"], row["gpu_mask"].bit_count()) for row in run().segments.to_pylist()}
    assert len([width for job, width in widths if job == "a"]) > 1, "a job changes its size"
    found = audit()
    assert found.ok, found.findings.to_pylist()
    assert {"gang", "rate", "short-run", "work-done", "memory", "sums"} <= set(found.checked)
    gl.testing.check_result(run(), lab(), jobs())
    gl.testing.check_result(run("srtf"), lab(), jobs())


def first(rows: list[Row], job: str) -> Row:
    return next(row for row in rows if row["job_id"] == job)


def widen(rows: list[Row]) -> None:
    for row in rows:
        if row["job_id"] == "c":
            row["gpu_mask"] = 0b1111


def shrink_fixed(rows: list[Row]) -> None:
    for row in rows:
        if row["job_id"] == "fixed":
            row["gpu_mask"] &= row["gpu_mask"] - 1


def quicken(rows: list[Row]) -> None:
    first(rows, "a")["rate"] *= 1.5


def slow_down(rows: list[Row]) -> None:
    for row in rows:
        if row["job_id"] == "a":
            row["rate"] *= 0.9


def swell(rows: list[Row]) -> None:
    first(rows, "a")["sub_batch"] = 200


def lose(rows: list[Row]) -> None:
    row = next(r for r in rows if r["job_id"] == "a" and r["gpu_mask"].bit_count() > 1)
    row["gpu_mask"] &= row["gpu_mask"] - 1


@pytest.mark.parametrize(
    ("change", "rule", "words"),
    [
        (widen, "gang", "it may hold 1 to 2"),
        (shrink_fixed, "gang", "holds 1 GPUs from"),
        (quicken, "rate", "allow"),
        (slow_down, "short-run", "did at most"),
        (swell, "memory", "GPU"),
        (lose, "sums", "gpu_seconds"),
    ],
)
def test_damage_is_found(change: Callable[[list[Row]], None], rule: str, words: str) -> None:
    found = audit(change)
    assert rule in found.counts, found.counts
    assert any(words in row["what"] for row in found.findings.to_pylist() if row["rule"] == rule)


def test_without_a_trace_any_size_may_be_right_and_that_is_said() -> None:
    found = audit(trace=None)
    assert found.ok
    assert "gang" not in found.checked
    assert audit(trace=None, require=["gang"]).unmet == {
        "gang": "which jobs may change their size, and how far: a trace"
    }


@pytest.mark.parametrize("phase", [(0.5, 1.0), (1e-3, 4.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0)])
def test_no_number_of_passes_is_faster_than_the_bound(phase: tuple[float, float]) -> None:
    import numpy as np

    fit = (0.05, 0.002, 0.2, 0.01, 0.05, 0.002, 1.5)
    each = ElasticClass(fit, 32, 512, 4, 64, 1, 8, 1, 32, 1, ((0.0, *phase),), ())
    for gpus, apart in ((1, False), (3, False), (8, True)):
        for samples in (4, 17, 64):
            bound = float(_rates(each, gpus, apart, np.asarray([samples]))[0])
            found = [goodput(each, gpus, samples, extra, apart=apart) for extra in range(300)]
            assert max(found) <= bound * (1 + 1e-12)
            assert max(found) >= bound * 0.85, "it is not idle"


def goodput(each: ElasticClass, gpus: int, samples: int, extra: int, *, apart: bool) -> float:
    """Return the iterations of the initial batch per second, by the definition."""
    _, sqr, var = each.phases[0]
    a_c, b_c, a_n, b_n, a_r, b_r, gamma = each.fit
    one_pass = a_c + b_c * samples
    exchange = 0.0
    if gpus > 1:
        constant, slope = (a_n, b_n) if apart else (a_r, b_r)
        exchange = constant + slope * (gpus - 2)
    step_s = extra * one_pass + (one_pass**gamma + exchange**gamma) ** (1 / gamma)
    scale = gpus * samples * (extra + 1) / each.init_batch
    below = var / scale + sqr
    gain = (var + sqr) / below if below else 1.0
    return gain / step_s
