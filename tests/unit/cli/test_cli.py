"""Tests the command line for people and scripts: exit codes, stdout, stderr."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
from commands import document, gangline
from gangline.cli.app import main

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["--trace", "synth:philly?jobs=50&seed=1&max_gpus=8", "--cluster", "pollux-64"]


def test_a_run_starts_without_pandas_and_leaves_it_usable() -> None:
    code = (
        "import sys; from gangline.cli.app import main\n"
        f"assert main(['run', *{SMALL!r}, '--policy', 'fifo', '--json']) == 0\n"
        "assert 'pandas' not in sys.modules, 'loaded pandas'\n"
        "import pyarrow as pa\n"
        "assert pa.table({'a': [1, 2]}).to_pandas()['a'].sum() == 3\n"
        "import pandas as pd\n"
        "assert pa.Table.from_pandas(pd.DataFrame({'a': [1, None]}))['a'].null_count == 1\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from gangline.cli.app import main; main(['--help']); main(['run', '--help']);"
        "heavy = {'numpy', 'pyarrow', 'highspy', 'gangline._core'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for word in (
        "run",
        "compare",
        "policies",
        "cluster",
        "trace",
        "--on-infeasible",
        "--restart-s",
    ):
        assert word in done.stdout


def test_version() -> None:
    assert gangline("--version").stdout == f"gangline {gl.__version__}\n"


def test_run_prints_a_table_and_saves_a_whole_folder(tmp_path: Path) -> None:
    done = gangline("run", *SMALL, "--policy", "srtf", "--out", "out", "--segments", cwd=tmp_path)
    assert done.returncode == 0
    assert "jct_mean_s" in done.stdout
    assert done.stderr.startswith("note: The offered load is 8.22, because much work is done after")
    assert done.stderr.endswith("\nsaved in out\n")
    assert gl.load_result(tmp_path / "out").summary["finished"] == 50
    assert (tmp_path / "out" / "segments.parquet").is_file()


def test_json_is_one_document_with_what_was_asked() -> None:
    data = document(
        "run", *SMALL, "--policy", "las", "--json", "--set", "limits=[200, 1000]",
        "--set", "placement=yarn", "--seed", "7", "--limit", "20", "--restart-s", "3",
        "--checkpoint-interval-s", "600", "--set", "sharing.xi=1.6",
        "--set", "runtime.job_noise=0.0",
    )  # fmt: skip
    assert data["summary"]["jobs"] == 20
    assert data["spec"]["policy"]["params"]["limits"] == [200.0, 1000.0]
    assert data["spec"]["policy"]["params"]["placement"] == "yarn"
    assert data["spec"]["seed"] == 7
    assert data["spec"]["options"]["restart_s"] == 3.0
    assert data["spec"]["options"]["checkpoint_interval_s"] == 600.0
    assert data["spec"]["cluster"]["sharing"] == {"xi": 1.6}
    assert data["spec"]["cluster"]["runtime"] == {"job_noise": 0.0}
    assert data["summary"]["lost_fraction"] == 0.0
    assert data["spec"]["trace"]["notes"] == {"over_limit": 30}


def test_a_run_names_models_of_the_run_time_table_that_no_job_has(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("arrival_s,gpus,duration_s,model\n0,1,9,bert\n")
    (tmp_path / "lab.toml").write_text(
        'gpu_types = [{ name = "A" }]\nservers = [{ count = 1, gpu = "A", gpus = 1 }]\n'
        "[runtime]\n"
        'rows = [{ model = "bert", stop_s = 1.0 }, { model = "brt", stop_s = 2.0 }]\n'
    )
    arguments = ("--trace", "jobs.csv", "--cluster", "lab.toml", "--policy", "fifo")
    done = gangline("run", *arguments, cwd=tmp_path)
    assert done.returncode == 0
    assert "note: `[runtime]` has costs of `brt`, which no job has as its model\n" in done.stderr


def test_compare_prints_saves_and_draws(tmp_path: Path) -> None:
    done = gangline(
        "compare", *SMALL, "--policies", "fifo,las,srtf", "--set", "las.limits=[300]",
        "--seeds", "0,1", "--out", "out", "--html", "page.html", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for label in ("fifo", "las(limits=[300.0])", "srtf"):
        assert label in done.stdout
    assert len([path for path in (tmp_path / "out").iterdir() if path.is_dir()]) == 6
    page = (tmp_path / "page.html").read_text()
    assert "gangline compare --trace" in page


def test_what_compare_says_comes_in_lines() -> None:
    busy = ["--trace", "synth:philly?jobs=300&seed=1&max_gpus=8", *SMALL[2:], "--rescale", "0.01"]
    done = gangline("compare", *busy, "--policies", "fifo,sjf,srtf")
    assert "\\n" not in done.stdout + done.stderr
    assert "*: best value of the column" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 100
    alone = gangline("compare", *SMALL, "--policies", "fifo").stderr
    assert "JCT: from arrival" in alone
    assert "best value" not in alone  # no value is marked


def test_a_history_without_users_is_noted() -> None:
    given = ("--estimates", "exact,user:mean:2")
    words = "note: no column user: under estimates=user:mean:2 all jobs count as jobs of one user"
    assert words in " ".join(
        gangline("compare", *SMALL, "--policies", "sjf", *given).stderr.split()
    )
    assert words not in " ".join(
        gangline("compare", *SMALL, "--policies", "fifo", *given).stderr.split()
    )


def test_compare_states_long_settings_once(tmp_path: Path) -> None:
    given = ("weight_age=1000", "weight_job_size=100", "bf_window_s=172800")
    settings = (part for one in given for part in ("--set", f"slurm.{one}"))
    done = gangline(
        "compare", *SMALL, "--policies", "fifo,slurm", *settings, "--by", "all",
        "--html", "page.html", cwd=tmp_path,
    )  # fmt: skip
    label = "slurm(weight_age=1000, weight_job_size=100, bf_window_s=172800.0)"
    shown = " ".join(done.stdout.split())
    assert f"`slurm` stands for {label}." in shown
    assert shown.count(label) == 1
    assert (tmp_path / "page.html").read_text().count(label) == 1


def test_compare_json_has_every_run() -> None:
    data = document("compare", *SMALL, "--policies", "fifo,sjf", "--json")
    assert [row["policy"] for row in data["runs"]] == ["fifo", "sjf"]


def test_policies_lists_and_explains() -> None:
    names = [entry["name"] for entry in document("policies", "--json")]
    assert names == list(gl.policies.registry)
    listed = gangline("policies")
    assert "toy" not in listed.stdout
    assert "remaining: knows how long each job still runs" in listed.stderr
    one = gangline("policies", "las")
    assert "promote_knob" in one.stdout
    assert "[3250, 7200]" in one.stdout
    assert "widest tier of consolidate: server, rack, network" in " ".join(one.stdout.split())


def test_cluster_show_draws_what_distance_costs(tmp_path: Path) -> None:
    lab = tmp_path / "lab.toml"
    block = {"count": 4, "gpu": "g", "gpus": 4, "rack": "fill:2"}
    keys = {"levels": {"vgg": [1.0, 0.75, 0.5]}}
    types = [{"name": "g", "memory_gb": 16}]
    cluster = gl.Cluster.from_dict({"gpu_types": types, "servers": [block], "network": keys})
    lab.write_text(cluster.to_toml())
    done = gangline("cluster", "show", str(lab))
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["g", "vgg", "rack", "0.7500", "0.7500", "0.7500"] in lines
    assert ["g", "vgg", "network", "0.5000", "0.5000", "0.5000", "0.5000"] in lines


def test_cluster_show_of_many_blocks_shows_the_first(tmp_path: Path) -> None:
    block = "[[servers]]\ncount = 1\ngpu = 'A'\ngpus = 1\n"
    head = "name = 'many'\n[[gpu_types]]\nname = 'A'\nmemory_gb = 16\n"
    lab = tmp_path / "many.toml"
    lab.write_text(head + 3000 * block)
    done = gangline("cluster", "show", str(lab))
    assert "and 2,900 more blocks (--json has all)" in done.stdout
    assert len(done.stdout.splitlines()) < 130
    assert (
        len(json.loads(gangline("cluster", "show", str(lab), "--json").stdout)["servers"]) == 3000
    )


def test_cluster_show_tells_types_and_failures(tmp_path: Path) -> None:
    lab = tmp_path / "lab.toml"
    types = [
        {"name": "P100", "memory_gb": 16},
        {"name": "A100", "memory_gb": 40, "speed": 2.5, "price_per_hour": 3.2},
    ]
    blocks = [{"count": 2, "gpu": name, "gpus": 4} for name in ("P100", "A100")]
    rows = [{"server": at, "down_s": 5.0 + at, "up_s": 9.0 + at} for at in (0, 3)]
    rows.append({"server": 0, "down_s": 20.0})
    shown = []
    for failures in ({"mtbf_hours": 200, "mttr_hours": 3.5}, {"table": rows}, None):
        keys = {} if failures is None else {"failures": failures}
        cluster = gl.Cluster.from_dict({"gpu_types": types, "servers": blocks, **keys})
        lab.write_text(cluster.to_toml())
        done = gangline("cluster", "show", str(lab))
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines()]
        assert ["P100", "16", "1", "0"] in lines
        assert ["A100", "40", "2.5", "3.2"] in lines
        shown += [line for line in done.stdout.splitlines() if line.startswith("failures")]
    assert shown == [
        "failures: a server is up for 200 h and then down for 3.5 h on average",
        "failures: 3 listed, on 2 of the servers",
    ]


@pytest.mark.parametrize(
    ("line", "help_of"),
    [
        ("cluster show", "gangline cluster show"),
        ("run --trace a", "gangline run"),
        ("trace infoo x", "gangline trace"),
        ("nonsense", "gangline"),
        ("compare --trace x --cluster y --policies z --limit abc", "gangline compare"),
    ],
)
def test_wrong_usage_points_to_the_help_of_the_command(line: str, help_of: str) -> None:
    done = gangline(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    listed = "commands" if line in ("trace infoo x", "nonsense") else "options"
    assert done.stderr.endswith(f"({help_of} --help lists the {listed})\n")
    assert ("did you mean `info`?" in done.stderr) == (line == "trace infoo x")


def test_cluster_commands(tmp_path: Path) -> None:
    assert document("cluster", "show", "venus", "--json")["servers"][0]["count"] == 133
    assert "1,064" in gangline("cluster", "presets").stdout
    good = tmp_path / "good.toml"
    good.write_text(gl.Cluster.preset("venus").to_toml())
    assert gangline("cluster", "validate", str(good)).returncode == 0
    bad = tmp_path / "bad.toml"
    bad.write_text(good.read_text().replace("gpus = 8", "gpus = 80"))
    done = gangline("cluster", "validate", str(bad))
    assert done.returncode == 2
    assert "bad.toml: servers[0].gpus: expected an integer <= 64, got 80" in done.stderr


def test_trace_synth_and_info(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    done = gangline("trace", "synth", "philly", "--jobs", "300", "--seed", "4", "-o", path)
    assert done.returncode == 0, done.stderr
    facts = document("trace", "info", path, "--json")
    assert facts["jobs"] == 300
    again = document("trace", "info", "synth:philly?jobs=300&seed=4", "--json")
    assert again["duration_s"] == facts["duration_s"]
    shown = gangline("trace", "info", path).stdout
    for words in ("GPU-hours", "duration", "< 1 h", "█", "arrivals by hour"):
        assert words in shown
    assert "philly-csv" in gangline("trace", "formats").stdout


MISTAKES: list[tuple[list[str], int, str]] = [
    (["run", *SMALL, "--policy", "fifoo"], 2, "mean `fifo`? `gangline policies` lists all\n"),
    (["run", *SMALL, "--policy", "las", "--set", "limits=[2, 1]"], 2, "limits"),
    (["run", *SMALL, "--policy", "zzz"], 2, "unknown policy `zzz`; known: fifo, fifo-skip"),
    (["run", *SMALL[:2], "--policy", "fifo"], 2, "cluster"),
    (["run", *SMALL[:2], "--cluster", "tiresias-60", "--policy", "fifo", "--set",
      "max_level=server"], 3, "job"),
    (["compare", *SMALL, "--policies", ""], 2, "expected names"),
    (["compare", *SMALL, "--policies", "fifo", "--seeds", "0..99999999999"], 2, "at most 10,000"),
    (["plan", *SMALL, "--policy", "fifo", "--keep", "cost<=1", "--trace-seeds", "0..10000"], 2,
     "--trace-seeds: expected at most 10,000 seeds"),
    (["compare", *SMALL, "--policies", "fifo", "--set", "las.limits=[1]"], 2, "not among"),
    (["compare", *SMALL, "--policies", "fifo", "--set", "share.xi=2"], 2, "begin with `sharing.`"),
    (["compare", *SMALL, "--policies", "las(limits=[1])"], 2, "by --set las.KEY=VALUE"),
    (["compare", *SMALL, "--policies", "fifo", "--set", "limits=[1]"], 2, "none of the policies"),
    (["cluster", "show", "venice"], 2, "known:"),
    (["policies", "nope"], 2, "unknown policy"),
    (["plan", *SMALL, "--policy", "fifo", "--keep", "x<=1"], 2, "gangline: --keep: x<=1: exp"),
    (["run", *SMALL, "--policy", "fifo", "--restart-s", "-1"], 2, "gangline: --restart-s: exp"),
    (["run", *SMALL, "--policy", "fifo", "--limit", "0"], 2, "gangline: --limit: exp"),
    (["compare", *SMALL, "--policies", "fifo", "--seed", "1,1"], 2, "gangline: --seed: dupl"),
    (["sweep", "x.toml", "--out", "o", "--address", "a"], 2, "gangline: --address: only for"),
    (["frobnicate"], 2, "frobnicate"),
    (["trace", "info", "pyproject.none"], 2, "pyproject.none"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "words"), MISTAKES)
def test_mistakes_give_one_message_and_a_code(arguments: list[str], code: int, words: str) -> None:
    done = gangline(*arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.startswith("gangline: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_jobs_that_do_not_fit_can_be_dropped() -> None:
    data = document(
        "run", "--trace", "synth:philly?jobs=400&seed=1", "--cluster", "tiresias-60",
        "--policy", "fifo", "--set", "max_level=server", "--on-infeasible", "drop", "--json",
    )  # fmt: skip
    assert data["summary"]["dropped"] > 0
    assert data["summary"]["dropped"] + data["summary"]["finished"] == 400


def test_interrupt_gives_130_and_keeps_what_was_finished(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gangline", "compare", "--trace",
         "synth:uniform?jobs=400000&seed=1&load=0.9&cluster_gpus=512&max_gpus=8", "--cluster",
         _cluster(tmp_path), "--policies", "fifo,las,tiresias,srtf,easy,gittins", "--out",
         str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tmp_path / "out" / "fifo-s0").is_dir() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert time.monotonic() - sent < 5.0
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert gl.load_result(tmp_path / "out" / "fifo-s0").summary["finished"] == 400_000
    assert not (tmp_path / "out" / "gittins-s0").exists()


def _cluster(folder: Path) -> str:
    path = folder / "c.toml"
    path.write_text(gl.Cluster.homogeneous(servers=64, gpus=8).to_toml())
    return str(path)


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m gangline policies --json | head -c 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "line",
    ["policies", "compare --help", "trace info synth:philly?jobs=50&seed=1", "cluster presets"],
)
def test_a_reader_that_goes_away_is_no_error(line: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "gangline", *line.split()],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&-"])
def test_nothing_to_write_to_is_no_error(closed: str, tmp_path: Path) -> None:
    out = shlex.quote(str(tmp_path / "result"))
    line = f"{sys.executable} -m gangline run {shlex.join(SMALL)} --policy fifo --out {out}"
    done = subprocess.run(
        ["sh", "-c", f"{line} {closed}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert gl.load_result(out).summary["jobs"] == 50


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_a_terminal_without_unicode_is_written_to(encoding: str, tmp_path: Path) -> None:
    trace = tmp_path / "日本 ü.csv"
    trace.write_text("job_id,arrival_s,gpus,duration_s\né,0,1,5\nb,1,1,5\n", encoding="utf-8")
    for verb in ("info", "validate"):
        done = subprocess.run(
            [sys.executable, "-m", "gangline", "trace", verb, str(trace)],
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        shown = done.stdout.decode(encoding)
        assert ("< 10 s ####" in shown) == (verb == "info")


def test_hours_of_arrivals_count_from_the_first(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    rows = "".join(f"j{i},{1704067200 + 7200 + 60 * i},1,5\n" for i in range(10))
    trace.write_text("job_id,arrival_s,gpus,duration_s\n" + rows, encoding="utf-8")
    lines = gangline("trace", "info", str(trace)).stdout.splitlines()
    place = lines.index("arrivals by hour since the first:")
    assert lines[place + 1].startswith("  █")


def on_a_terminal(*arguments: str) -> tuple[Any, str]:
    """Return the document that a command writes, and what it draws on the terminal of stderr."""
    pty = pytest.importorskip("pty")  # every platform that the project supports has it
    main, side = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "gangline", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=side,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        text=True,
    ) as process:
        os.close(side)
        drawn = b""
        try:
            while chunk := os.read(main, 4096):
                drawn += chunk
        except OSError:
            pass  # the terminal disappears with the process
        assert process.stdout is not None
        written = json.loads(process.stdout.read())
    os.close(main)
    return written, drawn.decode()


def test_progress_is_drawn_on_a_terminal_only() -> None:
    trace = ["--trace", "synth:uniform?jobs=300000&seed=1", "--cluster", "philly"]
    written, drawn = on_a_terminal("run", *trace, "--policy", "las")
    assert written["summary"]["finished"] == 300_000
    assert "las" in drawn
    assert "300,000 of 300,000" in drawn


def test_a_plan_has_one_bar_over_all_its_runs() -> None:
    trace = "synth:philly?jobs=60&seed=1&max_gpus=8&load=1.2&cluster_gpus=32"
    asked = ["--trace", trace, "--cluster", "8x4xA100", "--seeds", "0,1", "--keep", "p95_wait<1h"]
    written, drawn = on_a_terminal("plan", *asked, "--policies", "fifo,srtf")
    runs = sum(2 * len(plan["points"]) for plan in written["plans"])  # two seeds for each size
    assert f"{runs}/{runs}" in drawn.replace(" ", "")
    assert "plan, srtf, servers " in drawn


def test_a_validation_has_one_bar_over_all_its_runs(tmp_path: Path) -> None:
    world = ["--trace", "synth:philly?jobs=60&seed=1&max_gpus=8", "--cluster", "8x4xA100"]
    gangline("run", *world, "--policy", "fifo", "--out", str(tmp_path / "run"))
    observed = ["--observed", str(tmp_path / "run" / "jobs.parquet")]
    written, drawn = on_a_terminal("validate", *world, *observed, "--policies", "fifo,srtf")
    assert len(written["policies"]) == 2
    assert "4 of 4 runs" in drawn  # the run times given, and the trace alone, under each policy


def test_trace_validate_lists_every_error_and_says_what_is_right(tmp_path: Path) -> None:
    head = "job_id,arrival_s,gpus,duration_s\n"
    (tmp_path / "good.csv").write_text(head + "a,1,1,5\n")
    rows = "".join(f"j{i},{i},x,1\n" for i in range(30))
    (tmp_path / "bad.csv").write_text(head + rows)
    done = gangline("trace", "validate", "good.csv", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "good.csv: native, 1 jobs: ok\n")
    done = gangline("trace", "validate", "good.csv", "bad.csv", "none.csv", cwd=tmp_path)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 31  # there are all rows, not only the first twenty
    assert lines[0] == 'bad.csv:2: gpus: expected an integer from 1 to 32768, got "x"'
    assert lines[-1] == "none.csv: no such file"
    assert done.stdout == "good.csv: native, 1 jobs: ok\n"
    done = gangline("trace", "validate", "--json", "bad.csv", "good.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert [len(report["errors"]) for report in json.loads(done.stdout)] == [30, 0]


def test_trace_info_says_what_was_left_out_and_why(tmp_path: Path) -> None:
    from samples import traces as samples

    (tmp_path / "h.csv").write_text(samples.HELIOS)
    (tmp_path / "v.csv").write_text(samples.FOUR_COLUMN)
    done = gangline("trace", "info", "h.csv", cwd=tmp_path)
    assert done.returncode == 0
    for words in (
        "asks for no GPU",
        "has a duration of 0 or less",
        "20.0%",
        "arrivals, first to last",
        "UTC+8",
    ):
        assert words in done.stdout
    assert (
        "warning: durations are capped at 2 d;"
        in gangline("trace", "info", "v.csv", cwd=tmp_path).stdout
    )
    facts = json.loads(gangline("trace", "info", "h.csv", "--json", cwd=tmp_path).stdout)
    assert facts["notes"] == {"cpu_job": 1, "zero_duration": 1}


def test_trace_formats_lists_what_can_be_read() -> None:
    from gangline.trace.formats import FORMATS

    shown = gangline("trace", "formats").stdout
    assert all(item.name in shown for item in FORMATS)
    listed = document("trace", "formats", "--json")
    assert [item["name"] for item in listed] == [item.name for item in FORMATS]
    assert all(item["reads"] or item["writes"] for item in listed)


def test_options_of_one_format_on_the_command_line(tmp_path: Path) -> None:
    from samples import traces as samples

    (tmp_path / "p.csv").write_text(samples.POLLUX)
    arguments = ["--option", "durations.bert=50", "--option", "durations.cifar=900.5"]
    facts = json.loads(
        gangline("trace", "info", "p.csv", "--json", *arguments, cwd=tmp_path).stdout
    )
    assert facts["duration_s"]["max"] == 900.5
    done = gangline("trace", "info", "p.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "--option durations.APPLICATION=SECONDS" in done.stderr
    done = gangline("trace", "info", "p.csv", "--option", "durations", cwd=tmp_path)
    assert (done.returncode, "expected KEY=VALUE" in done.stderr) == (2, True)
    done = gangline("trace", "info", "p.csv", "--option", "unit=job", cwd=tmp_path)
    assert (done.returncode, "option `unit` belongs to format pai" in done.stderr) == (2, True)


def test_a_library_that_is_gone_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    trace = "synth:philly?jobs=20&seed=1&max_gpus=4"
    command = ["run", "--trace", trace, "--cluster", "pollux-64", "--policy", "gavel-las"]
    assert main(command) == 2
    shown = capsys.readouterr().err
    assert (
        "gangline: highspy is not installed; `gangline doctor` shows the command that installs it"
        in shown
    )
    assert "Traceback" not in shown


def test_gpu_types_that_the_cluster_lacks_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "job_id,arrival_s,gpus,duration_s,gpu_types\na,0,1,10,T4|T40\nb,1,1,10,T4\nc,2,1,10,\n"
    trace = tmp_path / "typed.csv"
    trace.write_text(rows, encoding="utf-8")
    start = ["--trace", str(trace), "--cluster", "pollux-64"]
    said = "note: jobs may use `T40`, which the cluster lacks; it has T4"
    assert main(["run", *start, "--policy", "fifo"]) == 0
    assert said in capsys.readouterr().err
    assert main(["compare", *start, "--policies", "fifo,sjf"]) == 0
    assert said in capsys.readouterr().err
    assert main(["plan", *start, "--policy", "fifo", "--keep", "jct_p50_s<=100"]) == 0
    assert said in capsys.readouterr().err
    trace.write_text(rows.replace("|T40", ""), encoding="utf-8")
    assert main(["run", *start, "--policy", "fifo"]) == 0
    assert "lacks" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seeds", "told"),
    [("0..9", "all that the seeds do not distinguish from it"), ("0..3", "within 1 %")],
)
def test_the_legend_says_by_what_values_tie(
    seeds: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = "synth:helios?jobs=100&max_gpus=8&load=1.5&cluster_gpus=16"
    words = ["--trace", trace, "--cluster", "4x4xV100", "--policies", "fifo,srtf"]
    assert main(["compare", *words, "--trace-seeds", seeds]) == 0
    legend = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("*: "))
    assert told in legend
