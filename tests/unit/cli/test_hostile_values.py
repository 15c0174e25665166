"""Tests hostile values: too deep, too large, too long, half a character, turned text."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
from gangline.cli.app import main
from gangline.runs.store import Store
from refusals import refused
from unit.cli.refusals import Refuse, refuse

if TYPE_CHECKING:
    from snapshots import Snapshot

__all__ = ["refuse"]

TRACE = "synth:philly?jobs=10&seed=1&max_gpus=4"
LAB = '[[gpu_types]]\nname = "V"\nmemory_gb = 16\n[[servers]]\ncount = 2\ngpu = "V"\ngpus = 4\n'


@pytest.mark.parametrize("text", ["[" * 200_000 + "]" * 200_000, '{"a":' * 5000 + "1" + "}" * 5000])
def test_a_deep_spec_is_one_line(text: str, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "deep.json").write_text(text)
    refuse("run", "deep.json", words=("deep.json", "expected JSON, as in the spec.json"))


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else ()
    return [at, *(path for key, item in inside for path in paths(item, (*at, key)))]


def test_half_a_character_anywhere_in_a_spec_is_a_typed_error(tmp_path: Path) -> None:
    spec = gl.RunSpec.make("pollux-64", TRACE, "dally").to_dict()
    for path in paths(spec)[1:]:
        for bad in ("\ud800", {"\ud800": 1}):
            given = json.loads(json.dumps(spec))
            place = given
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = bad
            (tmp_path / "spec.json").write_text(json.dumps(given))
            with pytest.raises((gl.GanglineError, OSError)):
                gl.run(tmp_path / "spec.json")


def test_deep_and_broken_values_in_python_are_typed_errors(snapshot: Snapshot) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    grid = {"trace": [TRACE], "cluster": ["pollux-64"], "policy": ["fifo"]}
    for bad in (deep, ["\ud800"]):
        with refused(gl.GanglineError, field="sweep"):
            gl.sweep({"grid": {**grid, "policy": bad}})
        with refused(gl.ClusterError, snapshot):
            gl.Cluster.from_dict({"gpu_types": bad, "servers": []})


HUGE = {
    "throughput.rows[0].gpus": (
        '[throughput]\nrows=[{gpu_type="V",model="m",gpus=%s,iters_per_s=1.0}]\n'
    ),
    "throughput.rows[0].batch_size": (
        '[throughput]\nmissing="nearest"\n'
        'rows=[{gpu_type="V",model="m",gpus=1,iters_per_s=1.0,batch_size=%s}]\n'
    ),
    "elastic.models.m.max_batch": (
        "[elastic.models.m]\na_c=0.01\nb_c=0.001\na_n=0.1\nb_n=0.001\na_r=0.1\nb_r=0.001\n"
        "gamma=2.0\ninit_batch=32\nmax_batch=%s\nmin_pass_batch=8\nmax_pass_batch=64\n"
    ),
    "failures.table[0].server": "[failures]\ntable=[{server=%s,down_s=1.0,up_s=100.0}]\n",
}


@pytest.mark.parametrize("key", HUGE)
def test_a_number_near_the_end_of_64_bits_is_refused_by_its_key(key: str, tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    for number in (2**31, 2**32, 2**63 - 1):
        path.write_text(LAB + HUGE[key].replace("%s", str(number)))
        with refused(gl.ClusterError, key=key, value=number):
            gl.Cluster.from_toml(path)


def world(name: str) -> tuple[gl.Cluster, gl.Trace]:
    table = {
        "job_id": [f"{name}{i}" for i in range(6)], "user": [name] * 6, "model": [name] * 6,
        "arrival_s": [float(i) for i in range(6)], "gpus": [1, 2, 4, 4, 2, 1],
        "duration_s": [50.0] * 6,
    }  # fmt: skip
    kinds = [{"name": name, "memory_gb": 16}]
    servers = [{"count": 1, "gpu": name, "gpus": 4}]
    lab = gl.Cluster.from_dict({"name": name, "gpu_types": kinds, "servers": servers})
    return lab, gl.Trace.from_arrow(pa.table(table))


def test_text_that_turns_the_writing_is_escaped_on_a_page(tmp_path: Path) -> None:
    turns = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
    lab, trace = world(f"a{turns}b")
    runs = gl.compare(lab, trace, ["fifo", "las"], segments=True)
    for source in (runs, runs.results[0]):
        page = gl.report.write(source, tmp_path / "page.html").read_text("utf-8")
        assert not set(turns) & set(page)
        assert "\\u202e" in page
    for shown in (lab._repr_html_(), trace._repr_html_(), runs._repr_html_(), lab.to_toml()):
        assert not set(turns) & set(shown)
    (tmp_path / "lab.toml").write_text(lab.to_toml())
    assert gl.Cluster.from_toml(tmp_path / "lab.toml") == lab


def test_names_of_a_megabyte_are_shortened_on_a_page_and_kept_in_data(tmp_path: Path) -> None:
    name = "j" * 1_000_000
    lab, trace = world(name)
    result = gl.simulate(lab, trace, "fifo", segments=True)
    page = gl.report.write(result, tmp_path / "page.html").read_text("utf-8")
    assert len(page) < 500_000
    assert len(lab._repr_html_()) < 50_000
    assert result.jobs["job_id"][0].as_py() == f"{name}0"


TURNED = "n\u202e" + "j" * 300_000


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--policy", "las", "--segments", "--html", "page.html"],
        ["compare", "--policies", "fifo,las", "--html", "page.html"],
        ["plan", "--policy", "fifo", "--keep", "jct_mean_s<=1e6", "--html", "page.html"],
        ["plan", "--policy", "fifo,las", "--keep", "jct_mean_s<=1e6", "--html", "page.html"],
    ],
    ids=lambda command: "-".join(command[:3:2]),
)
def test_a_command_shows_the_beginning_of_a_long_name(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    lab, trace = world(TURNED)
    Path("lab.toml").write_text(lab.to_toml())
    gl.write_trace(trace, "jobs.parquet")
    assert main([*command, "--trace", "jobs.parquet", "--cluster", "lab.toml"]) in (0, 3)
    shown, page = capsys.readouterr(), Path("page.html").read_text("utf-8")
    assert len(page) < 200_000
    assert len(shown.out) + len(shown.err) < 20_000
    assert "\u202e" not in page + shown.out + shown.err
    assert "\\u202ejjjj" in page


ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EIO)


@pytest.mark.parametrize("code", ERRORS)
@pytest.mark.parametrize("call", ["open", "stat"])
def test_a_result_that_cannot_be_read_now_is_not_damaged(
    code: int, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"trace": [TRACE], "cluster": ["pollux-64"], "policy": ["fifo"]}
    done = gl.sweep({"grid": grid}, out=tmp_path, workers=1)
    (digest,) = [run["digest"] for run in done.runs]
    store = Store(tmp_path)
    real = getattr(Path, call)

    def refused(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name in ("spec.json", "jobs.parquet", "summary.json"):
            raise OSError(code, "not now", str(path))
        return real(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, call, refused)
        with pytest.raises(OSError, match="not now"):
            store.has(digest)
    assert store.has(digest)


def test_something_else_in_the_place_of_a_result_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.toml").write_text(
        f'[grid]\ntrace = ["{TRACE}"]\ncluster = ["pollux-64"]\npolicy = ["fifo"]\n'
    )
    command = ["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "o"), "--workers", "1"]
    assert main(command) == 0
    (place,) = (tmp_path / "o" / "runs").iterdir()
    for name in ("spec.json", "jobs.parquet"):
        for kind in ("folder", "loop", "gone"):
            (place / name).unlink()
            if kind == "folder":
                (place / name).mkdir()
            elif kind == "loop":
                (place / name).symlink_to(name)
            assert main(command) == 0
            gl.load_result(place).check()
    capsys.readouterr()
