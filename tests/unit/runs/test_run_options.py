from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline import _core
from gangline.cluster.description import Cluster
from gangline.errors import ClusterError, OptionError
from gangline.runs.inputs import make_options, override
from gangline.runs.options import CheckedOptions
from gangline.trace.jobs.to_core import pairs_of
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot


def cluster(**changes: Any) -> Cluster:
    return Cluster.from_dict(
        {
            "gpu_types": [{"name": "g", "memory_gb": 16}],
            "servers": [{"count": 2, "gpu": "g", "gpus": 4}],
            **changes,
        }
    )


def given(lab: gl.Cluster, labels: list[str], **options: Any) -> dict[str, Any]:
    """Return the arguments that the core gets."""
    with patch.object(_core, "RunOptions", lambda _, **arguments: arguments):
        return cast("dict[str, Any]", CheckedOptions(**options).to_core(lab, labels, None))


def test_tables_become_arrays_by_label() -> None:
    lab = cluster(
        network={"levels": {"a": [1, 0.9, 0.9], "*": [1, 1, 0.5], "unseen": [1, 0.1, 0.1]}},
        failures={"table": [{"server": 1, "down_s": 5.0}, {"server": 0, "down_s": 1, "up_s": 2}]},
    )
    options = given(lab, ["a", "b"], restart_s=2.0, restart_by_model={"b": 3.0})
    rows = [[options["network"].at_tier(0, a, 4, t) for t in range(3)] for a in (0, 1, None)]
    assert rows == [[1, 0.9, 0.9], [1, 1, 0.5], [1, 1, 0.5]]
    assert options["restart_by_model"].tolist() == [2.0, 3.0]
    assert options["outages"] == [(1, 5.0, np.inf), (0, 1.0, 2.0)]


def test_mean_times_become_seconds() -> None:
    lab = cluster(failures={"mtbf_hours": 2, "mttr_hours": 0.5})
    assert given(lab, [])["mean_times_s"] == (7200.0, 1800.0)


def test_the_core_takes_exactly_the_options_there_are() -> None:
    every = given(cluster(), [])
    core = cluster().to_core()
    for name in every:
        rest = {key: value for key, value in every.items() if key != name}
        with pytest.raises(TypeError, match=f"'{name}'"):
            _core.RunOptions(core, **rest)
    with pytest.raises(TypeError, match="restart"):
        _core.RunOptions(core, **every, restart=30.0)  # type: ignore[call-arg]


ROWS = [
    {"model": "a", "co_model": "b", "xi": 0.97},
    {"model": "b", "co_model": "a", "xi": 1.5},
    {"model": "a", "co_model": "a", "xi": 0.0},
    {"model": "b", "co_model": "unseen", "xi": 2.0},
]


def test_interference_rows_are_clamped_and_absent_pairs_marked() -> None:
    trace = gl.Trace.from_arrow(table_of("a", "b", None))
    pairs = pairs_of(trace, cluster(sharing={"interference": "table", "rows": ROWS}))
    assert pairs is not None
    assert pairs.of_job is not None
    a, b, none = pairs.of_job.tolist()
    xi = pairs.xi[0]
    assert np.isnan([xi[a, a], xi[b, b], xi[a, none], xi[none, b]]).all()
    assert (xi[a, b], xi[b, a], pairs.clamped) == (1.0, 1.5, 1)
    filled = {"interference": "table", "rows": ROWS, "missing": "constant", "xi": 1.3}
    pairs = pairs_of(trace, cluster(sharing=filled))
    assert pairs is not None
    assert pairs.xi[0][a, a] == pairs.xi[0][none, none] == 1.3
    assert (pairs.xi[0][a, b], pairs.absent) == (1.0, [])


def table_of(*models: str | None) -> pa.Table:
    jobs = {"arrival_s": [0.0] * len(models), "gpus": [1] * len(models)}
    names = pa.array(models, pa.string())
    return pa.table({**jobs, "duration_s": [5.0] * len(models), "model": names})


def run(policy: str, *models: str | None, **sharing: Any) -> gl.Result:
    table = {"interference": "table", "rows": ROWS, **sharing}
    return gl.simulate(cluster(sharing=table), table_of(*models), policy)


def test_absent_pairs_are_listed_before_the_run(snapshot: Snapshot) -> None:
    # no job shares with a job of its own model
    assert run("toy-share", "a", "b").summary["finished"] == 2
    with refused(ClusterError, snapshot):
        run("toy-share", "a", "b", "a")
    with refused(ClusterError, key="sharing", value=[("a", "(no model)"), ("(no model)", "a")]):
        run("toy-share", "a", None)


def test_absent_pairs_matter_only_where_jobs_may_share() -> None:
    assert run("fifo", "a", "b", "a").summary["finished"] == 3
    assert run("toy-share", "a", "a", missing="infeasible").summary["finished"] == 2
    assert run("toy-share", "a", "a", missing="constant", xi=1.3).summary["finished"] == 2
    assert run("toy-share", "a", "a", max_share=1).summary["finished"] == 2


@pytest.mark.parametrize("name", list(gl.policies.registry))
def test_no_policy_has_an_overhead_of_its_own(name: str) -> None:
    jobs = worlds.jobs("0 1 900", "0 2 5", "1 2 7", "2 1 9", deadline_s=[5000.0] * 4)
    # gavel-cost needs a price
    priced = [{"name": "g", "memory_gb": 16, "price_per_hour": 2.0}]
    lab = cluster(gpu_types=priced, sharing={"xi": 1.5})
    result = gl.simulate(lab, jobs, name, on_infeasible="drop")
    assert result.summary["finished"] > 0
    assert not any(result.jobs["overhead_s"].to_pylist())  # dropped jobs have null


BAD: list[tuple[dict[str, Any], str]] = [
    ({"seed": -1}, "seed"),
    ({"restart_s": -1.0}, "restart_s"),
    ({"first_start_s": float("nan")}, "first_start_s"),
    ({"checkpoint_interval_s": 0.0}, "checkpoint_interval_s"),
    ({"restart_by_model": {"m": -2.0}}, "restart_by_model.m"),
    ({"on_infeasible": "skip"}, "on_infeasible"),
    ({"timeline": "often"}, "timeline"),
    ({"timeline": 0.0}, "timeline"),
    ({"max_events": 0}, "max_events"),
    ({"max_events": 2**64}, "max_events"),
    ({"restarts": 1}, "restarts"),
    ({"restart_s": "soon"}, "restart_s"),
    ({"segments": 1}, "segments"),
]


@pytest.mark.parametrize(("values", "field"), BAD)
def test_bad_options_are_named(values: dict[str, Any], field: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_options(values)
    assert caught.value.field == field


def test_sharing_keys_can_be_overridden_and_are_checked(snapshot: Snapshot) -> None:
    assert override(cluster(), {"sharing": {"xi": 1.6}}).sharing.xi == 1.6  # type: ignore[union-attr]
    with refused(ClusterError, snapshot):
        override(cluster(), {"sharing": {"xii": 1.6}})  # type: ignore[typeddict-unknown-key]
