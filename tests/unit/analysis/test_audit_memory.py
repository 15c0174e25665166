"""Tests the audit of GPU memory: the sum of what the jobs on a GPU need."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds

LAB: dict[str, Any] = worlds.lab(
    "1x2 A",
    "1x2 B",
    types={"B": {"memory_gb": 32}},
    name="lab",
    sharing={"max_share": 2, "memory_fixed_fraction": 0.5},
)


def look(
    memory: list[float | None], lab: dict[str, Any] | None = None, **columns: list[Any]
) -> gl.Audit:
    """Audit job 0 on both GPUs of server 0 until 20, and job 1 on the second from 5 to 10."""
    held = {
        "job_id": ["0", "1"],
        "start_s": [0.0, 5.0],
        "end_s": [20.0, 10.0],
        "server": [0, 0],
        "gpu_mask": [0b11, 0b10],
        **columns,
    }
    jobs = worlds.jobs("0 0 2 1", "1 0 1 1", memory_gb=memory, batch_size=[64, 64])
    return gl.audit(pa.table(held), lab or LAB, trace=jobs, max_share=2)


@pytest.mark.parametrize(
    ("memory", "ok"),
    [([8.0, 8.0], True), ([8.0, 8.5], False), ([16.0, None], True), ([17.0, None], False)],
)
def test_the_jobs_on_a_gpu_fit_into_its_memory(memory: list[float | None], *, ok: bool) -> None:
    found = look(memory)
    assert "memory" in found.checked
    assert found.ok is ok, found


def test_a_finding_says_where_and_how_much() -> None:
    (row,) = look([10.0, 8.0]).findings.to_pylist()
    assert (row["rule"], row["job_id"], row["server"], row["time_s"]) == ("memory", "1", 0, 5.0)
    assert row["what"] == "GPU 1 of server 0 holds 18 GiB instead of at most 16"
    assert look([10.0, 8.0], server=[1, 1]).ok  # 32 GiB each


def test_a_sub_batch_needs_less() -> None:
    # 12 GiB at 16 of 64: 6 + 6 / 4 = 7.5
    assert not look([8.5, 12.0]).ok
    assert look([8.5, 12.0], sub_batch=[64, 16]).ok
    assert not look([9.0, 12.0], sub_batch=[64, 16]).ok
    assert look([8.5, 12.0], sub_batch=[0, 16]).ok  # 0 = the whole batch


def test_without_memory_in_the_trace_the_rule_is_skipped() -> None:
    held = {"job_id": ["0"], "start_s": [0.0], "end_s": [1.0], "server": [0], "gpu_mask": [1]}
    found = gl.audit(pa.table(held), LAB)
    assert "memory_gb" in found.skipped["memory"]
