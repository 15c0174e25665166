"""Tests sweeps: their runs, their files, and the leftovers of a killed process."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
import worlds
from gangline._support import toml
from gangline.cli.app import main
from gangline.errors import ClusterError, OptionError, PolicyError
from gangline.runs import result_tables
from gangline.studies.sweep import sweep
from gangline.studies.sweep.plan import read_plan
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from snapshots import Snapshot

SYNTH = "synth:philly?jobs=20&seed={trace_seed}&max_gpus=4"
GRID: dict[str, Any] = {
    "trace": [SYNTH],
    "trace_seed": [0, 1],
    "cluster": ["pollux-64"],
    "policy": ["fifo", "las"],
}
DECISIONS = ("decision_p50_us", "decision_p99_us", "decision_max_us")
CLOCK = ("wall_s", *DECISIONS, "solver_s")

OWN = (
    worlds.module_of(worlds.FirstFit, "Own")
    + '''
import os

class Choosy(Own):
    """Its parameter changes nothing but its digest."""

    def __init__(self, pick="first"):
        self.pick = pick

    def params(self):
        return {"pick": self.pick}

class Forgetful(Choosy):
    def params(self):
        return {}

    def __init__(self, needed):
        pass

class Raising(Own):
    def decide(self, view, changes):
        raise ZeroDivisionError("as it is meant")

class Dying(Own):
    def decide(self, view, changes):
        os._exit(9)
'''
)


def write_policies(folder: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Write the policies above to a module that this process and those it starts can import."""
    (folder / f"{module}.py").write_text(OWN)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def settled(folder: Path) -> dict[str, Any]:
    """Return the bytes of all tables of a store, and spec and summary without measured times."""
    found: dict[str, Any] = {}
    for run in sorted((folder / "runs").iterdir()):
        spec = json.loads((run / "spec.json").read_text())
        summary = json.loads((run / "summary.json").read_text())
        for key in ("measured", "files", "seal"):
            spec.pop(key)
        kept = {key: value for key, value in summary.items() if key not in CLOCK}
        tables = [path.read_bytes() for path in sorted(run.glob("*.parquet"))]
        found[run.name] = (spec, kept, tables)
    return found


def test_a_grid_and_zips_give_every_combination(tmp_path: Path) -> None:
    spec = {
        "grid": {**GRID, "set": {"las.promote_knob": [0.0, 2.0]}},
        "zip": [{"rescale": [1.0, 0.5], "seed": [3, 4]}],
        "options": {"restart_s": 30},
    }
    done = sweep(spec, out=tmp_path, workers=2)
    # the setting of las leaves fifo as it is: 2 seeds x 2 rows x (1 fifo + 2 las)
    assert done.counts == {"runs": 12, "new": 12, "finished": 12, "failed": 0}
    rows = done.table.to_pylist()
    assert {(row["rescale"], row["seed"]) for row in rows} == {(1.0, 3), (0.5, 4)}
    knobs = {(row["policy"], row["las.promote_knob"]) for row in rows}
    assert knobs == {("fifo", None), ("las", 0.0), ("las", 2.0)}
    assert rows[0]["jct_mean_s"] > 0
    assert done.table.column_names[-2:] == ["digest", "status"]
    assert all(one.spec["options"] == {"restart_s": 30.0} for one in done.results())
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 13


def test_estimates_vary_for_policies_that_read_durations(tmp_path: Path) -> None:
    told = ["exact", "user:mean:2"]
    grid = {**GRID, "trace_seed": [0], "policy": ["fifo", "srtf"], "estimates": told}
    done = sweep({"grid": grid}, out=tmp_path, workers=1)
    found = [(row["policy"], row["estimates"]) for row in done.table.to_pylist()]
    assert sorted(found, key=str) == [("fifo", None), ("srtf", "exact"), ("srtf", "user:mean:2")]
    options = sorted(str(one.spec["options"].get("estimates")) for one in done.results())
    assert options == ["None", "None", "user:mean:2"]


def test_clusters_that_look_alike_are_told_apart(tmp_path: Path) -> None:
    whole = gl.Cluster.preset("pollux-64")
    failing = gl.Cluster.from_dict(
        {**whole.to_dict(), "failures": {"mtbf_hours": 5.0, "mttr_hours": 1.0}}
    )
    assert repr(whole) == repr(failing)
    grid = {**GRID, "trace_seed": [0], "policy": ["fifo"], "cluster": [whole, failing]}
    done = sweep({"grid": grid}, out=tmp_path, workers=1)
    assert [row > 0 for row in done.table["failures"].to_pylist()] == [False, True]


def test_columns_hold_what_keys_hold(tmp_path: Path) -> None:
    derived = {"from": "pollux-64", "scale": 0.5}
    grid = {**GRID, "cluster": ["pollux-64", derived], "seed": [0, 2**64 - 1]}
    grid |= {"rescale": [1, 0.5], "policy": ["fifo", gl.policies.Las()], "trace_seed": [0]}
    done = sweep({"grid": grid}, out=tmp_path, workers=1)
    table = done.table
    assert set(table["seed"].to_pylist()) == {0, 2**64 - 1}
    assert set(table["rescale"].to_pylist()) == {1.0, 0.5}
    assert set(table["policy"].to_pylist()) == {"fifo", "las"}
    assert {json.dumps(derived), "pollux-64"} == set(table["cluster"].to_pylist())
    assert table.num_rows == done.counts["runs"] == 16


def test_runs_on_one_trace_come_together_whatever_the_order_of_keys() -> None:
    grid = {
        "policy": ["fifo", "las"],
        "seed": [0, 1],
        **{k: GRID[k] for k in GRID if k != "policy"},
    }
    plan = read_plan({"grid": {**grid, "cluster": ["pollux-64", "philly"]}})
    order = list(plan.order())
    assert sorted(order) == list(range(16))
    worlds = [tuple(plan.keys(i)[key] for key in ("trace_seed", "cluster")) for i in order]
    assert worlds == [world for world in dict.fromkeys(worlds) for _ in range(4)]
    keys = [plan.keys(i) for i in range(len(plan))]
    assert [one["policy"] for one in keys] == ["fifo"] * 8 + ["las"] * 8


def test_a_long_run_holds_up_no_other() -> None:
    from threading import Event

    from gangline.runs.executors import in_threads

    is_over = Event()

    def work(task: int, _: object) -> int:
        if task == 0:
            assert is_over.wait(60)
        elif task == 19:
            is_over.set()
        return task

    # more tasks than are handed out ahead: the others end while the first is under way
    assert list(in_threads(work, range(20), 2)) == [*range(1, 20), 0]


def test_processes_end_at_once_when_no_more_is_wanted() -> None:
    from gangline.runs.executors import Apart, in_threads

    def results() -> Iterator[None]:
        with Apart(print) as apart:

            def work(seconds: float, report: Any) -> None:
                apart.do(time.sleep, seconds, report=report)

            yield from in_threads(work, [0.0, 600.0, 600.0], 2)

    found = results()
    assert next(found) is None
    begin = time.monotonic()
    found.close()  # as Ctrl-C does
    assert time.monotonic() - begin < 300.0


def test_a_result_of_a_sweep_is_that_of_simulate(tmp_path: Path) -> None:
    done = sweep({"grid": GRID}, out=tmp_path, workers=1)
    own = gl.simulate(gl.Cluster.preset("pollux-64"), SYNTH.format(trace_seed=1), "las")
    assert own.spec["digest"] in {run["digest"] for run in done.runs}
    found = gl.load_result(tmp_path / "runs" / own.spec["digest"])
    assert found.jobs.equals(own.jobs)


def test_workers_and_order_change_no_byte(tmp_path: Path) -> None:
    backwards = {**GRID, "policy": ["las", "fifo"], "trace_seed": [1, 0]}
    sweep({"grid": GRID}, out=tmp_path / "one", workers=1)
    sweep({"grid": backwards}, out=tmp_path / "three", workers=3)
    assert settled(tmp_path / "one") == settled(tmp_path / "three")


def test_a_second_sweep_does_what_is_missing(tmp_path: Path) -> None:
    sweep({"grid": {**GRID, "policy": ["las"]}}, out=tmp_path, workers=1)
    before = {path: path.stat().st_ino for path in (tmp_path / "runs").iterdir()}
    more = sweep({"grid": GRID}, out=tmp_path, workers=1)
    assert more.counts == {"runs": 4, "new": 2, "finished": 4, "failed": 0}
    assert before.items() <= {p: p.stat().st_ino for p in (tmp_path / "runs").iterdir()}.items()


def files_of(out: Path) -> list[set[str]]:
    return [{path.name for path in run.iterdir()} for run in (out / "runs").iterdir()]


def test_a_sweep_saves_what_it_is_asked_to(tmp_path: Path) -> None:
    bare, tables = {"spec.json", "summary.json"}, {"jobs.parquet", "timeline.parquet"}
    wanted = {"summary": bare, "jobs": bare | tables, None: bare | tables}
    wanted["segments"] = bare | tables | {"segments.parquet"}
    for save, names in wanted.items():
        sweep({"grid": GRID}, out=tmp_path / str(save), save=save, workers=1)
        assert files_of(tmp_path / str(save)) == [names] * 4
    sweep({"grid": GRID, "save": "summary"}, out=tmp_path / "file", workers=2)
    assert files_of(tmp_path / "file") == [bare] * 4
    sweep({"grid": GRID, "save": "summary"}, out=tmp_path / "both", save="jobs", workers=2)
    assert settled(tmp_path / "both") == settled(tmp_path / "jobs") == settled(tmp_path / "None")
    without = {
        k: (spec, numbers, []) for k, (spec, numbers, _) in settled(tmp_path / "jobs").items()
    }
    assert settled(tmp_path / "summary") == settled(tmp_path / "file") == without


def test_more_is_saved_when_it_is_asked_for_and_nothing_is_taken_away(tmp_path: Path) -> None:
    first = sweep({"grid": GRID}, out=tmp_path, save="summary", workers=1)
    few, summary = first.table, first.summary().rows
    more = sweep({"grid": GRID}, out=tmp_path, workers=1)
    assert (first.counts["new"], more.counts["new"]) == (4, 4)
    assert files_of(tmp_path)[0] >= {"jobs.parquet"}
    again = sweep({"grid": GRID}, out=tmp_path, save="summary", workers=1)
    assert again.counts["new"] == 0
    assert files_of(tmp_path)[0] >= {"jobs.parquet"}
    assert again.table.drop_columns(["wall_s", *DECISIONS]) == few.drop_columns(
        ["wall_s", *DECISIONS]
    )
    assert again.summary().rows == summary


def test_a_run_without_tables_says_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = sweep({"grid": GRID}, out=tmp_path / "few", save="summary", workers=1)
    run = str(tmp_path / "few" / "runs" / done.runs[0]["digest"])
    advice = f"run the sweep with --save jobs, or gangline run {run} --out DIR"
    for words in (["explain", run, "--job", "job-0"], ["report", run]):
        assert main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "saved only the summary of this run, without jobs.parquet" in line
        assert line.endswith(advice)
    assert main(["run", run, "--out", str(tmp_path / "more")]) == 0
    few, more = gl.load_result(run), gl.load_result(tmp_path / "more")
    assert few.log_hash == more.log_hash
    assert more.jobs.num_rows == few.summary["jobs"] == 20


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"save": "all"}, {"field": "save", "value": "all"}),
        (
            {"save": "summary", "options": {"segments": True}},
            {"field": "save", "value": "summary"},
        ),
    ],
)
def test_what_cannot_be_saved_is_refused(
    change: dict[str, Any], facts: dict[str, Any], tmp_path: Path
) -> None:
    with refused(OptionError, **facts):
        sweep({"grid": GRID, **change}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["jobs.parquet", "spec.json", "summary.json"])
def test_a_damaged_result_is_run_again(tmp_path: Path, name: str) -> None:
    first = sweep({"grid": GRID}, out=tmp_path, workers=1)
    whole = settled(tmp_path)
    path = tmp_path / "runs" / first.runs[2]["digest"] / name
    path.write_bytes(path.read_bytes()[:-9])
    again = sweep({"grid": GRID}, out=tmp_path, workers=1)
    assert again.counts["new"] == 1
    assert settled(tmp_path) == whole


@pytest.mark.parametrize(("times", "is_kept"), [(1, True), (4, True), (99, False)])
def test_a_folder_that_is_removed_meanwhile_ends_no_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, is_kept: bool
) -> None:
    """Another sweep may take what is being written for something that a killed process left."""
    left = [times]
    write = result_tables.write

    def removing(table: Any, path: Path) -> None:
        write(table, path)
        if left[0] > 0:
            left[0] -= 1
            shutil.rmtree(path.parent)

    monkeypatch.setattr(result_tables, "write", removing)
    done = sweep({"grid": GRID | {"trace_seed": [0], "policy": ["fifo"]}}, out=tmp_path, workers=1)
    assert done.counts["finished"] == is_kept
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [
        run["digest"] for run in done.runs if run["status"] == "finished"
    ]
    if not is_kept:
        assert "was removed while it was written" in done.failed[0]["message"]
        monkeypatch.setattr(result_tables, "write", write)
        again = sweep({"grid": GRID | {"trace_seed": [0], "policy": ["fifo"]}}, out=tmp_path)
        assert again.counts["finished"] == 1


def test_a_clock_that_is_ahead_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, left = (tmp_path / "runs" / f".gangline-{name}" for name in ("begun", "left"))
    for folder in (begun, left):
        folder.mkdir(parents=True)
    old = begun.stat().st_mtime - 7000.0
    os.utime(left, (old, old))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 7200.0)
    sweep({"grid": GRID | {"policy": ["fifo"]}}, out=tmp_path, workers=1)
    assert begun.is_dir()
    assert not left.exists()


def test_a_run_that_fails_stops_no_other(tmp_path: Path) -> None:
    wide = "synth:dally-batch?jobs=50&seed={trace_seed}"
    small = {"from": "pollux-64", "scale": 0.1}
    spec = {"grid": {**GRID, "cluster": [small], "trace": [SYNTH, wide]}}
    done = sweep(spec, out=tmp_path, workers=2)
    assert done.counts["finished"] == 4
    assert {run["error"] for run in done.failed} == {"InfeasibleJobError"}
    recorded = json.loads((tmp_path / "failed.json").read_text())
    assert len(recorded) == 4
    assert recorded[0]["message"]
    statuses = done.table["status"].to_pylist()
    assert sorted(statuses) == ["failed"] * 4 + ["finished"] * 4


def test_policies_in_python_run_in_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policies(tmp_path, monkeypatch, "sweepown")
    names = ["fifo", "sweepown:Own", "sweepown:Raising", "sweepown:Dying"]
    spec = {"grid": {**GRID, "policy": names}}
    done = sweep(spec, out=tmp_path / "out", workers=2)
    assert done.counts == {"runs": 8, "new": 8, "finished": 4, "failed": 4}
    errors = {(run["policy"], run["error"]) for run in done.failed}
    assert errors == {
        ("sweepown:Raising", "ZeroDivisionError"),
        ("sweepown:Dying", "ProcessDied"),
    }


def test_a_policy_in_python_has_the_bytes_of_simulate_and_takes_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policies(tmp_path, monkeypatch, "sweepbytes")
    own = importlib.import_module("sweepbytes")
    grid = {**GRID, "trace_seed": [0]}
    setting = {"sweepbytes:Choosy.pick": ["first", "last"]}
    named = {**grid, "policy": ["sweepbytes:Choosy"], "set": setting}
    first = sweep({"grid": named}, out=tmp_path / "named", workers=2)
    assert first.counts["finished"] == 2
    given = {**grid, "policy": [own.Choosy("first"), own.Choosy("last")]}
    sweep({"grid": given}, out=tmp_path / "given", workers=2)
    assert settled(tmp_path / "named") == settled(tmp_path / "given")
    here = gl.simulate("pollux-64", SYNTH.format(trace_seed=0), own.Choosy("last"))
    found = gl.load_result(tmp_path / "named" / "runs" / here.spec["digest"])
    assert found.log_hash == here.log_hash
    assert found.jobs.equals(here.jobs)


def test_a_policy_whose_file_was_changed_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policies(tmp_path, monkeypatch, "sweepedited")
    spec = {"grid": {**GRID, "policy": ["fifo", "sweepedited:Own"]}}
    assert sweep(spec, out=tmp_path / "out", workers=1).counts["new"] == 4
    kept = settled(tmp_path / "out")
    assert sweep(spec, out=tmp_path / "out", workers=1).counts["new"] == 0
    (tmp_path / "sweepedited.py").write_text(OWN + "\n# another text\n")
    again = sweep(spec, out=tmp_path / "out", workers=1)
    assert (again.counts["new"], again.counts["finished"]) == (2, 4)  # not those of fifo
    assert kept.keys() < settled(tmp_path / "out").keys()


def test_a_policy_that_no_process_could_make_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    write_policies(tmp_path, monkeypatch, "sweeprefused")
    own = importlib.import_module("sweeprefused")
    local = type("Local", (own.Own,), {"__module__": "sweeprefused"})
    typed = type("Typed", (own.Own,), {"__module__": "__main__"})
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    for policy in (own.Forgetful(1), local(), typed()):
        with refused(PolicyError, snapshot) as caught:
            sweep({"grid": {**GRID, "policy": ["fifo", policy]}}, out=tmp_path / "out")
        assert "put the class into a module" in str(caught.value)
    assert not list((tmp_path / "out" / "runs").iterdir())


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"grid": {**GRID, "polices": ["x"]}}, {"field": "grid.polices", "value": "polices"}),
        ({"grid": {**GRID, "policy": "fifo"}}, {"field": "grid.policy", "value": "fifo"}),
        (
            {"grid": {k: v for k, v in GRID.items() if k != "cluster"}},
            {"field": "grid"},
        ),
        ({}, {"field": "grid"}),
        ({"grid": GRID, "name": 3}, {"field": "name", "value": 3}),
        (
            {"grid": GRID, "zip": [{"seed": [1], "rescale": [1.0, 2.0]}]},
            {"field": "zip[0]", "value": {"seed": 1, "rescale": 2}},
        ),
        ({"grid": GRID, "zip": [{"policy": ["srtf"]}]}, {"field": "policy", "value": "policy"}),
        (
            {"grid": GRID, "options": {"restart": 3}},
            {"field": "options.restart", "value": "restart"},
        ),
        (
            {"grid": {**GRID, "set": {"srtf.fit": ["first"]}}},
            {"field": 'set."srtf.fit"', "value": "srtf"},
        ),
        ({"grids": GRID}, {"field": "grids", "value": "grids"}),
    ],
)
def test_a_wrong_description_is_refused(change: dict[str, Any], facts: dict[str, Any]) -> None:
    with refused(OptionError, **facts):
        read_plan(change)


@pytest.mark.parametrize(
    "change",
    [
        {"las.limits": [[1.0]]},
        {"set.las.limits": [[1.0]]},
        {"las": {"limits": [[1.0]]}},
        {"limits": [[1.0]]},
    ],
)
def test_a_parameter_outside_of_set_is_answered_with_its_form(
    change: dict[str, Any], snapshot: Snapshot
) -> None:
    with refused(OptionError, snapshot):
        read_plan({"grid": GRID | change})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("policy", "fiffo"),
        ("policy", 3),
        ("cluster", "pollux-65"),
        ("cluster", 3),
        ("cluster", {"from": "pollux-64", "nope": 1}),
        ("seed", -1),
        ("rescale", 0),
        ("trace", 3),
        ("trace", "synth:nope?seed={trace_seed}"),
        ("set", {"fifo.nope": [1]}),
        ("set", {"sharing.nope": [1]}),
    ],
)
def test_a_wrong_value_is_named_with_its_file_and_key(
    key: str, value: object, tmp_path: Path, snapshot: Snapshot
) -> None:
    grid = {**GRID, key: value if key == "set" else [value]}
    spec = tmp_path / "bad.toml"
    spec.write_text(toml.dumps({"grid": grid}))
    with refused(gl.GanglineError, snapshot):
        sweep(spec, out=tmp_path / "out")


@pytest.mark.parametrize(
    "options",
    [
        {"restart_s": -1},
        {"restart_s": "a"},
        {"limit": 0},
        {"format": "native"},
    ],
)
def test_a_wrong_option_is_named_with_its_table(
    options: dict[str, Any], tmp_path: Path, snapshot: Snapshot
) -> None:
    with refused(gl.GanglineError, snapshot):
        sweep({"grid": GRID, "options": options}, out=tmp_path)


def test_a_value_in_a_zip_is_named_with_its_zip(tmp_path: Path) -> None:
    with refused(OptionError, field="seed", value=-1):
        sweep({"grid": GRID, "zip": [{"rescale": [1.0]}, {"seed": [-1]}]}, out=tmp_path)


def test_a_folder_is_no_description(tmp_path: Path) -> None:
    with refused(OptionError, field=str(tmp_path)):
        read_plan(tmp_path)


def test_a_seed_that_reaches_no_trace_is_refused(tmp_path: Path) -> None:
    with refused(OptionError, field="trace", value="synth:philly?jobs=5&seed=1"):
        sweep({"grid": {**GRID, "trace": ["synth:philly?jobs=5&seed=1"]}}, out=tmp_path)


def test_clusters_are_scaled_and_swapped(snapshot: Snapshot) -> None:
    from gangline.studies.sweep.clusters import derived

    small = derived({"from": "hadar-60", "scale": {"V100": 0.6}, "swap": {"K80": "P100"}})
    before = gl.Cluster.preset("hadar-60").gpus_by_type()
    after = small.gpus_by_type()
    assert after["V100"] == 0.6 * before["V100"]
    assert after["P100"] == before["P100"] + before["K80"]
    failing = derived({"from": "pollux-64", "failures": {"mtbf_hours": 100.0, "mttr_hours": 1.0}})
    assert failing.failures is not None
    with refused(ClusterError, key="scale", value="A100"):
        derived({"from": "pollux-64", "swap": {"T4": "A100"}})
    with refused(ClusterError, snapshot):
        derived({"from": "pollux-64", "scale": 0.0})


def test_the_command_prints_a_table_and_says_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "load.toml"
    spec.write_text(
        f'[grid]\ntrace = ["{SYNTH}"]\ntrace_seed = [0]\ncluster = ["pollux-64"]\n'
        'policy = ["fifo", "las"]\nset."las.limits" = [[60, 600], [3600]]\n'
    )
    out = str(tmp_path / "store")
    assert main(["sweep", str(spec), "--out", out, "--resume"]) == 2
    assert "contains no earlier sweep" in capsys.readouterr().err
    assert main(["sweep", str(spec), "--out", out, "--workers", "2"]) == 0
    told = capsys.readouterr()
    assert "load: 3 runs" in told.out
    assert "[3600]" in told.out
    assert main(["sweep", str(spec), "--out", out, "--resume", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["runs"], document["new"]) == (3, 0)
    spec.write_text(spec.read_text() + "[options]\nuntil = 3\n")
    assert main(["sweep", str(spec), "--out", out]) == 2
