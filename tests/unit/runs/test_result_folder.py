"""Tests saved results: several writers, a killed writer, and incomplete folders."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gangline as gl
from gangline.cli.app import main
from refusals import refused
from samples.seals import put_sealed

if TYPE_CHECKING:
    from collections.abc import Callable

    from snapshots import Snapshot

LAB = gl.Cluster.homogeneous(servers=2, gpus=4)
TRACE = gl.synth.philly(jobs=30, seed=1, max_gpus=8)

WRITERS = """
import sys
import gangline as gl
lab = gl.Cluster.homogeneous(servers=2, gpus=4)
trace = gl.synth.philly(jobs=30, seed=1, max_gpus=8)
result = gl.simulate(lab, trace, sys.argv[1], segments=True)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    result.save("out")
"""


def run(policy: str, *, segments: bool = True) -> gl.Result:
    return gl.simulate(LAB, TRACE, policy, segments=segments)


def test_several_writers_leave_the_result_of_one(tmp_path: Path) -> None:
    policies = ("fifo", "srtf", "las", "sjf")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITERS, policy, "15"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        )
        for policy in policies
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("go\n", timeout=120)
    assert [writer.returncode for writer in writers] == [0] * len(writers)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "jobs.parquet", "segments.parquet", "spec.json", "summary.json", "timeline.parquet",
    ]  # fmt: skip
    found = gl.load_result(tmp_path / "out")
    expected = run(found.policy)
    assert found.log_hash == expected.log_hash
    assert found.jobs.equals(expected.jobs)
    assert found.segments.to_pylist() == expected.segments.to_pylist()
    assert found.summary["jct_mean_s"] == expected.summary["jct_mean_s"]


def test_a_mixture_of_two_runs_is_no_result(tmp_path: Path) -> None:
    run("fifo").save(tmp_path / "a")
    run("srtf").save(tmp_path / "b")
    for name in ("jobs.parquet", "timeline.parquet", "segments.parquet", "summary.json"):
        kept = (tmp_path / "a" / name).read_bytes()
        (tmp_path / "a" / name).write_bytes((tmp_path / "b" / name).read_bytes())
        with refused(gl.ResultError, path=str(tmp_path / "a" / name)):
            gl.load_result(tmp_path / "a")
        (tmp_path / "a" / name).write_bytes(kept)
    assert gl.load_result(tmp_path / "a").policy == "fifo"


def dies_at(call: int, place: Path) -> bool:
    """Save `srtf` in a process that is killed at the given rename or removal in the folder."""
    code = f"""
import os, signal, sys, pathlib
import gangline as gl
from unit.runs.test_result_folder import run
result, left = run("srtf", segments=False), [{call}]
def dying(real):
    def call(*arguments, **more):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **more)
    return call
result.jobs, result.timeline
os.replace, os.rename, os.unlink = map(dying, (os.replace, os.rename, os.unlink))
result.save({str(place)!r})
"""
    tests = str(Path(__file__).parents[2])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


def test_a_writer_that_dies_loses_nothing_of_the_user_and_is_followed_by_the_next(
    tmp_path: Path,
) -> None:
    place = tmp_path / "out"
    deaths = 0
    for call in range(1, 100):
        run("fifo").save(place)
        (place / "notes.txt").write_text("mine")
        (place / "plots").mkdir(exist_ok=True)
        (place / "plots" / "a.svg").write_text("mine")
        died = dies_at(call, place)
        deaths += died
        assert (place / "notes.txt").read_text() == "mine"
        assert (place / "plots" / "a.svg").read_text() == "mine"
        try:
            assert gl.load_result(place).policy in ("fifo", "srtf")
        except gl.ResultError as error:
            assert died
            assert "run it again" in str(error)
        run("las").save(place)
        assert gl.load_result(place).policy == "las"
        assert (place / "notes.txt").read_text() == "mine"
        if not died:
            break
    assert deaths >= 8  # four removals, four files and the rest of its own folder


def test_folders_of_others_beside_a_result_are_left_alone(tmp_path: Path) -> None:
    for name in (".out.old", ".out.part", ".gangline-mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.tex").write_text("mine")
    run("fifo").save(tmp_path / "out")
    run("fifo").save(tmp_path / "out")
    for name in (".out.old", ".out.part", ".gangline-mine"):
        assert (tmp_path / name / "thesis.tex").read_text() == "mine"


def test_a_loaded_result_has_all_that_the_saved_one_had(tmp_path: Path) -> None:
    weird = {
        "gpu_types": [{"name": "A", "memory_gb": 16}, {"name": "B ü", "memory_gb": 32}],
        "servers": [{"count": 2, "gpu": "A", "gpus": 4}, {"count": 1, "gpu": "B ü", "gpus": 8}],
        "sharing": {
            "xi": 1.5,
            "interference": "table",
            "missing": "constant",
            "rows": [{"model": "m", "co_model": "m", "xi": float("nan")}],
        },
    }
    for i, (cluster, options) in enumerate(
        (
            (LAB, {"timeline": "off"}),
            (weird, {"until_s": 0.5}),
            (LAB, {"restart_by_model": {"vgg": 3.0}, "restart_s": 2.0}),
            (LAB, {"max_events": 3, "checkpoint_interval_s": 9.0, "timeline": 60.0}),
        )
    ):
        given: dict[str, Any] = {"segments": True, **options}
        result = gl.simulate(cluster, TRACE, "las", **given)
        again = gl.load_result(result.save(tmp_path / str(i)))
        assert again.spec == result.spec
        assert again.jobs.to_pylist() == result.jobs.to_pylist()
        assert again.timeline.to_pylist() == result.timeline.to_pylist()
        assert again.segments.to_pylist() == result.segments.to_pylist()
        kept = gl.load_result(result.save(tmp_path / f"{i} with jobs", explain=True))
        first = result.jobs["job_id"][0].as_py()
        assert kept.explain(first).to_dict() == result.explain(first).to_dict()
        gl.report.write(again, tmp_path / f"{i}.html")


def test_a_folder_may_be_called_after_estimates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Arrow reads a relative name with a colon as a URI
    folder = Path("user:mean:2")
    result = gl.simulate(LAB, TRACE, "sjf", estimates="user:mean:2")
    result.save(folder)
    assert gl.load_result(folder).jobs == result.jobs
    comparison = gl.compare(LAB, TRACE, ["sjf"])
    gl.plot.write_table(comparison, folder / "table.parquet")
    assert pq.read_table(Path.cwd() / folder / "table.parquet").num_rows == 1
    gl.write_trace(TRACE, folder / "trace.parquet")
    read = gl.read_trace(folder / "trace.parquet")
    assert read.column("arrival_s") == TRACE.column("arrival_s")


def test_the_checksums_are_those_of_other_tools(tmp_path: Path) -> None:
    run("fifo").save(tmp_path / "out")
    files = json.loads((tmp_path / "out" / "spec.json").read_text())["files"]
    assert sorted(files) == [
        "jobs.parquet", "segments.parquet", "summary.json", "timeline.parquet",
    ]  # fmt: skip
    for name, state in files.items():
        data = (tmp_path / "out" / name).read_bytes()
        assert state == {"bytes": len(data), "crc32": f"{zlib.crc32(data):08x}"}


# A change of a saved result is reported or does no harm.


def put(value: Any, path: list[Any], new: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new


def places(value: Any, at: tuple[Any, ...] = ()) -> list[list[Any]]:
    """Return the paths of all values inside a JSON value."""
    inside = (
        list(value.items()) if isinstance(value, dict)
        else list(enumerate(value)) if isinstance(value, list) else []
    )  # fmt: skip
    found = [[*at, key] for key, _ in inside]
    return found + [path for key, item in inside for path in places(item, (*at, key))]


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


JSON_VALUES = (
    None, True, -1, 0, 3, 2**31, 2**63, 10**30, -0.5, 1e308, float("nan"), float("inf"), "", "x",
    "1", "/dev/zero", "\ud800", "</script>", "a\nb\x1b[2J", [], {}, [None], [[1]], {"": None},
    {"a": [None, {}]}, deep(90), deep(200), "x" * 100_000,
)  # fmt: skip


def damage_json(path: Path, draw: random.Random) -> str:
    data = json.loads(path.read_text("utf-8"))
    place = draw.choice(places(data))
    owner = data
    for step in place[:-1]:
        owner = owner[step]
    kind = draw.choice(("drop", "rename", "set", "set", "set", "set"))
    value = draw.choice(JSON_VALUES)
    if kind == "drop":
        del owner[place[-1]]
    elif kind == "rename" and isinstance(owner, dict):
        owner[draw.choice(("x", "", "name", "\ud800"))] = owner.pop(place[-1])
    else:
        put(data, place, value)
        kind = f"set {repr(value)[:40]}"
    path.write_text(json.dumps(data), "utf-8")
    return f"{path.name}: {kind} at {place}"


def damage_table(path: Path, draw: random.Random) -> str:
    table = pq.read_table(path)
    name = draw.choice(table.column_names)
    at, column = table.column_names.index(name), table.column(name)
    rows = table.num_rows
    kind = draw.choice(("drop", "rename", "retype", "retype", "value", "value", "value", "rows"))
    if kind == "drop":
        table = table.drop_columns([name])
    elif kind == "rename":
        names = [draw.choice(("x", "gpus", "")) if n == name else n for n in table.column_names]
        table = table.rename_columns(names)
    elif kind == "retype":
        new = draw.choice(
            (
                pa.array(["x"] * rows), pa.nulls(rows), pa.array([True] * rows),
                pa.array([[1]] * rows), pa.array([b"\xff"] * rows), pa.array([1.5] * rows),
                pa.array([2**62] * rows), pa.array([{"a": 1}] * rows),
                pa.array([None] * rows, pa.dictionary(pa.int32(), pa.string())),
                pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), ["odd"]),
            )
        )  # fmt: skip
        table = table.set_column(at, name, new)
        kind = f"retype {new.type}"
    elif kind == "value" and (
        pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    ):
        floats = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e300, 5e9, None)
        whole = (0, 1, 63, 2**30, None)
        values = column.to_pylist()
        value = draw.choice(floats if pa.types.is_floating(column.type) else whole)
        for row in range(rows) if draw.random() < 0.3 else draw.sample(range(rows), min(rows, 3)):
            values[row] = value
        table = table.set_column(at, name, pa.array(values, column.type))
        kind = f"value {value}"
    elif kind == "value":
        table = table.set_column(at, name, pa.nulls(rows, column.type))
    else:
        count = draw.choice((0, 1, rows // 2))
        table = table.slice(0, count)
        kind = f"{count} rows"
    pq.write_table(table, path)
    return f"{path.name}: {kind} in {name}"


def damage_bytes(path: Path, draw: random.Random) -> str:
    data = bytearray(path.read_bytes())
    kind = draw.choice(("cut", "flip", "empty", "noise"))
    if kind == "cut":
        del data[draw.randrange(len(data)) :]
    elif kind == "flip":
        for _ in range(5):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    else:
        data = bytearray() if kind == "empty" else bytearray(draw.randbytes(300))
    path.write_bytes(data)
    return f"{path.name}: {kind}"


def accept(folder: Path, name: str) -> None:
    """Make spec.json list a damaged file, so that more than its checksum has to tell."""
    spec = json.loads((folder / "spec.json").read_text("utf-8"))
    data = (folder / name).read_bytes()
    spec["files"][name] = {"bytes": len(data), "crc32": f"{zlib.crc32(data):08x}"}
    put_sealed(folder / "spec.json", "result", spec)


def use(folder: Path, cluster: Path, out: Path, job: str) -> int:
    """Use a result in every possible way; return how often it was refused."""
    refused = 0
    calls: tuple[Callable[[], object], ...] = (
        lambda: gl.load_result(folder).check(),
        lambda: gl.report.write(folder, out / "page.html"),
        lambda: gl.report.write_gantt(gl.load_result(folder), out / "chart"),
        lambda: gl.audit(folder, cluster),
        lambda: repr(gl.load_result(folder)) + gl.load_result(folder)._repr_html_(),
        lambda: repr(gl.load_result(folder).explain(job)),
    )
    for call in calls:
        for old in out.iterdir():
            old.unlink()
        try:
            call()
        except gl.ResultError:
            refused += 1
    return refused


FILES = ("spec.json", "summary.json", "jobs.parquet", "timeline.parquet", "segments.parquet")
WORLDS: dict[str, tuple[Any, str, str]] = {
    "plain": (LAB, "synth:philly?jobs=30&seed=1&max_gpus=8", "las"),
    "network": (gl.Cluster.preset("dally-2024-small"), "synth:dally-batch?seed=1&jobs=30", "dally"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("accepted", [False, True], ids=["as it is", "checksums made to fit"])
def test_damage_is_told_or_does_no_harm(world: str, accepted: bool, tmp_path: Path) -> None:
    cluster, trace, policy = WORLDS[world]
    gl.simulate(cluster, trace, policy, segments=True, restart_s=5.0).save(tmp_path / "whole")
    (tmp_path / "lab.toml").write_text(cluster.to_toml())
    (tmp_path / "out").mkdir()
    job = gl.load_result(tmp_path / "whole").jobs["job_id"][0].as_py()
    assert use(tmp_path / "whole", tmp_path / "lab.toml", tmp_path / "out", job) == 0
    place, refused = tmp_path / "damaged", 0
    changes = int(os.environ.get("GANGLINE_DAMAGES", "60"))
    for seed in range(changes):
        draw = random.Random(f"{world} {accepted} {seed}")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", place)
        name = draw.choice(FILES)
        kinds = [damage_json, damage_json, damage_bytes]
        if name.endswith(".parquet"):
            kinds = [damage_table, damage_table, damage_bytes]
        told = draw.choice(kinds)(place / name, draw)
        if accepted and name != "spec.json":
            accept(place, name)
        try:
            times = use(place, tmp_path / "lab.toml", tmp_path / "out", job)
        except Exception as error:
            error.add_note(f"seed {seed}: {told}")
            raise
        refused += times > 0
        if not accepted and name != "spec.json":
            assert times == 6, f"seed {seed}: {told}"
    assert refused > changes // 3


EDITS = (
    ('"seed": 3', '"seed": 7'), ('"restart_s": 30.0', '"restart_s": 10.0'),
    ('"label": "las"', '"label": "fas"'),
)  # fmt: skip


@pytest.mark.parametrize(("before", "after"), EDITS)
def test_an_edited_spec_is_refused_by_every_reader(
    before: str, after: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], snapshot: Snapshot
) -> None:
    place = tmp_path / "out"
    gl.simulate(LAB, TRACE, "las", seed=3, restart_s=30.0, segments=True).save(place)
    text = (place / "spec.json").read_text()
    assert text.count(before) == 1
    (place / "spec.json").write_text(text.replace(before, after))
    job = gl.simulate(LAB, TRACE, "las").jobs["job_id"][0].as_py()
    out = str(tmp_path / "new")
    for command in (
        ["report", str(place), "--html", out], ["audit", str(place)], ["run", str(place)],
        ["explain", str(place), "--job", job], ["gantt", str(place), "--out", out],
        ["run", str(place / "spec.json")],
    ):  # fmt: skip
        assert main(command) == 2
        said = capsys.readouterr()
        assert "spec.json: was changed after gangline wrote it; " in said.err
        assert (said.err.count("\n"), said.out) == (1, "")
    assert not (tmp_path / "new").exists()
    with refused(gl.ResultError, snapshot):
        gl.RunSpec.load(place)
    spec = json.loads((place / "spec.json").read_text())
    del spec["seal"]
    (place / "spec.json").write_text(json.dumps(spec))
    with refused(gl.ResultError, snapshot):
        gl.load_result(place)
    with refused(gl.ResultError, snapshot):
        gl.RunSpec.load(place)
    # A user's own spec is a file without a seal.
    assert gl.RunSpec.load(place / "spec.json").policy.name == "las"


def test_an_edited_comparison_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "out"
    gl.compare(LAB, TRACE, ["fifo", "las"], segments=True).save(place)
    path = place / "comparison.json"
    text = path.read_text()
    for other, words in (
        (text.replace('"policy": "las"', '"policy": "fas"'), "was changed after gangline wrote it"),
        (text + " ", "was changed after gangline wrote it"),
        (json.dumps({"runs": json.loads(text)["runs"]}), "has no seal"),
        (text[:-9], "expected JSON"),
    ):
        path.write_text(other)
        for command in (
            ["report", str(place), "--html", str(tmp_path / "new")],
            ["explain", str(place), "--policy", "las", "--job", "0"],
            ["gantt", str(place), "--policy", "las", "--out", str(tmp_path / "new")],
        ):
            assert main(command) == 2
            said = capsys.readouterr().err
            assert f"comparison.json: {words}" in said
            assert said.count("\n") == 1
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        gl.report.load_runs(place)
    path.rmdir()
    assert [run.policy for run in gl.report.load_runs(place)] == ["fifo", "las"]


def test_a_name_that_looks_like_a_seal_does_no_harm(tmp_path: Path) -> None:
    for name in ("gangline result " + "0" * 64, "gangline result of " + "x" * 70):
        lab = gl.Cluster.homogeneous(servers=2, gpus=4, name=name)
        result = gl.simulate(lab, TRACE, "fifo")
        for _ in range(2):
            result.save(tmp_path / "out")
            assert gl.load_result(tmp_path / "out").spec["cluster"]["name"] == name


@pytest.mark.parametrize("call", range(1, 6))
def test_an_interrupt_amid_the_replacement_waits_for_its_end(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, left = tmp_path / "out", [call]
    run("fifo").save(place)
    later = run("srtf", segments=False)
    _ = later.jobs, later.timeline
    real = os.replace

    def interrupted(*arguments: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr("os.replace", interrupted)
    if call < 5:  # spec.json and three files
        with pytest.raises(KeyboardInterrupt):
            later.save(place)
    else:
        later.save(place)
    found = gl.load_result(place)
    found.check()
    assert (found.policy, found.has_segments) == ("srtf", False)
    assert not [path for path in place.iterdir() if path.name.startswith(".")]


def test_tables_of_a_result_that_was_replaced_meanwhile_are_refused(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    run("fifo").save(tmp_path / "out")
    loaded = gl.load_result(tmp_path / "out")
    run("srtf").save(tmp_path / "out")
    with refused(gl.ResultError, snapshot):
        _ = loaded.jobs


def test_a_reader_beside_writers_sees_whole_results(tmp_path: Path) -> None:
    run("fifo").save(tmp_path / "out")
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITERS, "srtf", "40"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert writer.stdout is not None
    assert writer.stdin is not None
    assert writer.stdout.readline() == "ready\n"
    writer.stdin.write("go\n")
    writer.stdin.close()
    seen = set()
    while writer.poll() is None:
        seen.add(gl.load_result(tmp_path / "out").policy)
    assert writer.wait() == 0
    assert "srtf" in seen | {gl.load_result(tmp_path / "out").policy}
    writer.stdout.close()
