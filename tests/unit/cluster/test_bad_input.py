"""Tests bad clusters, flags, tables and output paths through the command line, one test each.

Each must give the right exit code, an empty stdout, a message of at most a few lines that names the
file or flag and its fault, no traceback, and no new file.
"""

from __future__ import annotations

import gzip
import io
import json
import resource
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gangline as gl
from refusals import refused
from samples import tables
from unit.cli.refusals import GOOD, Refuse, check_refusal, refuse, run_on

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

__all__ = ["refuse"]  # this is a fixture

LAB = """\
name = "lab"
[[gpu_types]]
name = "A"
memory_gb = 16
[[servers]]
count = 2
gpu = "A"
gpus = 8
rack = 0
"""


def parquet() -> bytes:
    columns = {"job_id": [f"j{i}" for i in range(100)], "finish_s": [float(i) for i in range(100)]}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


LONG = "job_id,finish_s\n" + "".join(f"j{i},{i}\n" for i in range(5000))


CLUSTERS = {
    "no TOML": ("name = [", "toml"),
    "empty": ("", "gpu_types"),
    "unknown key": (LAB + "colour = 1\n", "colour"),
    "unknown table": (LAB + "[networkk]\n", "networkk"),
    "wrong type": (LAB.replace("count = 2", 'count = "two"'), "servers[0].count"),
    "a list for a table": (LAB + "[failures]\ntable = 3\n", "failures.table"),
    "unknown GPU type": (LAB.replace('gpu = "A"', 'gpu = "B"'), "servers[0].gpu"),
    "no GPUs per server": (LAB.replace("gpus = 8", "gpus = 0"), "servers[0].gpus"),
    "65 GPUs per server": (LAB.replace("gpus = 8", "gpus = 65"), "servers[0].gpus"),
    "no servers": (LAB.replace("count = 2", "count = 0"), "servers[0].count"),
    "negative servers": (LAB.replace("count = 2", "count = -2"), "servers[0].count"),
    "too many servers": (LAB.replace("count = 2", "count = 2000000000000"), "servers"),
    "no memory": (LAB.replace("memory_gb = 16", "memory_gb = 0"), "memory_gb"),
    "nan memory": (LAB.replace("memory_gb = 16", "memory_gb = nan"), "memory_gb"),
    "infinite memory": (LAB.replace("memory_gb = 16", "memory_gb = inf"), "memory_gb"),
    "enormous memory": (LAB.replace("memory_gb = 16", "memory_gb = 1e300"), "memory_gb"),
    "bad rack": (LAB.replace("rack = 0", 'rack = "fill"'), "rack"),
    "enormous rack": (LAB.replace("rack = 0", "rack = 99999999999999"), "rack"),
    "failure of no server": (
        LAB + "[failures]\ntable = [{ server = 9, down_s = 1.0 }]\n", "failures.table"),
    "repair before failure": (
        LAB + "[failures]\ntable = [{ server = 0, down_s = 9.0, up_s = 1.0 }]\n", "failures.table"),
    "half of a failure rate": (LAB + "[failures]\nmtbf_hours = 4\n", "failures"),
    "nan failure rate": (LAB + "[failures]\nmtbf_hours = nan\nmttr_hours = 1\n", "mtbf_hours"),
    "absent rate table": (LAB + '[throughput]\ntable = "none.csv"\n', "none.csv"),
    "deep keys": (".".join("k" * 20_000) + " = 1\n" + LAB, "nested more than 50 levels"),
    "deep quoted keys": (". ".join(["'k'"] * 51) + " = 1\n" + LAB, "nested more than 50 levels"),
    "deep tables": (LAB + "[" + ".".join("k" * 100) + "]\n", "nested more than 50 levels"),
    "deep lists": ("x = " + "[" * 60 + "]" * 60 + "\n" + LAB, "nested more than 50 levels"),
    "thousands of digits": (LAB.replace("count = 2", "count = " + "9" * 5000), "too many digits"),
    "bad sharing": (LAB + "[sharing]\nxi = 0.5\n", "sharing.xi"),
}  # fmt: skip


@pytest.mark.parametrize("case", CLUSTERS)
def test_bad_cluster(case: str, tmp_path: Path, refuse: Refuse) -> None:
    text, words = CLUSTERS[case]
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "bad.toml").write_text(text)
    refuse(*run_on("t.csv", "bad.toml"), words=("bad.toml", words))
    refuse("cluster", "validate", "bad.toml", words=("bad.toml", words))


def test_keys_of_many_parts_are_refused_before_they_cost_time(
    tmp_path: Path, snapshot: Snapshot
) -> None:
    # the standard library takes a minute and gigabytes for them
    rows = "".join(f"[{'.'.join('k' * 3000)}.b{row}]\nx = 1\n" for row in range(300))
    (tmp_path / "deep.toml").write_text(rows)
    begin = time.process_time()
    with refused(gl.ClusterError, snapshot):
        gl.Cluster.from_toml(tmp_path / "deep.toml")
    assert time.process_time() - begin < 5.0


@pytest.mark.parametrize("value", ["[" * 3000, "9" * 5000])
def test_a_setting_that_no_toml_reader_takes_is_text(
    value: str, tmp_path: Path, refuse: Refuse
) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    run = [*run_on("t.csv"), "--set", f"placement={value}"]
    refuse(*run, words=("placement",))
    refuse("trace", "synth", "philly", "--set", f"jobs={value}", "--out", "t.csv", words=("jobs",))


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", bytes(1000), b"name = 'x\0y'\n", b"a = " + b"[" * 5000]
)
def test_a_cluster_of_bad_bytes(data: bytes, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "bad.toml").write_bytes(data)
    refuse("cluster", "show", "bad.toml", words=("bad.toml",))


@pytest.mark.parametrize("name", ["none.toml", "folder.toml", "venice", ""])
def test_a_cluster_that_is_not_there(name: str, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "folder.toml").mkdir()
    refuse("cluster", "show", name, words=(name,))


RATES = {
    "truncated": parquet()[:200],
    "corrupt": b"gpu_type,model,gpus,iters_per_s\nA,m,one,fast\n",
    "negative": b"gpu_type,model,gpus,iters_per_s\nA,m,1,-5\n",
    "nan": b"gpu_type,model,gpus,iters_per_s\nA,m,1,nan\n",
    "infinite": b"gpu_type,model,gpus,iters_per_s\nA,m,1,inf\n",
    "of another cluster": b"gpu_type,model,gpus,iters_per_s\nZ,m,1,5\n",
    "without columns": b"x,y\n1,2\n",
    "empty": b"",
    "bad UTF-8": b"gpu_type,model,gpus,iters_per_s\nA,\xff\xfe,1,5\n",
}


@pytest.mark.parametrize("case", RATES)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_bad_rate_table(case: str, suffix: str, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / f"rates.{suffix}").write_bytes(RATES[case])
    (tmp_path / "lab.toml").write_text(LAB + f'[throughput]\ntable = "rates.{suffix}"\n')
    refuse("cluster", "show", "lab.toml", words=("rates.",))


GAVEL_TABLES = {
    "truncated": tables.gavel()[:150],
    "bad UTF-8": tables.gavel().replace(b"net", b"n\xb8t"),
    "too deep": b"{" + b'"a":[' * 100_000,
    "a list": b"[1, 2]",
    "a key that is no pair": tables.gavel().replace(b", 2)", b")"),
    "a negative rate": tables.gavel().replace(b"6.0", b"-6.0"),
    "an infinite rate": tables.gavel().replace(b"6.0", b"1e999"),
    "a rate of words": tables.gavel().replace(b"6.0", b'"fast"'),
    "a pair of three": tables.gavel().replace(b"2.0,", b"2.0, 1.0,"),
    "empty": b"",
}


@pytest.mark.parametrize("case", GAVEL_TABLES)
def test_bad_gavel_table(case: str, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "rates.json").write_bytes(GAVEL_TABLES[case])
    (tmp_path / "lab.toml").write_text(
        LAB + '[throughput]\ntable = "rates.json"\nformat = "gavel"\n'
    )
    refuse("cluster", "show", "lab.toml", words=("rates.json",))


PLAIN = tables.parquet(tables.RATES)


@pytest.mark.parametrize(
    "data",
    [PLAIN.replace(b"V100", b"V\xff00"), PLAIN.replace(b"placement", b"pl\xffcement")],
    ids=["a cell", "a name"],
)
def test_parquet_that_is_no_text(data: bytes, tmp_path: Path, refuse: Refuse) -> None:
    assert data != PLAIN
    (tmp_path / "rates.parquet").write_bytes(data)
    (tmp_path / "lab.toml").write_text(LAB + '[throughput]\ntable = "rates.parquet"\n')
    refuse("cluster", "show", "lab.toml", words=("rates.parquet",))


FLAGS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "unknown policy": (["--policy", "fifoo"], ("fifoo", "fifo")),
    "empty policy": (["--policy", ""], ("policy",)),
    "unknown parameter": (["--policy", "las", "--set", "limts=[1]"], ("limts", "limits")),
    "word for a number": (["--policy", "las", "--set", "limits=high"], ("limits",)),
    "nan parameter": (["--policy", "las", "--set", "limits=[nan]"], ("limits",)),
    "infinite parameter": (["--policy", "las", "--set", "limits=[inf]"], ("limits",)),
    "negative parameter": (["--policy", "las", "--set", "limits=[-1]"], ("limits",)),
    "no value": (["--policy", "las", "--set", "limits"], ("limits",)),
    "no key": (["--policy", "las", "--set", "=3"], ("=3",)),
    "unknown placement": (["--policy", "fifo", "--set", "placement=moon"], ("moon",)),
    "unknown sharing key": (["--policy", "fifo", "--set", "sharing.zi=2"], ("zi",)),
    "bad sharing value": (["--policy", "fifo", "--set", "sharing.xi=0"], ("xi",)),
    "seed of words": (["--policy", "fifo", "--seed", "lucky"], ("seed",)),
    "fraction of a seed": (["--policy", "fifo", "--seed", "1.5"], ("--seed", "1.5")),
    "fraction of a limit": (["--policy", "fifo", "--limit", "2.7"], ("--limit", "2.7")),
    "negative seed": (["--policy", "fifo", "--seed", "-1"], ("seed",)),
    "enormous seed": (["--policy", "fifo", "--seed", "18446744073709551616"], ("seed",)),
    "negative overhead": (["--policy", "fifo", "--restart-s", "-1"], ("restart",)),
    "nan overhead": (["--policy", "fifo", "--restart-s", "nan"], ("restart",)),
    "infinite overhead": (["--policy", "fifo", "--first-start-s", "inf"], ("first-start",)),
    "enormous overhead": (["--policy", "fifo", "--restart-s", "1e300"], ("restart",)),
    "unknown flag": (["--policy", "fifo", "--sead", "1"], ("--sead",)),
    "unknown choice": (["--policy", "fifo", "--on-infeasible", "skip"], ("infeasible",)),
    "unknown format": (["--policy", "fifo", "--format", "excel"], ("excel",)),
    "bad window": (["--policy", "fifo", "--window", "9,1"], ("window",)),
    "bad status": (["--policy", "fifo", "--status", "happy"], ("happy",)),
}


@pytest.mark.parametrize("case", FLAGS)
def test_bad_flag(case: str, tmp_path: Path, refuse: Refuse) -> None:
    flags, words = FLAGS[case]
    (tmp_path / "t.csv").write_text(GOOD)
    given = ["run", "--trace", "t.csv", "--cluster", "pollux-64", "--out", "out", *flags]
    refuse(*given, words=words)


COMPARISONS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "no policies": (["--policies", ","], ("policies",)),
    "one unknown policy": (["--policies", "fifo,fifoo"], ("fifoo",)),
    "bad seeds": (["--policies", "fifo", "--seeds", "1,x"], ("seeds",)),
    "negative seeds": (["--policies", "fifo", "--seeds", "-4"], ("seed",)),
    "setting of another": (["--policies", "fifo", "--set", "las.limits=[1]"], ("las.limits",)),
    "a page in no folder": (["--policies", "fifo", "--html", "t.csv/page.html"], ("t.csv",)),
    "a page that is a folder": (["--policies", "fifo", "--html", "."], (".",)),
}


@pytest.mark.parametrize("case", COMPARISONS)
def test_bad_comparison(case: str, tmp_path: Path, refuse: Refuse) -> None:
    flags, words = COMPARISONS[case]
    (tmp_path / "t.csv").write_text(GOOD)
    refuse("compare", "--trace", "t.csv", "--cluster", "pollux-64", *flags, words=words)


SYNTHS: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown shape": ("synth:phily?jobs=3", ("philly",)),
    "no shape": ("synth:", ("synth",)),
    "unknown parameter": ("synth:philly?job=3", ("job",)),
    "negative jobs": ("synth:philly?jobs=-3", ("jobs",)),
    "too many jobs": ("synth:philly?jobs=99999999999999", ("jobs",)),
    "nan rate": ("synth:philly?jobs=3&rate_per_h=nan", ("rate_per_h",)),
    "no rate": ("synth:philly?jobs=3&rate_per_h=0", ("rate_per_h",)),
    "seed of words": ("synth:philly?jobs=3&seed=x", ("seed",)),
    "no value": ("synth:philly?jobs", ("jobs",)),
    "a key twice": ("synth:philly?jobs=3&jobs=4", ("jobs", "duplicate")),
}


@pytest.mark.parametrize("case", SYNTHS)
def test_bad_generator(case: str, refuse: Refuse) -> None:
    address, words = SYNTHS[case]
    refuse(*run_on(address), words=words)
    refuse("trace", "info", address, words=words)


AUDITS: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "truncated Parquet": ("t.parquet", parquet()[:500], ("t.parquet",)),
    "truncated gz": ("t.csv.gz", gzip.compress(LONG.encode(), mtime=0)[:900], ("t.csv.gz",)),
    "empty": ("t.csv", b"", ("t.csv",)),
    "other columns": ("t.csv", b"x,y\n1,2\n", ("job_id",)),
    "no times": ("t.csv", b"job_id,gpus\n1,2\n", ("finish_s",)),
    "words": ("t.csv", b"job_id,finish_s\na,late\n", ("finish_s", "late")),
    "ragged": ("t.csv", b"job_id,finish_s\na,1\nb\n", ("t.csv",)),
    "bad UTF-8": ("t.csv", b"job_id,finish_s\n\xff\xfe,1\n", ("t.csv",)),
    "bad UTF-8 header": ("t.csv", b"job_id,\xff\na,1\n", ("t.csv",)),
    "NUL bytes": ("t.csv", bytes(100), ("t.csv",)),
    "column twice": ("t.csv", b"job_id,finish_s,finish_s\na,1,2\n", ("finish_s",)),
}


@pytest.mark.parametrize("case", AUDITS)
def test_bad_table_to_audit(case: str, tmp_path: Path, refuse: Refuse) -> None:
    name, data, words = AUDITS[case]
    (tmp_path / name).write_bytes(data)
    refuse("audit", name, "--cluster", "pollux-64", words=words)


@pytest.mark.parametrize("name", ["none.parquet", "folder"])
def test_no_table_to_audit(name: str, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "folder").mkdir()
    refuse("audit", name, "--cluster", "pollux-64", words=(name,))


def test_out_is_a_file(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "out").write_text("mine")
    refuse(*run_on("t.csv"), words=("out",))
    assert (tmp_path / "out").read_text() == "mine"


def test_out_is_a_folder_with_something_else(tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    refuse(*run_on("t.csv"), words=("out", "not a result"))
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("place", ["t.csv/out", "/proc/gangline/out"])
def test_out_where_nothing_can_be_written(place: str, tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    arguments = [*run_on("t.csv")[:-1], place]
    refuse(*arguments, words=(place.split("/")[-2],))


@pytest.mark.parametrize("command", ["run", "compare", "page", "trace", "cluster"])
def test_no_permission_to_write(command: str, tmp_path: Path, refuse: Refuse) -> None:
    # Nobody may create a file in /sys, not even root.
    (tmp_path / "t.csv").write_text(GOOD)
    common = ["--trace", "t.csv", "--cluster", "pollux-64"]
    commands = {
        "run": [*run_on("t.csv")[:-1], "/sys/out"],
        "compare": ["compare", *common, "--policies", "fifo,las", "--out", "/sys/out"],
        "page": ["compare", *common, "--policies", "fifo", "--html", "/sys/page.html"],
        "trace": ["trace", "convert", "t.csv", "/sys/t.swf"],
        "cluster": ["cluster", "convert", "pollux-64", "--out", "/sys/lab.toml"],
    }
    refuse(*commands[command], words=("/sys/", "choose another path"))


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("place", ["t.csv/t", "/proc/t"])
def test_a_trace_where_nothing_can_be_written(
    suffix: str, place: str, tmp_path: Path, refuse: Refuse
) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    out = f"{place}.{suffix}"
    words = (place.partition("/t")[0] or "/proc/t",)
    refuse("trace", "synth", "philly", "--jobs", "5", "-o", out, words=words)


def test_a_trace_of_no_known_suffix(refuse: Refuse) -> None:
    refuse("trace", "synth", "philly", "--jobs", "5", "-o", "t.xls", words=("t.xls",))


def limited(folder: Path, arguments: list[str], most: int) -> subprocess.CompletedProcess[str]:
    """Run a command that may write only files of this many bytes, as on a full disk."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then a write fails with EFBIG
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    return subprocess.run(
        [sys.executable, "-B", "-m", "gangline", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        preexec_fn=limit,
        check=False,
    )


@pytest.mark.parametrize("command", ["run", "compare", "html", "parquet", "csv", "arrow"])
def test_a_full_disk_leaves_nothing(command: str, tmp_path: Path) -> None:
    trace = "synth:philly?jobs=3000&seed=1&max_gpus=8"
    common = ["--trace", trace, "--cluster", "pollux-64"]
    commands = {
        "run": run_on(trace),
        "compare": ["compare", *common, "--policies", "fifo,las", "--out", "out"],
        "html": ["compare", *common, "--policies", "fifo,las", "--html", "page.html"],
        "parquet": ["trace", "synth", trace, "-o", "t.parquet"],
        "csv": ["trace", "synth", trace, "-o", "t.csv"],
        "arrow": ["trace", "synth", trace, "-o", "t.arrow"],
    }
    done = limited(tmp_path, commands[command], 6000)
    check_refusal(done.returncode, 2, done.stdout, done.stderr)
    assert "too large" in done.stderr.lower() or "no space" in done.stderr.lower(), done.stderr
    assert "free some space" in done.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_full_stdout_is_told(tmp_path: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [sys.executable, "-m", "gangline", "policies", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    assert "no space" in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_a_result_that_is_not_whole(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text("{")
    with refused(gl.GanglineError, path=str(tmp_path / "spec.json")):
        gl.load_result(tmp_path)
    (tmp_path / "spec.json").write_text(json.dumps({"format": 99}))
    (tmp_path / "summary.json").write_text("{}")
    with refused(gl.GanglineError, path=str(tmp_path)):
        gl.load_result(tmp_path)
    with pytest.raises(OSError, match="none"):
        gl.load_result(tmp_path / "none")


def test_out_of_memory_is_one_line(tmp_path: Path) -> None:
    with (tmp_path / "t.csv").open("wb") as file:
        file.write(GOOD.encode())
        file.truncate(3 << 30)  # the sparse file takes no room on disk

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    done = subprocess.run(
        [sys.executable, "-m", "gangline", "trace", "info", "t.csv"],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, preexec_fn=limit, check=False,
    )  # fmt: skip
    check_refusal(done.returncode, 3, done.stdout, done.stderr, "out of memory", "--limit")
