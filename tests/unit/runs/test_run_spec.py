"""Tests a run as a value: its digest, its canonical form, and equal bytes when repeated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gangline as gl
from gangline.errors import PolicyError, ResultError, TraceError
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

SYNTH = "synth:philly?jobs=40&seed=1&max_gpus=8"
NARROW = SYNTH.replace("max_gpus=8", "max_gpus=4")
LAB = gl.Cluster.homogeneous(servers=2, gpus=4)
TABLES = ("jobs.parquet", "timeline.parquet", "segments.parquet")


class OneByOne(gl.Policy):
    """Starts only the oldest job that fits on one server."""

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def params(self) -> dict[str, int]:
        return {"first": self.first}

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        free = view.servers("gpus_free")
        for job, gpus in zip(view.waiting("job"), view.waiting("gpus"), strict=True):
            room = (free >= gpus).nonzero()[0]
            if len(room):
                plan.start(job, {room[0]: gpus})
                break
        return plan


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in TABLES}


def settled(folder: Path) -> dict[str, object]:
    """Return spec.json without measured times."""
    spec = json.loads((folder / "spec.json").read_text())
    for key in ("measured", "seal", "files"):
        spec.pop(key)
    return dict(spec)


@pytest.mark.parametrize(
    ("trace", "policy", "options"),
    [
        (SYNTH, "las", {"restart_s": 30.0, "seed": 3}),
        ("mini:philly", gl.policies.Las(limits=(60.0, 600.0)), {}),
        (SYNTH, "tiresias", {"first_start_s": 2.0, "timeline": "change"}),
        (SYNTH, "gavel-las", {}),
        (NARROW, OneByOne(first=1), {}),
    ],
)
def test_the_spec_of_a_result_gives_the_same_bytes(
    tmp_path: Path, trace: str, policy: object, options: dict[str, object]
) -> None:
    cluster = gl.Cluster.preset("pollux-64") if trace.startswith("mini:") else LAB
    first = gl.simulate(cluster, trace, policy, segments=True, **options)  # type: ignore[arg-type]
    first.save(tmp_path / "a")
    again = gl.run(tmp_path / "a")
    again.save(tmp_path / "b")
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    assert settled(tmp_path / "a") == settled(tmp_path / "b")


def test_options_of_the_reader_go_along(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rows = "".join(f"j{i},{i * 10},1,{50 + i}\n" for i in range(20))
    path.write_text("job_id,arrival_s,gpus,duration_s\n" + rows)
    trace = gl.read_trace(path, limit=10, rescale=0.5)
    first = gl.simulate(LAB, trace)
    assert first.spec["trace"]["options"] == {"limit": 10, "rescale": 0.5}
    assert gl.run(first.spec).log_hash == first.log_hash
    assert gl.simulate(LAB, gl.read_trace(path)).spec["digest"] != first.spec["digest"]


def test_a_window_without_an_end_goes_along(tmp_path: Path) -> None:
    jobs = gl.read_trace(SYNTH, window=(3600.0, float("inf")))
    first = gl.simulate(LAB, jobs, "fifo")
    first.save(tmp_path / "run")  # JSON has no infinity
    assert gl.run(tmp_path / "run").log_hash == first.log_hash
    assert gl.RunSpec.load(tmp_path / "run").digest == first.spec["digest"]


def test_a_file_counts_by_its_content(tmp_path: Path) -> None:
    one, other = tmp_path / "one.parquet", tmp_path / "other.parquet"
    shutil.copy(Path(gl.__file__).parent / "trace" / "mini" / "philly.parquet", one)
    shutil.copy(one, other)
    cluster = gl.Cluster.preset("pollux-64")
    specs = [gl.RunSpec.make(cluster, path, "fifo") for path in (one, other)]
    assert specs[0].trace.source != specs[1].trace.source
    assert specs[0].digest == specs[1].digest


def test_a_changed_file_is_refused(tmp_path: Path, snapshot: Snapshot) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("arrival_s,gpus,duration_s\n0,1,5\n")
    first = gl.simulate(LAB, path)
    path.write_text("arrival_s,gpus,duration_s\n0,1,6\n")
    with refused(TraceError, snapshot):
        gl.run(first.spec)


def test_the_trace_that_is_passed_is_read_as_the_run_read_it(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    path = tmp_path / "jobs.csv"
    rows = "".join(f"j{i},{i * 10},1,{50 + i}\n" for i in range(20))
    path.write_text("job_id,arrival_s,gpus,duration_s\n" + rows)
    first = gl.simulate(LAB, gl.read_trace(path, limit=10))
    moved = path.rename(tmp_path / "moved.csv")
    with refused(TraceError, snapshot):
        gl.run(first.spec)
    for place in (moved, str(moved), gl.read_trace(moved, limit=10)):
        assert gl.run(first.spec, trace=place).log_hash == first.log_hash
    with refused(TraceError, snapshot):
        gl.run(first.spec, trace=gl.read_trace(moved))
    drawn = gl.simulate(LAB, SYNTH)
    with refused(TraceError, snapshot):
        gl.run(drawn.spec, trace=SYNTH.replace("seed=1", "seed=2"))


def test_a_table_in_memory_is_passed_along(snapshot: Snapshot) -> None:
    jobs = pa.table({"arrival_s": [0.0, 1.0], "gpus": [1, 2], "duration_s": [5.0, 6.0]})
    first = gl.simulate(LAB, jobs)
    with refused(TraceError, snapshot):
        gl.run(first.spec)
    assert gl.run(first.spec, trace=jobs).log_hash == first.log_hash
    with refused(TraceError, path="table"):
        gl.run(first.spec, trace=jobs.slice(1))


def test_a_policy_that_cannot_be_imported_is_passed_along(snapshot: Snapshot) -> None:
    class Local(OneByOne):
        pass

    first = gl.simulate(LAB, NARROW, Local())
    with refused(PolicyError, snapshot):
        gl.run(first.spec)
    assert gl.run(first.spec, policy=Local()).log_hash == first.log_hash


def test_the_digest_tells_what_differs() -> None:
    base = gl.RunSpec.make(LAB, SYNTH, "las")
    others = [
        gl.RunSpec.make(LAB, SYNTH, "las", seed=1),
        gl.RunSpec.make(LAB, SYNTH, "las", restart_s=1.0),
        gl.RunSpec.make(LAB, SYNTH, "las", params={"promote_knob": 2.0}),
        gl.RunSpec.make(LAB, SYNTH, "srtf"),
        gl.RunSpec.make(LAB, SYNTH.replace("seed=1", "seed=2"), "las"),
        gl.RunSpec.make(gl.Cluster.homogeneous(servers=3, gpus=4), SYNTH, "las"),
    ]
    digests = {one.digest for one in (base, *others)}
    assert len(digests) == 1 + len(others)
    assert all(len(one) == 32 for one in digests)


def test_the_same_run_said_otherwise_has_the_same_digest() -> None:
    reordered = "synth:philly?max_gpus=8&seed=1&jobs=40"
    drawn = gl.synth.philly(jobs=40, seed=1, max_gpus=8)
    digests = {
        gl.RunSpec.make(LAB, SYNTH, "las").digest,
        gl.RunSpec.make(LAB, reordered, gl.policies.Las()).digest,
        gl.RunSpec.make(LAB.to_dict(), drawn, "las", restart_s=None).digest,
        gl.simulate(LAB, drawn, "las").spec["digest"],
    }
    assert len(digests) == 1


def test_canonical_json_is_read_back() -> None:
    spec = gl.RunSpec.make(LAB, SYNTH, "las", restart_s=3.0)
    text = spec.to_json()
    assert text.isascii()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert gl.RunSpec.from_dict(json.loads(text)) == spec


def test_a_folder_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text('{"seed": 0}')
    with refused(ResultError, key="trace"):
        gl.RunSpec.load(path)
    path.write_text("no")
    with refused(ResultError, path=str(path), expected="JSON"):
        gl.RunSpec.load(path)
