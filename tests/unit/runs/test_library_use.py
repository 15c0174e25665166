"""Tests uses of the library's objects: pickle, hash, numpy's numbers, wrong types."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline.runs.inputs import as_cluster
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LAB = gl.Cluster.homogeneous(servers=1, gpus=2)
JOBS = pa.table({"arrival_s": [0.0, 0.0], "gpus": [2, 2], "duration_s": [10.0, 2.0]})


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("back", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_a_result_comes_back_whole_from_another_process(
    back: Callable[[gl.Result], gl.Result], segments: bool
) -> None:
    result = gl.simulate(LAB, JOBS, "sjf", segments=segments)
    again = back(result)
    assert (again.summary, again.spec) == (result.summary, result.spec)
    assert again.jobs.equals(result.jobs)
    assert again.timeline.equals(result.timeline)
    assert again.has_segments == segments
    if segments:
        assert again.segments.equals(result.segments)


def test_a_saved_result_and_a_comparison_can_be_pickled(tmp_path: Path) -> None:
    comparison = gl.compare(LAB, JOBS, ["fifo", "sjf"])
    again = pickle.loads(pickle.dumps(comparison))
    assert again.rows == comparison.rows
    assert again.results[1].jobs.equals(comparison.results[1].jobs)
    comparison.results[0].save(tmp_path / "result")
    loaded = pickle.loads(pickle.dumps(gl.load_result(tmp_path / "result")))
    assert loaded.jobs.equals(comparison.results[0].jobs)


def test_equal_clusters_have_equal_hashes() -> None:
    keys = {**LAB.to_dict(), "notes": {"a": 1}, "network": {"preset": "dally-2024"}}
    one, two = (gl.Cluster.from_dict(keys) for _ in range(2))
    assert one == two
    assert len({one, two, LAB}) == 2


def test_numbers_of_numpy_are_numbers() -> None:
    lab = gl.Cluster.homogeneous(servers=np.int64(1), gpus=np.int32(2), memory_gb=np.float64(16.0))
    assert lab == LAB
    trace = gl.synth.philly(jobs=np.int64(5), seed=np.uint8(1), max_gpus=np.int16(2))
    assert trace.table.equals(gl.synth.philly(jobs=5, seed=1, max_gpus=2).table)
    result = gl.simulate(
        lab, trace, "fifo", seed=np.int64(3), restart_s=np.float32(1.5), segments=np.True_
    )
    assert (result.seed, result.spec["options"]["restart_s"]) == (3, 1.5)
    assert result.has_segments
    cut = gl.read_trace("synth:philly?jobs=5&seed=1", limit=np.int64(2), max_gpus=np.int64(64))
    assert len(cut) == 2


def test_arrays_of_numpy_are_lists_of_numbers() -> None:
    limits = np.array([3600.0, 7200.0])
    by_name = gl.simulate(LAB, JOBS, "las", params={"limits": limits, "las_quantum": limits[0]})
    by_object = gl.simulate(LAB, JOBS, gl.policies.Las(limits=limits, las_quantum=limits[0]))
    plain = gl.policies.Las(limits=(3600.0, 7200.0), las_quantum=3600.0)
    assert by_name.policy == by_object.policy == plain.label()
    assert by_name.spec["policy"]["params"] == by_object.spec["policy"]["params"] == plain.params()


@pytest.mark.parametrize(
    ("call", "error", "facts"),
    [
        (lambda: as_cluster(None), gl.ClusterError, {"value": "NoneType"}),
        (
            lambda: gl.simulate(gl.Trace.from_arrow(JOBS), LAB),  # type: ignore[arg-type]
            gl.ClusterError,
            {"value": "Trace"},
        ),
        (lambda: gl.Cluster.from_dict([1]), gl.ClusterError, {"value": "list"}),
        (
            lambda: gl.simulate(LAB, JOBS, "las", params=[1]),  # type: ignore[arg-type]
            gl.PolicyError,
            {"field": "params", "value": "list"},
        ),
        (lambda: gl.read_trace(None), gl.TraceError, {"value": "NoneType"}),
        (lambda: gl.read_trace(b"x"), gl.TraceError, {"value": "bytes"}),
    ],
)
def test_a_wrong_kind_of_object_is_named(
    call: Any, error: type[Exception], facts: dict[str, Any]
) -> None:
    with refused(error, **facts):
        call()


class Recorded(worlds.OneByOne):
    """A policy whose parameters come from the caller."""

    def __init__(self, params: Any = None, label: Any = "recorded") -> None:
        self._params = params
        self._label = label

    def params(self) -> Any:
        return self._params

    def label(self) -> Any:
        return self._label


def test_what_a_policy_records_can_be_saved(tmp_path: Path) -> None:
    given = {"k": np.int64(3), "limits": np.array([1.5, 2.0]), "inner": {"x": (np.float64(2.5),)}}
    result = gl.simulate(LAB, JOBS, Recorded(given))
    result.save(tmp_path / "r")
    kept = {"k": 3, "limits": [1.5, 2.0], "inner": {"x": [2.5]}}
    assert gl.load_result(tmp_path / "r").spec["policy"]["params"] == kept
    assert result.spec["policy"]["params"] == kept


@pytest.mark.parametrize(
    ("policy", "facts"),
    [
        (Recorded({"seen": {1, 2}}), {"field": "params", "value": {"seen": {1, 2}}}),
        (Recorded([1]), {"field": "params", "value": [1]}),
        (Recorded(None), {"field": "params"}),
        (Recorded({}, label=None), {"field": "label"}),
        (Recorded({}, label=""), {"field": "label", "value": ""}),
    ],
)
def test_what_could_not_be_saved_is_refused_before_the_run(
    policy: Recorded, facts: dict[str, Any]
) -> None:
    with refused(gl.PolicyError, **facts):
        gl.simulate(LAB, JOBS, policy)


def test_a_whole_number_with_a_point_is_shown_with_it() -> None:
    with refused(gl.TraceError, column="jobs"):
        gl.synth.philly(jobs=10.0, seed=1)  # type: ignore[arg-type]
    with refused(gl.TraceError, column="jobs"):
        gl.read_trace("synth:philly?jobs=1e9")
