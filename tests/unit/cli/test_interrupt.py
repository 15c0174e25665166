"""Tests Ctrl-C and progress with policies in Python, at decisions and in stretches without any."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds

# These runs would take minutes. The policy decides often or almost never: servers fail and recover
# all the time without waking it, job 0 never ends, and the last job arrives very late.
BUSY = """
import sys, time
import gangline as gl

class Slow(gl.Policy):
    wake_on = {wake_on}
    def decide(self, view, changes):
        {work}
        plan = gl.Plan()
        for job in view.waiting("job")[:1]:
            if view.servers("gpus_free")[0]:
                plan.start(job, {{0: 1}})
        return plan

lab = {{
    "gpu_types": [{{"name": "g", "memory_gb": 16}}],
    "servers": [{{"count": 50, "gpu": "g", "gpus": 1}}],
    "failures": {{"mtbf_hours": 0.01, "mttr_hours": 0.01}},
}}
import pyarrow as pa
trace = pa.table({{"arrival_s": [0.0, 3e8], "gpus": [1, 1], "duration_s": [1e7, 1.0]}})

def report(now_s, done, total):
    print(f"{{now_s:.0f}} {{done}} {{total}}", flush=True)

try:
    gl.simulate(lab, trace, Slow(), progress=report, timeline="off")
except KeyboardInterrupt as error:
    print("interrupted", getattr(error, "__notes__", None), flush=True)
    sys.exit(130)
"""
STRETCH = {"wake_on": '("arrival", "completion")', "work": "pass"}
DECISIONS = {"wake_on": '("arrival", "completion", "capacity")', "work": "pass"}
# CPython notices a signal that comes just before a sleep only at its end, so the sleeps are short.
ASLEEP = {
    "wake_on": '("arrival", "completion", "capacity")',
    "work": "print('deciding', flush=True); [time.sleep(0.05) for _ in range(600)]",
}


def start(kind: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUSY.format(**kind)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", [STRETCH, DECISIONS], ids=["stretch", "decisions"])
def test_an_interrupt_ends_a_run_within_a_second(kind: dict[str, str]) -> None:
    with start(kind) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        rest, errors = process.communicate(timeout=60)
        took = time.monotonic() - sent
    assert process.returncode == 130, errors
    assert rest.splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in errors
    assert took < 1.0 + 2.0, took  # one second, and a margin for a busy machine
    times = [float(line[0]) for line in lines]
    assert times == sorted(times)
    assert times[0] < times[-1]
    assert all(line[2] == "2" for line in lines)


def test_an_interrupt_reaches_the_policys_own_code() -> None:
    with start(ASLEEP) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "deciding\n"
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert time.monotonic() - sent < 3.0
    assert "decision 0" in rest  # the note on the user's exception


# Its first decisions of two jobs and more would take years.
ENDLESS = """
import sys
import gangline as gl

def report(now_s, done, total):
    print("runs", flush=True)

search = {"search": "ga", "ga_generations": 10**9}
trace = "synth:bsbf?jobs=60&seed=1&max_gpus=16"
try:
    gl.simulate("pollux-64-elastic", trace, "pollux", params=search, progress=report)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interrupt_does_not_wait_for_a_long_decision_of_a_built_in_policy() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["runs\n"] * 3
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        try:
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert time.monotonic() - sent < 2.0 + 3.0  # two seconds, and room for other work


def test_progress_ends_with_all_jobs_done() -> None:
    seen: list[tuple[float, int, int]] = []
    trace = gl.synth.philly(jobs=200, seed=1, max_gpus=1)
    lab = gl.Cluster.homogeneous(servers=2, gpus=8)
    result = gl.simulate(lab, trace, worlds.FirstFit(), progress=lambda *row: seen.append(row))
    assert seen[-1][1:] == (200, 200)
    assert seen[-1][0] == pytest.approx(max(result.jobs.column("finish_s").to_pylist()))


class Thoughtful(worlds.FirstFit):
    """Takes longer for a decision than the interval between two drawings of progress."""

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        time.sleep(0.11)
        return super().decide(view, changes)


def test_slow_decisions_show_progress_one_by_one() -> None:
    seen: list[float] = []
    rows = {"arrival_s": [0.0, 10.0, 20.0, 30.0], "gpus": [1] * 4, "duration_s": [100.0] * 4}
    lab = gl.Cluster.homogeneous(servers=1, gpus=4)
    trace = gl.Trace.from_arrow(pa.table(rows))
    gl.simulate(lab, trace, Thoughtful(), progress=lambda now_s, *_: seen.append(now_s))
    # the last value is at the end
    assert seen == [0.0, 10.0, 20.0, 30.0, 100.0, 110.0, 120.0, 130.0, 130.0]


def test_an_error_of_the_progress_callback_passes_through() -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("mine")

    trace = gl.synth.philly(jobs=20, seed=1, max_gpus=1)
    lab = gl.Cluster.homogeneous(servers=2, gpus=8)
    with pytest.raises(ZeroDivisionError, match="mine"):
        gl.simulate(lab, trace, worlds.FirstFit(), progress=fail)


def test_looking_around_does_not_change_the_run() -> None:
    trace = gl.synth.philly(jobs=300, seed=5, max_gpus=1)
    lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    watched = gl.simulate(lab, trace, worlds.FirstFit(), progress=lambda *_: os.getpid())
    alone = gl.simulate(lab, trace, worlds.FirstFit())
    assert watched.log_hash == alone.log_hash
    assert watched.summary["events"] == alone.summary["events"]


COMMAND = """
import os, runpy, signal, sys
module = sys.argv[1]
class Interrupts:
    def find_spec(self, name, *_):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
run = "run --trace synth:philly?jobs=5&max_gpus=8 --cluster pollux-64 --policy gavel-las"
sys.argv = ["gangline", *run.split()]
runpy.run_module("gangline", run_name="__main__")
"""


@pytest.mark.parametrize(
    "module",
    ["gangline.cli.app", "cyclopts", "gangline.cli.run", "numpy", "pyarrow", "gangline._core",
     "highspy", "rich.table"],
)  # fmt: skip
def test_an_interrupt_while_modules_are_loaded_leaves_no_traceback(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, module],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("gangline: interrupted")
    assert done.stderr.count("\n") == 1


def test_the_installed_command_is_the_one_that_is_interrupted_well() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["scripts"] == {"gangline": "gangline.__main__:main"}


def test_an_ignored_interrupt_stays_ignored() -> None:
    code = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "from gangline.__main__ import main; sys.argv = ['gangline', '--version']; code = main();"
        "os.kill(os.getpid(), signal.SIGINT); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_after_the_work_is_done_changes_nothing() -> None:
    code = (
        "import atexit, os, signal, sys; from gangline.__main__ import main;"
        "sys.argv = ['gangline', '--version'];"
        "code = main(); atexit.register(os.kill, os.getpid(), signal.SIGINT);"
        "os.kill(os.getpid(), signal.SIGINT); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# When the main thread takes a lock of a condition for the n-th time, it is interrupted before it
# can release it. A real signal does this once in thousands of interrupts.
LOCKED = """
import itertools, signal, sys, threading
from gangline.files.columns import begin, each
from gangline.runs.executors import in_threads
import pyarrow as pa

long = pa.array(range(200_000))
pa.set_cpu_count(2)

def use_threads(in_order):
    assert len(list(in_threads(lambda task, _: task, range(8), 2, in_order=in_order))) == 8
    assert begin(lambda column: True, long)()
    assert list(each(len, {"a": long, "b": long}).values()) == [200_000] * 2

enter, main = threading.Condition.__enter__, threading.get_ident()
entered = nth = 0

def interrupted(condition):
    global entered
    found = enter(condition)
    if threading.get_ident() == main:
        entered += 1
        if entered == nth:
            signal.raise_signal(signal.SIGINT)
    return found

threading.Condition.__enter__ = interrupted
for nth in itertools.count(1):
    entered = 0
    try:
        use_threads(in_order=nth % 2)
    except KeyboardInterrupt:
        for thread in threading.enumerate()[1:]:
            thread.join(60)
            assert not thread.is_alive(), (nth, thread)
        continue
    assert entered < nth, "the interrupt was lost"
    break
print(nth)
"""


def test_an_interrupt_between_lock_and_block_stops_no_thread() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOCKED],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 20, "hardly a lock was taken"


STUBBORN = """
import os, signal, sys, time
import gangline.__main__ as command, gangline.cli.app

def stubborn():
    for _ in range({swallowed}):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(600)
        except KeyboardInterrupt:
            pass
    time.sleep(600)

gangline.cli.app.main = stubborn
command._PATIENCE_S = {patience_s}
sys.exit(command.main())
"""


@pytest.mark.parametrize(("swallowed", "patience_s"), [(1, 0.1), (2, 600)], ids=["lost", "twice"])
def test_a_command_ends_if_it_swallows_an_interrupt(swallowed: int, patience_s: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUBBORN.format(swallowed=swallowed, patience_s=patience_s)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "gangline: interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="has no groups of processes")
def test_the_ctrl_c_of_a_terminal_reaches_workers_that_still_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "slowstart.py").write_text(
        "import multiprocessing, pathlib, time\n"
        "import gangline as gl\n"
        "if multiprocessing.parent_process() is not None:\n"
        "    pathlib.Path(__file__).with_name('starts').touch()\n"
        "    time.sleep(600)\n"
        "class Own(gl.Policy):\n"
        "    def decide(self, view, changes):\n"
        "        return gl.Plan()\n"
    )
    (tmp_path / "own.toml").write_text(
        'name = "own"\n[grid]\ntrace = ["synth:pai?jobs=5&max_gpus=8"]\n'
        'cluster = ["pollux-64"]\npolicy = ["slowstart:Own"]\nseed = [0, 1, 2, 3]\n'
    )
    words = [sys.executable, "-m", "gangline", "sweep", "own.toml", "--workers", "2"]
    with subprocess.Popen(
        words, cwd=tmp_path, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 120.0
        while not (tmp_path / "starts").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "no worker was started"
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert errors == "gangline: interrupted; results already saved are kept\n"
