"""Tests that the specs of every command give the same bytes when they are run again."""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
from gangline.cli.app import main
from gangline.errors import PolicyError
from gangline.runs.execution import Run, Worlds
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


LAB = gl.Cluster.homogeneous(servers=4, gpus=4)
SYNTH = "synth:philly?jobs=60&seed=1&max_gpus=4&load=1.2&cluster_gpus=16"
CONTENDED = "synth:philly?jobs=150&seed=1&max_gpus=4&load=1.5&cluster_gpus=16&max_duration_s=7200"
STATEFUL = """
import time

import gangline as gl

class Stateful(gl.Policy):
    def start(self, view):
        self.asked = 0

    def decide(self, view, changes):
        plan, free = gl.Plan(), view.servers("gpus_free").copy()
        self.asked += 1
        time.sleep(0.0005)  # another thread would have its turn
        jobs = list(zip(view.waiting("job"), view.waiting("gpus")))
        for job, gpus in jobs[:: -1 if self.asked % 3 == 0 else 1]:
            room = (free >= gpus).nonzero()[0]
            if len(room):
                plan.start(job, {int(room[0]): int(gpus)})
                free[room[0]] -= gpus
        return plan
"""


def by_compare(out: Path) -> None:
    gl.compare(LAB, SYNTH, ["fifo", "las"], trace_seeds=[0, 1], segments=True, each=saver(out))


def by_compare_command(out: Path) -> None:
    words = ["compare", "--trace", SYNTH, "--cluster", "pollux-64", "--policies", "srtf,tiresias"]
    assert main([*words, "--restart-s", "5", "--seeds", "0,1", "--out", str(out)]) == 0


def by_run_command(out: Path) -> None:
    words = ["run", "--trace", "mini:philly", "--cluster", "pollux-64"]
    assert main([*words, "--policy", "gavel-las", "--limit", "50", "--out", str(out / "a")]) == 0


def by_reproduce(out: Path) -> None:
    policies = ["tiresias-oracle", "dally"]
    axes = {"clusters": ["2x4"], "workloads": ["batch"], "networks": ["dally-2024"]}
    gl.reproduce.run("dally", **axes, seeds=[0], policies=policies, out=out)


def by_reproduce_elastic(out: Path) -> None:
    """Run contenders that have their own tables in the cluster."""
    policies = ["sjf-bsbf", "pollux"]
    gl.reproduce.run("sjf-bsbf", quick=True, seeds=[0], policies=policies, out=out)


def by_plan(out: Path) -> None:
    gl.plan_capacity(LAB, SYNTH, "srtf", keep="queue_p95_s<=7200", trace_seeds=[1, 2], out=out)


def by_bench(out: Path) -> None:
    gl.bench.bench(["fifo"], quick=True, out=out)


def by_sweep(out: Path) -> None:
    grid = {"trace": [SYNTH], "cluster": ["pollux-64"], "policy": ["las"], "rescale": [1.0, 0.5]}
    gl.sweep({"grid": {**grid, "set": {"las.promote_knob": [2.0]}}}, out=out)


def saver(out: Path) -> Callable[[gl.Result], None]:
    def save(result: gl.Result) -> None:
        result.save(out / result.spec["digest"])

    return save


def contents(folder: Path) -> dict[str, Any]:
    """Return everything in a result folder except measured times."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in folder.glob("*.parquet")}
    spec = json.loads((folder / "spec.json").read_text())
    measured = spec.pop("measured")
    summary = json.loads((folder / "summary.json").read_text())
    found["spec.json"] = {key: spec[key] for key in spec if key not in ("seal", "files")}
    found["summary.json"] = {key: summary[key] for key in summary if key not in measured}
    return found


@pytest.mark.parametrize(
    "command",
    [
        by_compare,
        by_compare_command,
        by_run_command,
        by_reproduce,
        by_reproduce_elastic,
        by_plan,
        by_bench,
        by_sweep,
    ],
)
def test_the_spec_of_each_result_gives_its_bytes_again(
    command: Callable[[Path], None], tmp_path: Path
) -> None:
    command(tmp_path / "out")
    folders = sorted(path.parent for path in (tmp_path / "out").rglob("spec.json"))
    assert folders
    for folder in folders[:: max(1, len(folders) // 6)]:
        again = gl.run(folder / "spec.json")
        again.save(tmp_path / "again" / folder.name)
        assert contents(tmp_path / "again" / folder.name) == contents(folder), folder
        assert gl.RunSpec.load(folder).digest == again.spec["digest"]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the addresses of the drawn traces, in the order of drawing."""
    from gangline.trace.synth import generators

    found: list[str] = []
    plain = generators._build

    def build(shape: str, parameters: dict[str, Any], options: Any) -> Any:
        found.append(f"{shape} {sorted(parameters.items())} {options}")
        return plain(shape, parameters, options)

    monkeypatch.setattr(generators, "_build", build)
    return found


def test_a_trace_is_drawn_once_for_all_its_runs(drawn: list[str], tmp_path: Path) -> None:
    gl.compare(LAB, SYNTH, ["fifo", "las"], seeds=[0, 1], trace_seeds=range(6), workers=2)
    assert len(drawn) == 1 + 6 - 1  # the trace itself, whose seed is 1, and the others
    drawn.clear()
    found = gl.plan_capacity(
        LAB, SYNTH, "srtf", keep="queue_p95_s<=7200", trace_seeds=range(6), workers=2
    )
    assert len(found.points) > 2
    assert len(drawn) == 6
    drawn.clear()
    by_reproduce(tmp_path)
    assert len(drawn) == 1
    drawn.clear()
    clusters = ["pollux-64", {"from": "pollux-64", "scale": 0.5}]
    grid = {"policy": ["fifo", "las"], "cluster": clusters, "trace": [SYNTH.replace("60", "61")]}
    gl.sweep({"grid": grid}, out=tmp_path / "store", workers=2)
    assert len(drawn) == 1


def test_a_trace_changed_since_it_was_read_is_another_one() -> None:
    here = Worlds()
    jobs = {"arrival_s": [0.0, 1.0], "gpus": [1, 2], "duration_s": [5.0, 6.0]}
    one = here.take(LAB, pa.table(jobs), "fifo")
    other = here.take(LAB, pa.table({**jobs, "duration_s": [5.0, 7.0]}), "fifo")
    assert one.spec.digest != other.spec.digest
    assert [here.run(run).summary["makespan_s"] for run in (one, other)] == [7.0, 8.0]


def test_only_the_last_traces_are_kept() -> None:
    here = Worlds(1)
    specs = [gl.RunSpec.make(LAB, SYNTH.replace("seed=1", f"seed={i}")) for i in range(3)]
    first = [here.trace(spec.trace) for spec in specs]
    assert here.trace(specs[2].trace) is first[2]
    assert here.trace(specs[0].trace) is not first[0]
    held = gl.read_trace(SYNTH)
    reference = here.hold(held)
    assert here.trace(reference) is held
    assert here.run(Run(specs[1])).spec["digest"] == specs[1].digest


@pytest.mark.parametrize("kind", ["address", "table"])
def test_a_policy_in_python_keeps_its_state_to_one_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stateful_of_test.py").write_text(STATEFUL)
    monkeypatch.syspath_prepend(tmp_path)
    policy = __import__("stateful_of_test").Stateful()
    jobs = CONTENDED if kind == "address" else gl.read_trace(CONTENDED).table
    given = {"trace_seeds": range(3)} if kind == "address" else {"seeds": range(3)}

    def logs(workers: int) -> list[tuple[str, str]]:
        made = gl.compare(LAB, jobs, ["fifo", policy], workers=workers, **given)
        assert made.results[1].jobs.num_rows == 150
        return [(result.policy, result.log_hash) for result in made.results]

    assert logs(1) == logs(3)


def test_a_policy_that_cannot_be_sent_to_a_process_is_named() -> None:
    class Local(gl.Policy):
        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            return gl.Plan()

    with refused(PolicyError, policy="Local", field="workers"):
        gl.compare(LAB, SYNTH, ["fifo", Local()], workers=2)


def test_an_error_in_a_process_is_that_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = STATEFUL.replace("free[room[0]] -= gpus", "plan.start(job, {0: 1})")
    (tmp_path / "broken_of_test.py").write_text(broken)
    monkeypatch.syspath_prepend(tmp_path)
    policy = __import__("broken_of_test").Stateful()
    said = []
    for workers in (1, 2):
        with pytest.raises(gl.PlanError) as caught:
            gl.compare(LAB, SYNTH, [policy], seeds=[0, 1], workers=workers)
        said.append((str(caught.value), vars(caught.value)))
    assert said[0] == said[1]


FAULTY = """
import gangline as gl

class Two(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")

class Faulty(gl.Policy):
    def __init__(self, plain=True):
        self.plain = plain

    def params(self):
        return {"plain": self.plain}

    def decide(self, view, changes):
        return self.look_up()

    def look_up(self):
        raise KeyError("key") if self.plain else Two(1, 2)
"""


@pytest.mark.parametrize(
    ("is_plain", "kind", "words"),
    [(True, KeyError, "'key'"), (False, RuntimeError, "Two: 1 and 2")],  # Two cannot be pickled
)
def test_an_error_of_the_users_own_keeps_its_traceback_in_a_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_plain: bool,
    kind: type[Exception],
    words: str,
) -> None:
    (tmp_path / "faulty_of_test.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(tmp_path)
    policy = __import__("faulty_of_test").Faulty(is_plain)
    with pytest.raises(kind) as caught:
        gl.compare(LAB, SYNTH, [policy], seeds=[0, 1], workers=2)
    assert str(caught.value) == words
    told = "".join(traceback.format_exception(caught.value))
    assert "in look_up" in told
    assert "raised by Faulty at simulated time" in told
    grid = {"trace": [SYNTH], "cluster": [LAB], "policy": ["faulty_of_test:Faulty"]}
    grid |= {"set": {"faulty_of_test:Faulty.plain": [is_plain]}}
    for workers in (1, 2):
        (failed,) = gl.sweep({"grid": grid}, out=tmp_path / str(workers), workers=workers).failed
        assert "in look_up" in failed["traceback"]


def test_an_alias_of_the_users_own_goes_along() -> None:
    mine = gl.policies.Las(promote_knob=2.0).known_as("mine")
    first = gl.simulate(LAB, SYNTH, mine)
    again = gl.run(first.spec)
    assert (first.policy, again.policy, again.log_hash) == ("mine", "mine", first.log_hash)
    assert again.spec["policy"]["params"]["promote_knob"] == 2.0
