"""Tests `gangline run SPEC.json`, which repeats the run of a result."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

import gangline as gl
import worlds
from gangline.cli.app import main
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot


@pytest.fixture
def saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a folder with a trace `jobs.csv` and the result `first` on some of its jobs."""
    rows = "".join(f"j{i},{i * 10},1,{50 + i}\n" for i in range(20))
    (tmp_path / "jobs.csv").write_text("job_id,arrival_s,gpus,duration_s\n" + rows)
    words = ["--trace", str(tmp_path / "jobs.csv"), "--limit", "12", "--cluster", "pollux-64"]
    more = ["--policy", "las", "--seed", "3", "--restart-s", "5", "--out", str(tmp_path / "first")]
    assert main(["run", *words, *more]) == 0
    capsys.readouterr()
    return tmp_path


def test_a_spec_gives_the_same_bytes_again(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("first", "first/spec.json"):
        assert main(["run", str(saved / name), "--out", str(saved / "again")]) == 0
        said = capsys.readouterr()
        assert "12 jobs" in said.out
        assert "the same events as in" in said.err
        for table in ("jobs.parquet", "timeline.parquet"):
            assert (saved / "first" / table).read_bytes() == (saved / "again" / table).read_bytes()
        spec, same = (json.loads((saved / f / "spec.json").read_text()) for f in ("first", "again"))
        assert {key for key in spec if spec[key] != same[key]} <= {"files", "seal", "measured"}
    assert main(["run", str(saved / "first"), "--segments", "--out", str(saved / "more")]) == 0
    assert (saved / "more" / "segments.parquet").exists()
    assert main(["run", str(saved / "first"), "--json"]) == 0
    capsys.readouterr()


def test_a_trace_that_moved_is_given(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = shutil.move(saved / "jobs.csv", saved / "moved.csv")
    assert main(["run", str(saved / "first")]) == 2
    assert "jobs.csv: a file that the run read is missing" in (said := capsys.readouterr().err)
    assert "pass its new path as `--trace`" in said
    assert main(["run", str(saved / "first"), "--trace", str(moved)]) == 0
    moved.write_text(moved.read_text() + "more,1,1,1\n")
    capsys.readouterr()
    assert main(["run", str(saved / "first"), "--trace", str(moved)]) == 2
    assert "not the file of the run: expected SHA-256" in (said := capsys.readouterr().err)
    assert "pass the original file as `--trace`" in said


def test_other_versions_are_noted(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = json.loads((saved / "first" / "spec.json").read_text())
    del spec["seal"]
    old = saved / "old.json"
    old.write_text(json.dumps({**spec, "versions": {**spec["versions"], "numpy": "1.0.0"}}))
    assert main(["run", str(old)]) == 0
    assert "old.json was written with numpy 1.0.0 (now" in capsys.readouterr().err
    old.write_text(json.dumps({**spec, "gangline": "0.0.1", "log_hash": "0" * 16}))
    assert main(["run", str(old), "--json"]) == 3
    said = capsys.readouterr()
    assert "old.json was written with gangline 0.0.1 (now" in said.err
    assert "not the same events; the versions above differ" in said.err
    assert json.loads(said.out)["summary"]["finished"] == 12


def test_a_policy_in_python_is_found_and_its_changes_are_seen(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved)
    own = worlds.module_of(worlds.FirstFit, "Own")
    for name, which in (("specone", "0"), ("spectwo", "-1")):
        (saved / f"{name}.py").write_text(own.replace("room[0]", f"room[{which}]"))
    words = [
        "--trace",
        "synth:philly?jobs=60&seed=1&max_gpus=4",
        "--cluster",
        "pollux-64",
    ]
    assert main(["run", *words, "--policy", "specone:Own", "--out", "own"]) == 0
    assert main(["run", "own"]) == 0
    spec = json.loads((saved / "own" / "spec.json").read_text())
    del spec["seal"]
    (saved / "edited.json").write_text(json.dumps(spec).replace("specone", "spectwo"))
    assert main(["run", "edited.json"]) == 3
    assert "a policy in Python may have changed" in capsys.readouterr().err


def test_explain_finds_a_policy_in_the_working_folder(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved)
    (saved / "specwhy.py").write_text(worlds.module_of(worlds.FirstFit, "Own"))
    words = ["--trace", str(saved / "jobs.csv"), "--cluster", "pollux-64"]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        policies = ["--policies", "fifo,specwhy:Own"]
        assert main(["compare", *words, *policies, "--out", "compared"]) == 0
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(saved)])
    monkeypatch.delitem(sys.modules, "specwhy")
    capsys.readouterr()
    assert main(["explain", "compared", "--policy", "specwhy:Own", "--job", "j3"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Under Own it started at once" in said
    assert "reasons of the policy are not known" not in said


@pytest.mark.parametrize(
    "words",
    ["--policy fifo", "--cluster venus", "--seed 1", "--set a=1", "--limit 3", "--restart-s 1",
     "--on-infeasible drop", "--option unit=job"],
)  # fmt: skip
def test_what_the_spec_says_is_not_said_twice(
    saved: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert main(["run", str(saved / "first"), *words.split()]) == 2
    assert f"{words.split(maxsplit=1)[0]}: the spec " in capsys.readouterr().err


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", '{"trace": 3}'])
def test_what_is_no_spec_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "some.json").write_text(text)
    assert main(["run", str(tmp_path / "some.json")]) == 2
    assert "some.json: " in capsys.readouterr().err
    assert main(["run", str(tmp_path)]) == 2
    assert "spec.json: " in capsys.readouterr().err
    assert main(["run", "--trace", "x.csv", "--policy", "fifo"]) == 2
    assert "--cluster is missing: a run needs --trace, " in capsys.readouterr().err


def test_a_run_that_plans_drove_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=1)
    run = gl.Simulation(lab, "synth:philly?jobs=1&max_gpus=1")
    while run.advance() == "decision":
        plan = gl.Plan()
        for job in run.view.waiting.job.tolist():
            plan.start(job, gpus={0: 1})
        run.apply(plan)
    run.result().save(tmp_path / "run")
    with refused(gl.PolicyError, snapshot):
        gl.run(gl.RunSpec.load(tmp_path / "run"))
    assert main(["run", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert "driven by plans from outside" in told
    assert "did you mean" not in told
