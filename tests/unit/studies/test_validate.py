"""Tests the comparison of simulations with a testbed: a world by hand, and broken tables."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
import reference
import worlds
from commands import document, gangline
from gangline.studies.validate.agreement import agreement, spearman
from gangline.studies.validate.waits import Times, passed, waits
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gangline import Validation
    from snapshots import Snapshot

# The world has two GPUs and is first in, first out. The testbed ran `a` and `c` a tenth slower than
# the trace says, and it was 5 s late with `d`.
#          trace               testbed             run times given     trace alone
#   a  2 GPUs, at 0, 100 s     0 to 110            0 to 110            0 to 100
#   b  1 GPU, at 0, 50 s       110 to 160          110 to 160          100 to 150
#   c  1 GPU, at 10, 200 s     110 to 330          110 to 330          100 to 300
#   d  2 GPUs, at 20, 40 s     335 to 375          330 to 370          300 to 340
LAB = gl.Cluster.homogeneous(servers=1, gpus=2)
JOBS = pa.table(
    {
        "job_id": ["a", "b", "c", "d"],
        "arrival_s": [0.0, 0.0, 10.0, 20.0],
        "gpus": [2, 1, 1, 2],
        "duration_s": [100.0, 50.0, 200.0, 40.0],
        "model": ["x", "x", "y", "y"],
    }
)
HAPPENED: dict[str, list[Any]] = {
    "job_id": ["a", "b", "c", "d"],
    "arrival_s": [0.0, 0.0, 10.0, 20.0],
    "first_start_s": [0.0, 110.0, 110.0, 335.0],
    "finish_s": [110.0, 160.0, 330.0, 375.0],
    "run_s": [110.0, 50.0, 220.0, 40.0],
}
TRACE = gl.Trace.from_arrow(JOBS)


def held(table: Mapping[str, Sequence[Any]] | None = None, /, **options: Any) -> Validation:
    """Compare `fifo` with the testbed."""
    return gl.validate(LAB, TRACE, "fifo", pa.table(dict(table or HAPPENED)), **options)


def with_column(name: str, values: list[Any]) -> dict[str, list[Any]]:
    return {**HAPPENED, name: values}


class TestByHand:
    def test_run_times_given(self) -> None:
        found = held()["fifo"].layers["scheduling"]
        # JCTs 110, 160, 320, 350 of observed 110, 160, 320, 355
        mean = found.measures["jct_mean_s"]
        assert (mean.observed, mean.simulated) == (236.25, 235.0)
        assert mean.error == pytest.approx(-5.0 / 945.0)
        assert found.measures["jct_p50_s"].error == 0.0  # (160 + 320) / 2
        last = found.measures["jct_p99_s"]  # 97 % of the way from the third to the fourth
        assert last.observed == pytest.approx(320.0 + 0.97 * 35.0)
        assert last.simulated == pytest.approx(320.0 + 0.97 * 30.0)
        makespan = found.measures["makespan_s"]
        assert (makespan.observed, makespan.simulated) == (375.0, 370.0)
        held_s = found.measures["gpu_seconds"]  # 2 x 110 + 50 + 220 + 2 x 40
        assert (held_s.observed, held_s.simulated) == (570.0, 570.0)
        assert found.errors["abs_p50"] == 0.0
        assert found.errors["abs_p99"] == pytest.approx(0.97 * 5.0 / 355.0)
        assert found.rank_correlation == pytest.approx(1.0)

    def test_trace_alone(self) -> None:
        found = held()["fifo"].layers["prediction"]
        # JCTs 100, 150, 290, 320
        assert found.measures["jct_mean_s"].simulated == 215.0
        assert found.measures["jct_mean_s"].error == pytest.approx(-85.0 / 945.0)
        assert found.measures["makespan_s"].simulated == 340.0
        assert found.measures["gpu_seconds"].simulated == 530.0
        errors = [-10.0 / 110.0, -10.0 / 160.0, -30.0 / 320.0, -35.0 / 355.0]
        assert found.errors["abs_p50"] == pytest.approx(-(errors[0] + errors[2]) / 2.0)
        assert found.errors["p50"] == pytest.approx((errors[0] + errors[2]) / 2.0)

    def test_bias_of_groups(self) -> None:
        groups = held()["fifo"].layers["prediction"].groups
        one, two = groups["size"]
        assert (one.name, one.jobs, one.observed_s, one.simulated_s) == ("1", 2, 240.0, 220.0)
        assert one.error == pytest.approx(-1.0 / 12.0)
        assert one.median_error == pytest.approx((-10.0 / 160.0 - 30.0 / 320.0) / 2.0)
        assert (two.name, two.observed_s, two.simulated_s) == ("2", 232.5, 210.0)
        assert [(g.name, g.observed_s) for g in groups["model"]] == [("x", 135.0), ("y", 337.5)]
        assert [(g.name, g.jobs) for g in groups["length"]] == [("up to 10 min", 4)]

    def test_first_departure(self) -> None:
        layers = held(tolerance_s=4.0)["fifo"].layers
        first = layers["scheduling"].departure
        assert first is not None
        assert (first.job_id, first.observed_start_s, first.simulated_start_s) == (
            "d",
            335.0,
            330.0,
        )
        assert (first.differing, first.known, first.median_s) == (1, 4, 0.0)
        first = layers["prediction"].departure  # `b` and `c` both at 100 s: `b` is first
        assert first is not None
        assert (first.job_id, first.observed_start_s, first.simulated_start_s) == (
            "b",
            110.0,
            100.0,
        )
        assert (first.differing, first.known, first.median_s) == (3, 4, 10.0)
        assert held(tolerance_s=5.0)["fifo"].layers["scheduling"].departure is None

    def test_a_peer_is_another_column(self) -> None:
        peer = {"id": ["d", "c", "b", "a"], "took": [355.0, 352.0, 160.0, 110.0]}
        found = held(peer=pa.table(peer), peer_columns={"job_id": "id", "jct_s": "took"})
        theirs = found["fifo"].layers["peer"]
        assert theirs.measures["jct_mean_s"].error == pytest.approx(32.0 / 945.0)
        assert theirs.errors["abs_p99"] == pytest.approx(0.97 * 0.1)  # `c`: 352 of 320
        assert theirs.starts_known == 0
        assert "gpu_seconds" not in theirs.measures

    def test_run_times_follow_where_no_job_is_stopped(self) -> None:
        columns = {name: HAPPENED[name] for name in HAPPENED if name != "run_s"}
        whole, derived = (found["fifo"].layers["scheduling"] for found in (held(), held(columns)))
        assert derived.to_dict() == whole.to_dict()
        found = gl.validate(LAB, TRACE, "srtf", pa.table(columns))["srtf"]
        assert list(found.layers) == ["prediction"]
        assert found.missing["scheduling"].startswith("the table has no run times")

    def test_clocks_may_differ(self) -> None:
        later = {
            name: [value + 1.7e9 for value in HAPPENED[name]]
            for name in ("arrival_s", "first_start_s", "finish_s")
        }
        moved = held({**HAPPENED, **later}, tolerance_s=4.0)
        assert moved["fifo"].to_dict() == held(tolerance_s=4.0)["fifo"].to_dict()

    def test_only_counted_arrivals_are_compared(self) -> None:
        found = held(count_arrivals=(5.0, 20.0))["fifo"]
        assert found.job_ids == ["c"]
        assert found.layers["scheduling"].measures["jct_mean_s"].simulated == 320.0

    def test_order_of_policies(self) -> None:
        slow = pa.table({"job_id": ["a", "b", "c", "d"], "jct_s": [500.0, 500.0, 500.0, 500.0]})
        found = gl.validate(
            LAB, TRACE, ["fifo", "sjf"], {"fifo": pa.table(HAPPENED), "sjf": slow}
        )  # fmt: skip
        simulated = {p.policy: p.layers["prediction"].measures["jct_mean_s"] for p in found}
        assert simulated["sjf"].simulated < simulated["fifo"].simulated
        assert found.order()["prediction"] == {
            "observed": ["fifo", "sjf"],
            "simulated": ["sjf", "fifo"],
            "alike": 0,
            "pairs": 1,
        }
        assert list(found.order()) == ["prediction"]


@pytest.mark.parametrize(
    "policy", ["fifo", "sjf", "srtf", "las", "tiresias", "themis", "gavel-las"]
)
def test_what_the_simulator_did_itself_has_no_error(policy: str) -> None:
    lab = gl.Cluster.homogeneous(servers=4, gpus=4)
    trace = gl.synth.philly(jobs=120, seed=5, max_gpus=8)
    happened = gl.simulate(lab, trace, policy, restart_s=20.0, first_start_s=7.0)
    found = gl.validate(
        lab, trace, policy, happened.jobs, tolerance_s=0.0, restart_s=20.0, first_start_s=7.0
    )[policy]
    assert_equal(found.layers["prediction"].to_dict())
    assert found.defects == {}


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf", "las", "tiresias"])
def test_given_its_own_run_times_it_does_the_same(policy: str) -> None:
    lab = gl.Cluster.homogeneous(servers=4, gpus=4)
    trace = gl.synth.philly(jobs=120, seed=5, max_gpus=8)
    happened = gl.simulate(lab, trace, policy)
    found = gl.validate(lab, trace, policy, happened.jobs, tolerance_s=1e-6)[policy]
    assert_equal(found.layers["scheduling"].to_dict())


def assert_equal(layer: dict[str, Any]) -> None:
    """Expect no error in any number; a float sum of nanoseconds may round."""
    assert layer["departure"] is None
    assert layer["rank_correlation"] == pytest.approx(1.0)
    assert len(layer["measures"]) == 5
    for measure in layer["measures"].values():
        assert measure["error"] == pytest.approx(0.0, abs=1e-12)
    assert layer["errors"]
    for error in layer["errors"].values():
        assert error == pytest.approx(0.0, abs=1e-12)
    for groups in layer["groups"].values():
        assert groups
        for group in groups:
            assert group["error"] == pytest.approx(0.0, abs=1e-12)


def test_observed_times_hold_what_slows_jobs_down() -> None:
    # On a network that slows distant gangs down, and with restarts, the observed run times have
    # all of that; the layer that is given them adds nothing.
    keys = gl.Cluster.homogeneous(servers=4, gpus=4).to_dict()
    levels = {"*": [1.0, 0.5, 0.5]}
    lab = gl.Cluster.from_dict({**keys, "network": {"kind": "levels", "levels": levels}})
    trace = gl.synth.philly(jobs=60, seed=5, max_gpus=8)
    happened = gl.simulate(lab, trace, "fifo", first_start_s=30.0)
    plain = gl.simulate(gl.Cluster.from_dict(keys), trace, "fifo")
    assert happened.summary["jct_mean_s"] > 1.05 * plain.summary["jct_mean_s"]
    found = gl.validate(lab, trace, "fifo", happened.jobs, first_start_s=30.0, tolerance_s=1e-6)
    assert_equal(found["fifo"].layers["scheduling"].to_dict())


def test_layers_that_mean_nothing_are_refused_with_a_reason() -> None:
    columns = pa.table(HAPPENED)
    elastic = gl.validate(LAB, TRACE, "pollux", columns)["pollux"]
    assert "changes the sizes of jobs" in elastic.missing["scheduling"]
    sharing = gl.Cluster.from_dict({**LAB.to_dict(), "sharing": {"xi": 1.5}})
    shared = gl.validate(sharing, TRACE, "sjf-bsbf", columns)["sjf-bsbf"]
    assert "lets jobs share GPUs" in shared.missing["scheduling"]


class TestBrokenTables:
    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("job_id", ["a", "b", "b", "d"]),
            ("job_id", ["a", None, "c", "d"]),
            ("run_s", [110.0, -50.0, 220.0, 40.0]),
            ("finish_s", [110.0, float("inf"), 330.0, 375.0]),
            ("finish_s", [-1.0, 160.0, 330.0, 375.0]),
            ("finish_s", [110.0, 160.0, 5.0, 375.0]),
            ("finish_s", [110.0, 90.0, 330.0, 375.0]),
            ("first_start_s", [0.0, 110.0, 5.0, 335.0]),
        ],
    )
    def test_errors(self, name: str, values: list[Any], snapshot: Snapshot) -> None:
        with refused(gl.TraceError, snapshot):
            held(with_column(name, values))

    def test_the_line_of_a_file_is_named(self, tmp_path: Path, snapshot: Snapshot) -> None:
        path = tmp_path / "log.csv"
        path.write_text("job,end\na,110\nb,160\nc,oops\nd,375\n")
        columns = {"job_id": "job", "finish_s": "end"}
        with refused(gl.TraceError, snapshot):
            gl.validate(LAB, TRACE, "fifo", path, columns=columns)
        path.write_text("job,end\na,110\nb,160\nc,330\nb,375\n")
        with refused(gl.TraceError, snapshot):
            gl.validate(LAB, TRACE, "fifo", path, columns=columns)

    def test_missing_and_unknown_jobs_are_counted(self) -> None:
        table: dict[str, list[Any]] = {
            "job_id": ["a", "b", "c", "makespan"],
            "jct_s": [110.0, 160.0, 320.0, -1.0],
        }
        found = held(table)["fifo"]
        assert found.defects == {"unknown_job": 1, "missing_job": 1}
        assert found.job_ids == ["a", "b", "c"]
        assert found.layers["prediction"].measures["jct_mean_s"].simulated == 180.0
        assert any("(makespan)" in note for note in found.notes)
        assert any("(d)" in note for note in found.notes)

    @pytest.mark.parametrize("unknown", [None, float("nan")])
    def test_a_job_without_a_finish_is_counted(self, unknown: float | None) -> None:
        found = held(with_column("finish_s", [110.0, 160.0, 330.0, unknown]))["fifo"]
        assert found.defects == {"no_finish": 1}
        assert found.job_ids == ["a", "b", "c"]

    def test_times_that_do_not_fit_are_counted(self) -> None:
        found = held(with_column("run_s", [111.0, 50.0, 220.0, 40.0]))["fifo"]
        assert found.defects == {"run_exceeds_jct": 1}
        found = held(with_column("arrival_s", [0.0, 0.0, 10.0, 25.0]))["fifo"]
        assert found.defects == {"arrival_differs": 1}

    def test_an_observed_time_of_zero_has_no_relative_error(self) -> None:
        zero: dict[str, list[Any]] = {
            "job_id": ["a", "b", "c", "d"],
            "jct_s": [0.0, 150.0, 290.0, 320.0],
        }
        found = held(zero)["fifo"].layers["prediction"]
        assert found.errors["abs_p99"] == 0.0
        assert found.measures["jct_mean_s"].observed == 190.0

    def test_no_job_in_common(self, snapshot: Snapshot) -> None:
        with refused(gl.TraceError, snapshot):
            held({"job_id": ["A"], "jct_s": [1.0]})
        empty = pa.table({"job_id": pa.array([], pa.string()), "jct_s": pa.array([], pa.float64())})
        with refused(gl.TraceError, snapshot):
            gl.validate(LAB, TRACE, "fifo", empty)
        with refused(gl.TraceError, snapshot):
            held({"job_id": ["a"], "jct_s": [None]})

    def test_columns(self, snapshot: Snapshot) -> None:
        with refused(gl.TraceError, snapshot):
            held({"job_id": ["a"], "run_s": [1.0]})
        with refused(gl.TraceError, snapshot):
            held(columns={"finished_s": "finish_s"})
        with refused(gl.TraceError, snapshot):
            held(columns={"finish_s": "end"})

    def test_tables_of_policies(self, snapshot: Snapshot) -> None:
        table = pa.table(HAPPENED)
        with refused(gl.PolicyError, snapshot):
            gl.validate(LAB, TRACE, "fifo", {"las": table})
        with refused(gl.PolicyError, snapshot):
            gl.validate(LAB, TRACE, ["fifo", "las"], {"fifo": table})
        with refused(gl.PolicyError, field="policies", value="fifo"):
            gl.validate(LAB, TRACE, ["fifo", "fifo"], table)
        with refused(gl.PolicyError, snapshot):
            gl.validate(LAB, TRACE, [], table)
        with refused(gl.OptionError, snapshot):
            held(tolerance_s=float("nan"))


FEW = st.lists(st.integers(0, 5), min_size=2, max_size=12)


@given(FEW.flatmap(lambda a: st.tuples(st.just(a), st.permutations(a))))
def test_rank_correlation_is_that_of_the_definition(both: tuple[list[int], list[int]]) -> None:
    def ranks(values: list[int]) -> list[float]:
        below = [sum(other < one for other in values) for one in values]
        equal = [sum(other == one for other in values) for one in values]
        return [b + (e + 1) / 2 for b, e in zip(below, equal, strict=True)]

    found = spearman(*(np.array(values, dtype=np.float64) for values in both))
    if len(set(both[0])) == 1:
        assert found is None
    else:
        expected = statistics.correlation(*(ranks(values) for values in both))
        assert found == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.tuples(st.floats(1.0, 1e6), st.floats(1.0, 1e6)), min_size=2, max_size=30))
def test_quantiles_are_those_of_the_standard_library(pairs: list[tuple[float, float]]) -> None:
    observed, simulated = (np.array(column) for column in zip(*pairs, strict=True))
    found = agreement(np.zeros(len(pairs)), observed, simulated)
    errors = [s / o - 1.0 for o, s in pairs]
    for column, of in ((errors, ""), ([abs(error) for error in errors], "abs_")):
        cuts = statistics.quantiles(column, n=100, method="inclusive")
        for name, at in (("p50", 49), ("p90", 89), ("p99", 98)):
            assert found.errors[of + name] == pytest.approx(cuts[at], rel=1e-9, abs=1e-12)
    cuts = statistics.quantiles(observed.tolist(), n=100, method="inclusive")
    assert found.measures["jct_p99_s"].observed == pytest.approx(cuts[98])
    mean = statistics.fmean(s for _, s in pairs) / statistics.fmean(o for o, _ in pairs) - 1.0
    assert found.measures["jct_mean_s"].error == pytest.approx(mean, rel=1e-9, abs=1e-12)


class TestCommand:
    @pytest.fixture
    def world(self, tmp_path: Path) -> list[str]:
        gl.write_trace(TRACE, tmp_path / "jobs.csv", format="native")
        rows = zip(*HAPPENED.values(), strict=True)
        lines = ["who,came,began,ended,ran", *(",".join(map(str, row)) for row in rows)]
        (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
        columns = "job_id=who,arrival_s=came,first_start_s=began,finish_s=ended,run_s=ran"
        return ["validate", "--trace", str(tmp_path / "jobs.csv"), "--cluster", "1x2xV100",
                "--columns", columns, "--tolerance-s", "4"]  # fmt: skip

    def test_json_is_what_python_returns(self, world: list[str], tmp_path: Path) -> None:
        log = str(tmp_path / "log.csv")
        found = document(*world, "--policy", "fifo", "--observed", log, "--json")
        assert found["policies"] == [held(tolerance_s=4.0)["fifo"].to_dict()]
        assert found["tolerance_s"] == 4.0

    def test_tables_and_page(self, world: list[str], tmp_path: Path) -> None:
        log, page = str(tmp_path / "log.csv"), tmp_path / "page.html"
        words = [*world, "--policies", "fifo,las", "--observed", f"fifo={log}", "--observed"]
        done = gangline(*words, f"las={log}", "--peer", log, "--bias", "--html", str(page))
        assert done.returncode == 0, done.stderr
        said = " ".join(done.stdout.split())
        assert "fifo, run times given: mean JCT -0.5 %, p99 -1.4 %, makespan -1.3 %" in said
        assert (
            "the first is that of job d (2 GPUs, arrived at 20 s), which really started at 335 s, "
            "but in the simulation at 330 s, 5 s earlier" in said
        )
        assert "fifo: bias by size" in said
        assert "Order by mean JCT" not in said  # one table for both policies
        text = page.read_text(encoding="utf-8")
        assert text.count("<circle") == 2 * 3 * 4  # policies, layers and peer, jobs
        assert "gangline validate --trace" in text

    def test_wrong_tables(self, world: list[str], tmp_path: Path) -> None:
        log = str(tmp_path / "log.csv")
        two = gangline(*world, "--policy", "fifo", "--observed", log, "--observed", log)
        assert (two.returncode, two.stdout) == (2, "")
        assert "--observed: expected one FILE, or POLICY=FILE" in two.stderr
        none = gangline(*world, "--policy", "fifo", "--observed", "absent.csv")
        assert none.returncode == 2
        assert "absent.csv" in none.stderr
        bad = gangline(*world[:-4], "--columns", "x", "--policy", "fifo", "--observed", log)
        assert "--columns: expected NATIVE=THEIRS,..., got `x`" in bad.stderr


def test_the_observed_column_of_all_layers_is_of_the_same_jobs() -> None:
    peer = pa.table({"job_id": ["a", "b", "c"], "jct_s": [110.0, 160.0, 320.0]})
    found = held(peer=peer)["fifo"]
    assert found.job_ids == ["a", "b", "c"]
    seen = {one.measures["jct_mean_s"].observed for one in found.layers.values()}
    assert seen == {590.0 / 3.0}
    assert pc.all(pc.is_valid(pa.array(found.observed_jct_s))).as_py()


FACTORS = {"x": 1.5, "y": 0.8}


def runs(count: int = 40, **more: list[Any]) -> tuple[gl.Trace, dict[str, list[Any]]]:
    """Return jobs whose run time is factor x duration + 20 s + 30 s x restarts, exactly."""
    durations = [100.0 + 37.0 * i for i in range(count)]
    models = ["xy"[i % 2] for i in range(count)]
    starts = [1 + (i * 7) % 5 for i in range(count)]
    jobs = {
        "job_id": [str(i) for i in range(count)],
        "arrival_s": [0.0] * count,
        "gpus": [1] * count,
        "duration_s": durations,
        "model": models,
    }
    run = [
        FACTORS[model] * duration + 20.0 + 30.0 * (again - 1)
        for model, duration, again in zip(models, durations, starts, strict=True)
    ]
    whole: dict[str, list[Any]] = {
        "job_id": list(map(str, range(count))),
        "jct_s": [1e6] * count,
        "run_s": run,
        "starts": starts,
        **more,
    }
    return gl.Trace.from_arrow(pa.table(jobs)), whole


class TestRunTimes:
    def test_exact_numbers_are_found(self) -> None:
        trace, table = runs()
        fit = gl.fit_runtime(trace, pa.table(table))
        found = {name: one.value for name, one in fit.factors.items()}
        assert found == pytest.approx({"x, 1 GPU": 1.5, "y, 1 GPU": 0.8})
        assert fit.options() == pytest.approx({"first_start_s": 20.0, "restart_s": 30.0})
        assert fit.noise.value == pytest.approx(0.0, abs=1e-9)
        assert (fit.jobs, fit.alike, fit.notes) == (40, [], [])
        assert fit.apply(trace).numbers("duration_s")[:2] == pytest.approx([150.0, 0.8 * 137.0])

    def test_some_jobs_that_took_far_longer_do_not_move_it(self) -> None:
        trace, table = runs()
        table["run_s"][3:15:6] = [1e5, 2e5]
        fit = gl.fit_runtime(trace, pa.table(table))
        assert fit.factors["x, 1 GPU"].value == pytest.approx(1.5, rel=1e-3)
        assert fit.restart_s is not None
        assert fit.restart_s.value == pytest.approx(30.0, rel=0.02)

    def test_few_jobs_share_a_factor(self) -> None:
        trace, table = runs()
        names = ["x", "y", *["x"] * 34, *["z"] * 4]
        rows = trace.table.set_column(trace.columns.index("model"), "model", pa.array(names))
        fit = gl.fit_runtime(gl.Trace.from_arrow(rows), pa.table(table))
        assert list(fit.factors) == ["x, 1 GPU", "all models"]

    def test_what_cannot_be_told_apart_is_said(self) -> None:
        trace, table = runs(starts=[3] * 40)  # a start and two restarts of every job
        fit = gl.fit_runtime(trace, pa.table(table))
        assert fit.restart_s is None
        assert fit.notes == ["restart: cannot be separated from the other numbers; left out"]
        del table["starts"]
        assert "no restart is known" in gl.fit_runtime(trace, pa.table(table)).notes[-1]
        rows = trace.table.set_column(
            trace.columns.index("duration_s"), "duration_s",
            pa.array([1000.0 + 0.1 * i for i in range(40)]),
        )  # fmt: skip
        fit = gl.fit_runtime(gl.Trace.from_arrow(rows), pa.table(table))
        assert ("factor: x, 1 GPU", "first start") in fit.alike

    def test_a_kind_whose_jobs_all_differ_has_an_interval(self) -> None:
        trace, table = runs(60)
        names = ["y" if i % 6 == 1 else "x" for i in range(60)]
        rows = trace.table.set_column(trace.columns.index("model"), "model", pa.array(names))
        off = np.where(np.arange(60) % 12 == 1, 0.5, 2.0)
        factor = np.where(np.array(names) == "y", 0.8 * off, 1.5)
        noise = 1.0 + 0.01 * np.random.default_rng(2).standard_normal(60)
        table["run_s"] = (factor * noise * trace.numbers("duration_s") + 20.0).tolist()
        fit = gl.fit_runtime(gl.Trace.from_arrow(rows), pa.table(table))
        found = fit.factors["y, 1 GPU"]
        assert found.low < 0.8 < found.high
        assert [note for note in fit.notes if note.startswith("factor")] == [
            "factor: y, 1 GPU: its jobs differ so much that the interval is only approximate"
        ]

    def test_a_cost_that_the_jobs_do_not_show_is_noted(self) -> None:
        trace, table = runs(60)
        free = np.array(table["run_s"]) - 30.0 * (np.array(table["starts"]) - 1)
        noise = 0.1 * np.random.default_rng(1).standard_normal(60) * trace.numbers("duration_s")
        fit = gl.fit_runtime(trace, pa.table({**table, "run_s": free + noise}))
        assert fit.restart_s is not None
        assert fit.restart_s.low < 0.0 < fit.restart_s.high
        (note,) = (note for note in fit.notes if note.startswith("restart: "))
        assert note.startswith("restart: the interval includes 0")
        paid = gl.fit_runtime(trace, pa.table({**table, "run_s": free + 100.0 + noise}))
        assert paid.start_s is not None
        assert paid.start_s.low > 0.0
        assert not any(note.startswith("first start") for note in paid.notes)

    def test_too_few_jobs(self, snapshot: Snapshot) -> None:
        trace, table = runs(4)
        with refused(gl.TraceError, snapshot):
            gl.fit_runtime(trace.table.slice(0, 3), pa.table(table).slice(0, 3))
        with refused(gl.TraceError, snapshot):
            gl.fit_runtime(trace, pa.table({**table, "run_s": [None] * 4}))

    def test_intervals_hold_the_truth_as_often_as_they_say(self) -> None:
        trace, table = runs(60)
        exact, durations = np.array(table["run_s"]), trace.numbers("duration_s")
        held_by = {"factor": 0, "restart": 0}
        for seed in range(200):
            noise = 0.1 * np.random.default_rng(seed).standard_normal(60)
            fit = gl.fit_runtime(trace, pa.table({**table, "run_s": exact + noise * durations}))
            factor, cost = fit.factors["y, 1 GPU"], fit.restart_s
            assert cost is not None
            held_by["factor"] += factor.low <= 0.8 <= factor.high
            held_by["restart"] += cost.low <= 30.0 <= cost.high
        # 95 % of 200 is 190, and three standard deviations of the binomial law are 9
        assert all(181 <= count <= 199 for count in held_by.values()), held_by

    def test_drawn_testbeds_are_recovered(self) -> None:
        """The test draws 200 testbeds of 120 jobs of two models and three sizes, with noise."""
        draw = np.random.default_rng(9)
        count, sigma = 120, 0.3
        durations = np.exp(draw.normal(7.5, 1.2, count))
        models, gpus = draw.choice(["x", "y"], count), draw.choice([1, 2, 8], count)
        again = draw.integers(0, 6, count)
        factors = {("x", 1): 1.5, ("x", 2): 1.2, ("x", 8): 0.9}
        factors |= {("y", 1): 0.8, ("y", 2): 1.0, ("y", 8): 2.0}
        costs = {"x": (20.0, 30.0), "y": (60.0, 10.0)}
        paid = [costs[m][0] + costs[m][1] * n for m, n in zip(models, again, strict=True)]
        clean = durations * [factors[kind] for kind in zip(models, gpus.tolist(), strict=True)]
        names = list(map(str, range(count)))
        trace = gl.Trace.from_arrow(pa.table({
            "job_id": names, "arrival_s": [0.0] * count, "gpus": gpus, "duration_s": durations,
            "model": models,
        }))  # fmt: skip
        held_by: Counter[str] = Counter()
        for seed in range(200):
            noise = np.exp(sigma * np.random.default_rng(seed).standard_normal(count))
            table = pa.table({
                "job_id": names, "jct_s": [1e9] * count, "run_s": clean * noise + paid,
                "starts": again + 1,
            })  # fmt: skip
            fit = gl.fit_runtime(trace, table, costs_by_model=True)
            truth = {"noise": (fit.noise, sigma)}
            for (model, size), factor in factors.items():
                kind = f"{model}, {size} GPU{'s' * (size > 1)}"
                truth[kind] = (fit.factors[kind], factor)
            for model, (first, more) in costs.items():
                truth[f"start {model}"] = (fit.start_by_model[model], first)
                truth[f"restart {model}"] = (fit.restart_by_model[model], more)
            held_by.update(name for name, (one, x) in truth.items() if one.low <= x <= one.high)
        assert len(held_by) == 11
        # 95 % of 200 is 190, and three standard deviations of the binomial law are 9
        assert all(181 <= hits <= 199 for hits in held_by.values()), held_by

    def test_a_model_that_was_never_restarted_has_no_such_cost(self) -> None:
        trace, table = runs()
        table["starts"] = [1 if i % 2 else 1 + (i * 7) % 5 for i in range(40)]
        table["run_s"] = [
            FACTORS["xy"[i % 2]] * (100.0 + 37.0 * i) + (50.0 if i % 2 else 20.0) + 30.0 * (n - 1)
            for i, n in enumerate(table["starts"])
        ]
        fit = gl.fit_runtime(trace, pa.table(table), costs_by_model=True)
        assert fit.start_by_model["x"].value == pytest.approx(20.0)
        assert fit.start_by_model["y"].value == pytest.approx(50.0)
        assert fit.restart_by_model["x"].value == pytest.approx(30.0)
        assert list(fit.restart_by_model) == ["x"]
        assert (fit.start_s, fit.restart_s) == (None, None)
        assert fit.notes == ["restart: y: no such job was restarted"]

    def test_a_run_of_the_slow_simulator_is_recovered(self) -> None:
        """A restart costs 6 s and the stop before it 4 s: 10 s, which run times do not part.

        No job is stopped in its first minute, so no start is cut short.
        """
        chance = random.Random(3)
        rows = [
            {
                "job_id": str(i),
                "arrival_s": 33.0 * i,
                "gpus": chance.choice((1, 2, 4)),
                "duration_s": round(chance.lognormvariate(5.0, 1.0), 3),
                "model": chance.choice("xy"),
            }
            for i in range(60)
        ]
        costs = [
            {"first_start_s": 10, "restart_s": 6, "stop_s": 4},
            {"model": "y", "first_start_s": 30},
        ]
        world = {
            "cluster": worlds.lab("2x4 g"),
            "jobs": rows,
            "runtime": {"job_noise": 0.001, "rows": costs},
        }
        outcome = reference.run(world, "srtf", {"preempt_min_run_s": 60.0}).jobs
        assert sum(row["preemptions"] for row in outcome) > 20
        table = pa.table({
            "job_id": [row["job_id"] for row in outcome],
            "jct_s": [row["jct_ns"] / 1e9 for row in outcome],
            "run_s": [row["run_ns"] / 1e9 for row in outcome],
            "starts": [1 + row["preemptions"] + row["migrations"] for row in outcome],
        })  # fmt: skip
        trace = gl.Trace.from_arrow(pa.Table.from_pylist(rows))
        found = gl.fit_runtime(trace, table, costs_by_model=True).runtime()
        assert found["job_noise"] == pytest.approx(0.001, rel=0.4)
        x, y = found["rows"]
        assert (x["model"], y["model"]) == ("x", "y")
        assert x["first_start_s"] == pytest.approx(10.0, abs=0.5)
        assert y["first_start_s"] == pytest.approx(30.0, abs=0.5)
        assert x["restart_s"] == pytest.approx(10.0, abs=0.5)
        assert y["restart_s"] == pytest.approx(10.0, abs=0.5)

    def test_a_fit_fed_back_gives_the_run_times(self) -> None:
        """Jobs that are never stopped: 20 s for the start of x, 50 s of y, and noise of 5 %."""
        chance = random.Random(5)
        rows = [
            {
                "job_id": str(i),
                "arrival_s": 50.0 * i,
                "gpus": 1,
                "duration_s": round(chance.lognormvariate(6.0, 1.0), 3),
                "model": chance.choice("xy"),
            }
            for i in range(400)
        ]
        trace = gl.Trace.from_arrow(pa.Table.from_pylist(rows))
        lab = gl.Cluster.homogeneous(servers=50, gpus=8)
        costs = [{"first_start_s": 20.0}, {"model": "y", "first_start_s": 50.0}]
        happened = gl.simulate(lab, trace, runtime={"job_noise": 0.05, "rows": costs}).jobs
        fit = gl.fit_runtime(trace, happened, costs_by_model=True)
        again = gl.simulate(lab, trace, seed=1, runtime=fit.runtime()).jobs
        plain = np.array([row["duration_s"] for row in rows])
        starts = np.array([20.0 if row["model"] == "x" else 50.0 for row in rows])
        assert again["overhead_s"].to_numpy() == pytest.approx(starts, abs=2.0)
        scatter = np.log((again["run_s"].to_numpy() - again["overhead_s"].to_numpy()) / plain)
        assert float(scatter.std()) == pytest.approx(0.05, rel=0.2)
        assert float(np.median(scatter)) == pytest.approx(0.0, abs=0.01)

    def test_command(self, tmp_path: Path) -> None:
        trace, table = runs()
        gl.write_trace(trace, tmp_path / "jobs.csv", format="native")
        rows = zip(*table.values(), strict=True)
        lines = ["who,jct_s,ran,n", *(",".join(map(str, row)) for row in rows)]
        (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
        words = ["trace", "fit-runtime", "jobs.csv", "--observed", "log.csv", "--columns"]
        words += ["job_id=who,run_s=ran,starts=n", "--out", "mended.csv"]
        done = gangline(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "--first-start-s 20 --restart-s 30" in done.stdout
        mended = gl.read_trace(str(tmp_path / "mended.csv"))
        assert mended.numbers("duration_s")[0] == pytest.approx(150.0)


class TestWaits:
    """Of the testbed above: 0, 110, 100 and 315 s; the trace alone has 0, 100, 90 and 280 s."""

    def test_by_hand(self) -> None:
        found = held()["fifo"].layers["prediction"].waits
        assert found is not None
        assert (found.queue_mean_s.observed, found.queue_mean_s.simulated) == (131.25, 117.5)
        # c ran 20 s and a 10 s longer than in the trace, without GPUs they waited as long
        assert (found.wait_mean_s.observed, found.wait_mean_s.simulated) == (131.25, 117.5)
        apart = [0.0, math.log(170 / 160), math.log(160 / 150), math.log(375 / 340)]
        assert found.queue_factor == pytest.approx(math.exp(sum(apart) / 4))
        assert found.wait_factor == pytest.approx(found.queue_factor)
        assert found.order_factor == 1.0
        assert found.distance == pytest.approx(math.exp(sum(apart) / 4 * 2 / 3))
        # up to 5 min counts as equal: only d waited longer, and it does not in the simulation
        assert (found.jobs, found.waiting, found.short_s) == (4, 1, 300.0)
        assert found.rank_correlation is None

    def test_its_part_of_each_job(self) -> None:
        one = held()["fifo"]
        found = one.layers["prediction"].waits
        assert found is not None
        losses = one.losses["prediction"]
        assert losses[0] == 0.0
        assert math.exp(losses.mean()) == pytest.approx(found.distance)

    def test_rows_of_the_table(self) -> None:
        rows = {row[0]: row for row in held()["fifo"].table()[2]}
        assert rows["mean time without GPUs"][:2] == ["mean time without GPUs", "2 min 11 s"]
        assert "distance of waits and order (1: none)" in rows

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=40))
    def test_jobs_that_passed_one(self, jobs: list[tuple[int, int]]) -> None:
        arrival = np.array([float(a) for a, _ in jobs])
        start = np.array([float(a + w) for a, w in jobs])
        assert passed(arrival, start).tolist() == [
            sum(b > a and t < s for b, t in zip(arrival, start, strict=True))
            for a, s in zip(arrival, start, strict=True)
        ]

    def test_of_no_job(self) -> None:
        none = Times(np.array([np.nan]), np.array([np.nan]))
        assert waits(np.zeros(1), none, none, 60.0) is None


class TestTheTraceItself:
    """Tests the case without a table, in which the trace has the observed times."""

    def test_is_the_same_as_a_table(self) -> None:
        starts, finishes = ([*HAPPENED[name]] for name in ("first_start_s", "finish_s"))
        own = JOBS.append_column("observed_start_s", [starts])
        own = own.append_column("observed_finish_s", [finishes])
        own = own.set_column(3, "duration_s", [HAPPENED["run_s"]])
        found = gl.validate(LAB, own, "fifo")["fifo"]
        table = gl.validate(LAB, own, "fifo", pa.table(HAPPENED))["fifo"]
        assert found.to_dict() == table.to_dict()

    def test_layers_with_the_same_numbers_are_shown_once(self, tmp_path: Path) -> None:
        own = JOBS.append_column("observed_start_s", [HAPPENED["first_start_s"]])
        own = own.append_column("observed_finish_s", [HAPPENED["finish_s"]])
        own = own.set_column(3, "duration_s", [HAPPENED["run_s"]])
        found = gl.validate(LAB, own, "fifo")
        assert found["fifo"].table()[1] == ["", "observed", "trace alone", "error"]
        assert not any("run times given: error" in title for title in found.tables()[1][1])
        said = [line for line in found.sentences() if "run times given" in line]
        assert len(said) == 1
        assert "the numbers are the same as with the trace alone and are not repeated;" in said[0]
        page = found.write(tmp_path / "page.html").read_text(encoding="utf-8")
        assert page.count("<circle") == 4  # one scatter plot
        assert list(found["fifo"].layers) == ["scheduling", "prediction"]
        assert held()["fifo"].shown == held()["fifo"].layers  # other run times, other numbers

    def test_a_start_alone(self) -> None:
        own = JOBS.append_column("observed_start_s", [[0.0, 100.0, 100.0, 300.0]])
        found = gl.validate(LAB, own, "fifo")["fifo"]
        assert found.defects == {"finish_from_run": 4}
        assert found.layers["prediction"].measures["jct_mean_s"].error == 0.0

    def test_times_out_of_order_are_counted(self) -> None:
        own = JOBS.append_column("observed_start_s", [[0.0, 100.0, 5.0, 300.0]])
        own = own.append_column("observed_finish_s", [[100.0, 90.0, 300.0, 340.0]])
        found = gl.validate(LAB, own, "fifo")["fifo"]
        assert found.defects == {"out_of_order": 2}
        assert found.job_ids == ["a", "d"]

    def test_no_start_is_an_error(self) -> None:
        with pytest.raises(
            gl.TraceError, match="no observed start; give a table of observed times"
        ):
            gl.validate(LAB, TRACE, "fifo")

    def test_columns_are_of_a_table(self) -> None:
        with pytest.raises(gl.OptionError, match="columns: expected a table of observed times"):
            gl.validate(LAB, TRACE, "fifo", columns={"finish_s": "end"})

    def test_on_the_command_line(self, tmp_path: Path) -> None:
        own = JOBS.append_column("observed_start_s", [[0.0, 100.0, 100.0, 300.0]])
        gl.write_trace(gl.Trace.from_arrow(own), tmp_path / "log.parquet")
        lab = ("--cluster", "1x2xA100", "--policies", "fifo", "--json")
        found = document("validate", "--trace", str(tmp_path / "log.parquet"), *lab)
        assert found["policies"][0]["layers"]["prediction"]["waits"]["distance"] == 1.0
