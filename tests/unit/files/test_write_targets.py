"""Tests output paths: earlier outputs are replaced, but other files and devices never."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gangline as gl
from gangline.cli.app import main
from gangline.files.places import whole
from refusals import refused
from samples import tables
from unit.cli.refusals import GOOD, Refuse, refuse, run_on

if TYPE_CHECKING:
    from snapshots import Snapshot

__all__ = ["refuse"]


def test_devices_are_written_into_and_stay_devices(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    gl.write_trace(gl.synth.philly(jobs=3), pipe, format="swf")
    reader.join(timeout=60)
    assert pipe.is_fifo()
    gl.write_trace(gl.synth.philly(jobs=3), tmp_path / "t.swf")
    assert got == [(tmp_path / "t.swf").read_bytes()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "t.swf"]


def test_a_full_device_is_told_and_stays(tmp_path: Path) -> None:
    # A separate link, so that a failure replaces the link and not the machine's device.
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        gl.write_trace(gl.synth.philly(jobs=3), full, format="swf")
    assert full.is_symlink()
    assert Path("/dev/full").is_char_device()


def test_a_folder_cannot_go_into_a_device(tmp_path: Path) -> None:
    place = tmp_path / "null"
    place.symlink_to(os.devnull)
    with pytest.raises(NotADirectoryError), whole(place) as part:
        part.mkdir()
    assert Path(os.devnull).is_char_device()


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "t.parquet", tmp_path / "link.parquet"
    gl.write_trace(gl.synth.philly(jobs=9), target)
    link.symlink_to(target)
    gl.write_trace(gl.synth.philly(jobs=3), link)
    assert link.is_symlink()
    assert len(gl.read_trace(target)) == 3
    assert list((tmp_path / "far").iterdir()) == [target]


def test_a_trace_goes_to_stdout(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "out").symlink_to("/dev/stdout")
    command = ["trace", "convert", "t.csv", "out", "--to", "swf"]
    done = subprocess.run(
        [sys.executable, "-m", "gangline", *command],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.splitlines()[2].split()[:5] == ["1", "0", "-1", "10", "1"]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_an_earlier_trace_is_replaced_unless_it_was_changed(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(b"")
    for jobs in (5, 6):
        gl.write_trace(gl.synth.philly(jobs=jobs), path)
        assert len(gl.read_trace(path)) == jobs
    table = gl.read_trace(path).table.append_column("mine", pa.array(range(6)))
    if suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    mine = path.read_bytes()
    with refused(gl.TraceError, path=str(path)):
        gl.write_trace(gl.synth.philly(jobs=5), path)
    assert path.read_bytes() == mine


@pytest.mark.parametrize("suffix", [".csv", ".swf", ".parquet.gz"])
def test_a_trace_that_carries_no_mark_stays_unless_it_is_the_same(
    suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"t{suffix}"
    for _ in range(2):
        gl.write_trace(gl.synth.philly(jobs=5), path)
    before = path.read_bytes()
    with refused(gl.TraceError, path=str(path)):
        gl.write_trace(gl.synth.philly(jobs=6), path)
    assert path.read_bytes() == before


OTHERS = {
    "mine.ini": b"; settings\n[a]\nb=1\n",
    "mine.csv": b"42",
    "mine.json": b'{"jobs": ["baker"]}',
    "table.parquet": tables.parquet(tables.RATES),
    "mine.parquet": b"PAR1 and more",
    "mine.arrow": b"ARROW1 and more",
}


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_others_are_no_earlier_traces(name: str, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / name).write_bytes(OTHERS[name])
    form = [] if name.endswith((".csv", ".parquet", ".arrow")) else ["--to", "swf"]
    (tmp_path / "in.csv").write_text(GOOD)
    refuse("trace", "convert", "in.csv", name, *form, words=(name, "exists"))
    assert (tmp_path / name).read_bytes() == OTHERS[name]


@pytest.mark.parametrize("kind", ["page", "chart"])
def test_text_about_gangline_is_no_output_of_it(kind: str, tmp_path: Path, refuse: Refuse) -> None:
    place = tmp_path / "r"
    lab, trace = gl.Cluster.homogeneous(servers=1, gpus=4), gl.synth.philly(jobs=3)
    gl.simulate(lab, trace, "fifo", segments=True).save(place)
    for text in ("gangline", '<!doctype html><meta name="generator" content="gangline">'):
        (tmp_path / "mine").write_text(text)
        command = ["report", "r", "--html"] if kind == "page" else ["gantt", "r", "-o"]
        refuse(*command, "mine", words=("mine", "exists"))
        assert (tmp_path / "mine").read_text() == text
    # One kind of output does not replace another.
    spec = (place / "spec.json").read_bytes()
    refuse(*command, "r/spec.json", words=("r/spec.json", "exists"))
    assert (place / "spec.json").read_bytes() == spec


@pytest.mark.parametrize("kind", ["page", "chart"])
def test_an_output_is_replaced_unless_it_was_edited(kind: str, tmp_path: Path) -> None:
    lab, trace = gl.Cluster.homogeneous(servers=1, gpus=4), gl.synth.philly(jobs=3)
    run = gl.simulate(lab, trace, "fifo", segments=True)
    write = gl.report.write if kind == "page" else gl.report.write_gantt
    for _ in range(2):
        write(run, tmp_path / "out")
    edited = (tmp_path / "out").read_bytes() + b" "
    (tmp_path / "out").write_bytes(edited)
    with refused(gl.ResultError, path=str(tmp_path / "out")):
        write(run, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == edited


@pytest.mark.parametrize("command", ["synth", "convert"])
def test_a_file_that_is_no_trace_is_left_alone(
    command: str, tmp_path: Path, refuse: Refuse
) -> None:
    (tmp_path / "in.csv").write_text(GOOD)
    (tmp_path / "thesis.csv").write_text("mine")
    words = ("thesis.csv", "exists")
    if command == "synth":
        refuse("trace", "synth", "philly", "--jobs", "5", "--out", "thesis.csv", words=words)
    else:
        refuse("trace", "convert", "in.csv", "thesis.csv", words=words)
    assert (tmp_path / "thesis.csv").read_text() == "mine"


def test_a_trace_is_not_converted_onto_itself(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "in.csv").write_text(GOOD)
    words = ("in.csv", "choose another")
    refuse("trace", "convert", "in.csv", "./in.csv", "--to", "swf", words=words)
    assert (tmp_path / "in.csv").read_text() == GOOD


def test_a_file_that_is_no_cluster_is_left_alone(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "lab.toml").write_text("[project]\n")
    refuse(
        "cluster",
        "convert",
        "pai",
        "--out",
        "lab.toml",
        words=("lab.toml", "not an unchanged cluster"),
    )
    assert (tmp_path / "lab.toml").read_text() == "[project]\n"


def test_an_earlier_cluster_is_replaced_unless_it_was_edited(
    tmp_path: Path, refuse: Refuse, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lab.toml"
    for preset, gpus in (("tiresias-60", 16), ("pollux-64", 64)):
        assert main(["cluster", "convert", preset, "--out", str(path)]) == 0
        assert gl.Cluster.from_toml(path).gpus_total == gpus
    path.write_text(path.read_text().replace("count = 16", "count = 8"))
    assert gl.Cluster.from_toml(path).gpus_total == 32
    capsys.readouterr()
    words = ("lab.toml", "not an unchanged cluster")
    refuse("cluster", "convert", "pai", "--out", "lab.toml", words=words)
    assert gl.Cluster.from_toml(path).gpus_total == 32


def result() -> gl.Result:
    return gl.simulate(gl.Cluster.homogeneous(servers=1, gpus=4), gl.synth.philly(jobs=3), "fifo")


@pytest.mark.parametrize("before", ["nothing", "a result", "an empty folder"])
def test_a_result_saved_through_a_link_leaves_the_link(before: str, tmp_path: Path) -> None:
    far, link = tmp_path / "disk" / "far", tmp_path / "link"
    far.parent.mkdir()
    if before == "a result":
        result().save(far)
    elif before == "an empty folder":
        far.mkdir()
    link.symlink_to(far)
    saved = result()
    saved.save(link)
    assert link.is_symlink()
    assert gl.load_result(far).log_hash == saved.log_hash
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link"]
    assert list(far.parent.iterdir()) == [far]


def test_what_others_put_beside_a_result_stays_when_it_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "r"
    result().save(place)
    (place / "notes.txt").write_text("mine")
    (place / "plots").mkdir()
    (place / "plots" / "a.svg").write_text("drawn")
    (place / "latest").symlink_to("plots")
    (place / "report.html").write_text("mine")
    place.chmod(0o700)
    saved = result()
    saved.save(place)
    assert (place / "notes.txt").read_text() == "mine"
    assert (place / "plots" / "a.svg").read_text() == "drawn"
    assert (place / "latest").readlink() == Path("plots")
    assert (place / "report.html").read_text() == "mine"
    assert place.stat().st_mode & 0o777 == 0o700
    assert gl.load_result(place).log_hash == saved.log_hash
    assert list(tmp_path.iterdir()) == [place]


def test_what_goes_with_a_run_goes_when_it_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "r"
    lab, trace = gl.Cluster.homogeneous(servers=1, gpus=4), gl.synth.philly(jobs=3)
    gl.simulate(lab, trace, "fifo", segments=True).save(place)
    gl.report.write(place, place / "report.html")
    assert (place / "segments.parquet").exists()
    result().save(place)
    assert sorted(path.name for path in place.iterdir()) == [
        "jobs.parquet", "spec.json", "summary.json", "timeline.parquet"
    ]  # fmt: skip


FOREIGN = {
    "a spec of something else": {"spec.json": '{"openapi": "3.0"}', "thesis.tex": "mine"},
    "a spec with our keys": {"spec.json": '{"format": 2, "files": {}, "gangline": "0.1.0"}'},
    "no JSON": {"spec.json": "mine"},
    "tables alone": {"jobs.parquet": "PAR1 mine PAR1"},
    "a spec in a folder": {"spec.json/thesis.tex": "mine"},
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_folder_of_somebody_else_is_left_alone(
    case: str, tmp_path: Path, refuse: Refuse, snapshot: Snapshot
) -> None:
    for name, text in FOREIGN[case].items():
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text(text)
    (tmp_path / "t.csv").write_text(GOOD)
    refuse(*run_on("t.csv"), words=("out", "not a result", "choose another folder"))
    with refused(FileExistsError, snapshot):
        result().save(tmp_path / "out")
    for name, text in FOREIGN[case].items():
        assert (tmp_path / "out" / name).read_text() == text


@pytest.mark.parametrize(
    "name", ["spec.json", "summary.json", "jobs.parquet", "timeline.parquet", "segments.parquet"]
)
def test_a_result_that_was_edited_is_left_alone(name: str, tmp_path: Path, refuse: Refuse) -> None:
    place = tmp_path / "out"
    result().save(place)
    with (place / name).open("ab") as file:  # there was no table of segments before
        file.write(b" ")
    edited = (place / name).read_bytes()
    (tmp_path / "t.csv").write_text(GOOD)
    refuse(*run_on("t.csv"), words=("out", "result" if name == "spec.json" else name))
    assert (place / name).read_bytes() == edited


def test_out_is_checked_before_the_run(tmp_path: Path, refuse: Refuse) -> None:
    # The trace does not exist, and reading it first would give another message.
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full" / "fifo-s0").mkdir(parents=True)
    (tmp_path / "full" / "fifo-s0" / "thesis.tex").write_text("mine")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "comparison.json").write_text('{"runs": []}')
    (tmp_path / "loop").symlink_to("loop")
    on = ["--trace", "none.csv", "--cluster", "pollux-64"]
    for out, words in (("full", "not a result"), ("file", "Not a directory"), ("loop", "links")):
        refuse("run", *on, "--policy", "fifo", "--out", out, words=(out, words))
    for out, words in (
        ("full", "not a result"), ("file", "Not a directory"), ("c", "not an unchanged comparison"),
        ("loop", "links"),
    ):  # fmt: skip
        refuse("compare", *on, "--policies", "sjf,fifo", "--out", out, words=(out, words))
    assert (tmp_path / "c" / "comparison.json").read_text() == '{"runs": []}'


def test_a_reproduction_leaves_files_of_others_alone(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "reproduction.json").write_text("mine")
    refuse("reproduce", "dally", "--quick", "--out", "out", words=("reproduction.json",))
    assert (tmp_path / "out" / "reproduction.json").read_text() == "mine"


SWEEP = """name = "s"
[grid]
trace = ["synth:philly?jobs=10&seed=1&max_gpus=8"]
cluster = ["pollux-64"]
policy = ["fifo"]
"""
ON = ["--trace", "synth:philly?jobs=10&seed=1&max_gpus=8", "--cluster", "pollux-64"]
PLAN = ["plan", *ON, "--policy", "fifo", "--keep", "queue_p95_s<=1e9", "--workers", "1"]
WRITERS = {
    "sweep": (["sweep", "s.toml", "--out", "out"], ("table.csv", "table.parquet", "failed.json")),
    "plan": ([*PLAN, "--out", "out"], ("plan.json", "table.csv", "table.parquet", "failed.json")),
    "bench": (
        ["bench", "--quick", "--policy", "fifo", "--out", "out"],
        ("bench.json", "bench.csv", "bench.parquet", "bench.html", "table.csv", "failed.json"),
    ),
    "compare": (["compare", *ON, "--policies", "fifo", "--out", "out"], ("comparison.json",)),
    "reproduce": (["reproduce", "dally", "--quick", "--out", "out"], ("reproduction.json",)),
}
TARGETS = [(name, file) for name, (_, files) in WRITERS.items() for file in files]


@pytest.mark.parametrize(("command", "name"), TARGETS)
def test_commands_refuse_before_the_first_run_to_replace_a_file_of_the_user(
    command: str, name: str, tmp_path: Path, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def simulated(*_: object, **__: object) -> None:
        raise AssertionError("a run began")

    monkeypatch.setattr("gangline.runs.execution.Worlds.run", simulated)
    (tmp_path / "s.toml").write_text(SWEEP)
    (tmp_path / "out").mkdir()
    place = tmp_path / "out" / name
    for mine in (b"my own measurements", b"{}", b"[]", b"gangline plan " + b"0" * 64):
        place.write_bytes(mine)
        refuse(*WRITERS[command][0], words=(name, "exists and is not"))
        assert place.read_bytes() == mine
    place.unlink()
    place.mkdir()
    refuse(*WRITERS[command][0], words=(name,))


def test_a_list_of_files_of_somebody_else_is_left_alone(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "s.toml").write_text(SWEEP)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "files.json").write_text('{"files": {}}')
    refuse("sweep", "s.toml", "--out", "out", words=("files.json", "list of files"))


def test_earlier_tables_of_a_sweep_are_replaced_unless_they_were_edited(
    tmp_path: Path, refuse: Refuse, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.toml").write_text(SWEEP)
    out = tmp_path / "out"
    names = ("table.csv", "table.parquet", "failed.json")
    (tmp_path / "far").mkdir()
    for seed in range(3):  # a new seed gives another table
        grid = SWEEP.replace("seed=1", f"seed={seed}")
        (tmp_path / "s.toml").write_text(grid)
        assert main(["sweep", "s.toml", "--out", "out"]) == 0
        assert f"seed={seed}" in (out / "table.csv").read_text()
        if seed == 0:  # a link to a moved file is followed
            (out / "table.csv").rename(tmp_path / "far" / "t")
            (out / "table.csv").symlink_to(tmp_path / "far" / "t")
    assert (out / "table.csv").is_symlink()
    assert "seed=2" in (tmp_path / "far" / "t").read_text()
    assert sorted(path.name for path in out.iterdir()) == sorted([*names, "files.json", "runs"])
    capsys.readouterr()
    for name in names:
        kept = (out / name).read_bytes()
        (out / name).write_bytes(kept + b" ")
        refuse("sweep", "s.toml", "--out", "out", words=(name, "unchanged file of gangline"))
        assert (out / name).read_bytes() == kept + b" "
        (out / name).write_bytes(kept)
    assert main(["sweep", "s.toml", "--out", "out"]) == 0


@pytest.mark.parametrize("dies_at", range(1, 5))
def test_tables_of_a_sweep_that_was_killed_are_replaced(
    dies_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def table(seed: int) -> pa.Table:
        grid = SWEEP.replace("seed=1", f"seed={seed}")
        (tmp_path / "s.toml").write_text(grid)
        return gl.sweep(tmp_path / "s.toml", out=tmp_path / "out", workers=1).table

    table(1)
    left, real = [dies_at], os.replace

    def dying(*arguments: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr("os.replace", dying)
    with pytest.raises(KeyboardInterrupt):
        table(2)
    monkeypatch.undo()
    assert "seed=3" in table(3)["trace"][0].as_py()


def test_a_changed_table_of_a_sweep_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SWEEP)
    done = gl.sweep(tmp_path / "s.toml", out=tmp_path / "out", workers=1)
    whole = done.table
    draw = random.Random(28)
    for name in ("table.parquet", "files.json"):
        content = (tmp_path / "out" / name).read_bytes()
        for _ in range(int(os.environ.get("GANGLINE_DAMAGES", "60"))):
            at = draw.randrange(len(content))
            other = content[at] ^ draw.randrange(1, 256)
            path = tmp_path / "out" / name
            path.write_bytes(content[:at] + bytes([other]) + content[at + 1 :])
            with pytest.raises(gl.ResultError):
                _ = done.table
        path.write_bytes(content)
    assert done.table.equals(whole)


@pytest.mark.parametrize("suffix", ["pdf", "png", "svg"])
def test_an_earlier_figure_is_replaced_and_any_other_file_stays(
    suffix: str, tmp_path: Path, refuse: Refuse, snapshot: Snapshot
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"a.{suffix}"
    for policies in (["fifo"], ["fifo", "sjf"]):
        figure = gl.compare("pollux-64", gl.synth.philly(jobs=9, max_gpus=8), policies).plot
        gl.plot.save(figure.cdf("jct_s"), path)
    path.write_bytes(path.read_bytes() + b" ")
    mine = path.read_bytes()
    with refused(FileExistsError, snapshot):
        gl.plot.save(figure.cdf("jct_s"), path)
    refuse(*PLAN, "--figure", path.name, words=(path.name, "figure"))
    assert path.read_bytes() == mine


def test_a_comparison_is_replaced(tmp_path: Path, snapshot: Snapshot) -> None:
    lab, trace = gl.Cluster.homogeneous(servers=1, gpus=4), gl.synth.philly(jobs=3)
    for _ in range(2):
        gl.compare(lab, trace, ["fifo", "sjf"]).save(tmp_path / "c")
    assert [run.policy for run in gl.report.load_runs(tmp_path / "c")] == ["fifo", "sjf"]
    (tmp_path / "c" / "comparison.json").write_text("mine")
    with refused(FileExistsError, snapshot):
        gl.compare(lab, trace, ["fifo"]).save(tmp_path / "c")
    assert (tmp_path / "c" / "comparison.json").read_text() == "mine"
