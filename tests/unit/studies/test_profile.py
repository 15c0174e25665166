"""Tests measurements of training loops on a CPU, their files, and real runs of jobs."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import gangline as gl
from commands import gangline
from gangline.studies.profile import Model, Pair, Profile, Rate, Start
from gangline.studies.profile.replay import plan_of
from gangline.studies.profile.workers import Workers, together
from gangline.trace.read import as_trace

if TYPE_CHECKING:
    from pathlib import Path

# Alone a does 10 steps/s and b 4; together a does 5 and b 2, and two of a do 4 each. A pass of n
# samples of a takes 0.04 + 0.06 n / 32 seconds.
BY_HAND = Profile(
    facts={"gpu_type": "T4", "memory_gb": 16.0, "device": "cpu"},
    models=[Model("a", "mlp-small", 32), Model("b", "conv", 8)],
    starts=[Start("a", 3.0, 4.0, 1.0, 0.5), Start("a", 5.0, 4.0, 1.0, 0.5), Start("b", 2.0)],
    alone=[
        Rate("a", 32, 1, [9.0, 10.0, 12.0]),
        Rate("a", 16, 1, [15.0]),
        Rate("a", 32, 2, [1.0 / 0.14]),
        Rate("a", 32, 4, [1.0 / 0.22]),
        Rate("b", 8, 1, [4.0]),
    ],
    pairs=[
        Pair(("a", "a"), [(4.0, 4.0)]),
        Pair(("a", "b"), [(5.0, 2.0)]),
        Pair(("b", "b"), [], "b: the worker ended: out of memory"),
    ],
)
MODELS = ["mlp-large@64", "conv@4"]


@pytest.fixture(scope="module", autouse=True)
def _one_thread_each() -> object:
    """Limit libraries to one thread, because other tests use the other cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def measured() -> Profile:
    return gl.profile.measure(MODELS, device="cpu", passes=(1, 4), seconds=0.2, repeats=2)


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a user's module `train`, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "train.py"


def jobs(**columns: list[object]) -> gl.Trace:
    count = len(columns["job_id"])
    return as_trace(pa.table({"gpus": [1] * count, **columns}))


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def assert_ends(processes: list[int]) -> None:
    """Wait until processes that are not our children have ended."""
    patience = time.monotonic() + 30.0
    while any(map(is_alive, processes)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert [one for one in processes if is_alive(one)] == []


def call(line: str, folder: Path) -> str:
    done = gangline(*line.split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_measured_is_read_back_and_drives_sjf_bsbf(
    measured: Profile, tmp_path: Path
) -> None:
    measured.write(tmp_path / "lab")
    lab = gl.Cluster.from_file(tmp_path / "lab" / "cluster.toml")
    assert lab.throughput is not None
    rates = gl.tables.read_throughput(tmp_path / "lab" / "throughput.csv")
    assert rates.rate("CPU", "conv", 1) == pytest.approx(measured.rate("conv"), rel=1e-5)
    assert rates.rate("CPU", "mlp-large", 1, batch_size=16) > 0.0
    assert lab.sharing is not None
    assert lab.sharing.rows is not None
    assert {(row.model, row.co_model) for row in lab.sharing.rows} == {
        (one, other) for one in ("mlp-large", "conv") for other in ("mlp-large", "conv")
    }
    trace = jobs(
        job_id=["x", "y", "z"],
        arrival_s=[0.0, 1.0, 2.0],
        model=["mlp-large", "conv", "mlp-large"],
        batch_size=[64, 4, 64],
        iterations=[round(10.0 * measured.rate(one)) for one in ("mlp-large", "conv", "mlp-large")],
    )
    assert gl.simulate(lab, trace, "sjf-bsbf").summary["finished"] == 3
    # the tables of the object are those of the folder, with six digits
    again = gl.simulate(measured.cluster(), trace, "sjf-bsbf")
    assert again.log_hash == gl.simulate(lab, trace, "sjf-bsbf").log_hash
    assert Profile.read(tmp_path / "lab") == measured


def test_what_is_measured_is_positive_and_complete(measured: Profile) -> None:
    whole = [("mlp-large", 64, 1), ("mlp-large", 16, 1), ("mlp-large", 64, 4)]
    whole += [("conv", 4, 1), ("conv", 1, 1), ("conv", 4, 4), ("mlp-large", 64, 1), ("conv", 4, 1)]
    assert [(one.model, one.batch, one.passes) for one in measured.alone] == whole
    assert all(len(one.per_s) == 2 and min(one.per_s) > 0.0 for one in measured.alone)
    assert [one.models for one in measured.pairs] == [
        ("mlp-large", "mlp-large"),
        ("mlp-large", "conv"),
        ("conv", "conv"),
    ]
    assert all(min(rates) > 0.0 for one in measured.pairs for rates in one.per_s)
    for start in measured.starts:
        costs = (start.first_start_s, start.restart_s, start.stop_s, start.checkpoint_s)
        assert all(cost is not None and cost > 0.0 for cost in costs)
    assert measured.facts["device"] == "cpu"
    assert measured.facts["gpu_type"] == "CPU"


def test_both_of_a_pair_run_through_the_whole_window() -> None:
    one, other = Model("one", "conv", 4), Model("other", "mlp-small", 8)
    with Workers("cpu", 60.0) as workers:
        window = together(workers.get((one, 0), (other, 1)), 0.2)
    assert window.end_s - window.begin_s == pytest.approx(0.2)
    assert all(begin <= window.begin_s and window.end_s <= end for begin, end in window.spans)
    assert min(window.per_s) > 0.0


def test_at_most_as_many_processes_as_allowed_are_loaded() -> None:
    models = [Model(str(i), "conv", 2) for i in range(3)]
    with Workers("cpu", 60.0, most=2) as workers:
        first = workers.get((models[0], 0))[0]
        workers.get((models[0], 0), (models[1], 1))
        workers.get((models[0], 0), (models[2], 1))
        assert len(workers._kept) == 2
        assert workers.get((models[0], 0)) == [first]


def test_tables_follow_from_the_numbers() -> None:
    assert BY_HAND.slowdown("a", "b") == 2.0
    assert BY_HAND.slowdown("a", "a") == 2.5
    rows = [{key: row[key] for key in ("model", "co_model", "xi")} for row in BY_HAND.sharing()]
    assert rows == [
        {"model": "a", "co_model": "a", "xi": 2.5},
        {"model": "a", "co_model": "b", "xi": 2.0},
        {"model": "b", "co_model": "a", "xi": 2.0},
        {"model": "b", "co_model": "b", "xi": None},
    ]
    rates = [(row["model"], row["batch_size"], row["iters_per_s"]) for row in BY_HAND.throughput()]
    assert rates == [("a", None, 10.0), ("a", 32, 10.0), ("a", 16, 15.0), ("b", None, 4.0),
                     ("b", 8, 4.0)]  # fmt: skip
    # an iteration in 1, 2, 4 passes takes 0.1, 0.14, 0.22 s
    (fit,) = BY_HAND.iter_time()
    assert (fit["a_c"], fit["b_c"]) == pytest.approx((0.04, 0.06 / 32))


def test_a_folder_has_every_table_and_a_pair_that_failed_must_not_share(tmp_path: Path) -> None:
    BY_HAND.write(tmp_path)
    with (tmp_path / "runtime.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["model", "gpus", "gpu_type", "first_start_s", "restart_s", "stop_s", "checkpoint_s"],
        ["a", "1", "T4", "4.0", "4.0", "1.0", "0.5"],
        ["b", "1", "T4", "2.0", "", "", ""],
    ]
    lab = gl.Cluster.from_file(tmp_path / "cluster.toml")
    assert lab.gpu_types[0].memory_gb == 16.0
    two = jobs(job_id=["x", "y"], arrival_s=[0.0, 0.0], model=["b", "b"], iterations=[40.0, 40.0])
    assert gl.simulate(lab, two, "sjf-ffs").jobs.column("finish_s").to_pylist() == [10.0, 20.0]
    with (tmp_path / "cluster.toml").open("a") as file:
        file.write('[runtime]\ntable = "runtime.csv"\n')
    lab = gl.Cluster.from_file(tmp_path / "cluster.toml")
    costly = gl.simulate(lab, two, "fifo", checkpoint_interval_s=60.0)
    assert costly.jobs.column("finish_s").to_pylist() == [12.0, 24.0]  # two first starts of 2 s
    (tmp_path / "cluster.toml").write_text("mine")
    with pytest.raises(FileExistsError):
        BY_HAND.write(tmp_path)


def test_an_interval_lies_within_the_repeats() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    found = gl.profile.median_interval(values)
    assert found is not None
    assert 1.0 <= found[0] <= 3.0 <= found[1] <= 100.0
    assert gl.profile.median_interval(values, [1.0] * 4) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bort", "did you mean `bert`"),
        ("train:make", "expected a batch"),
        ("bert@0", "expected a batch"),
        ("=bert", "has no name"),
    ],
)
def test_a_wrong_model_is_refused(text: str, words: str) -> None:
    with pytest.raises(gl.errors.OptionError, match=words):
        Model.parse(text)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"repeats": 0}, "repeats"),
        ({"seconds": float("nan")}, "seconds"),
        ({"processes": 1}, "processes"),
        ({"passes": ()}, "passes"),
        ({"models": ["conv", "conv"]}, "models"),
        ({"models": []}, "models"),
    ],
)
def test_a_wrong_option_is_refused_before_a_process_starts(
    options: dict[str, object], field: str
) -> None:
    with pytest.raises(gl.errors.OptionError) as caught:
        gl.profile.measure(**options)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_four_times_the_batch_takes_longer(train: Path) -> None:
    train.write_text(
        "def make(batch, passes, device):\n    return lambda: sum(range(10_000 * batch))\n"
    )
    kept: list[int] = []
    found = gl.profile.measure(
        ["train:make@8"], device="cpu", passes=(1, 4), seconds=0.1, repeats=3, starts=0,
        pairs=False, save=lambda one: kept.append(len(one.alone)),
    )  # fmt: skip
    assert found.rate("make", 2) > found.rate("make", 8)
    assert kept == [3]


def test_a_model_of_the_user_may_print_and_needs_no_checkpoint(train: Path) -> None:
    train.write_text(
        "def make(batch, passes, device):\n"
        "    print('hello', batch, passes, device)\n"
        "    return lambda: sum(range(100 * batch))\n"
    )
    found = gl.profile.measure(
        ["mine=train:make@8"], device="cpu", passes=(1, 2), seconds=0.1, repeats=1
    )
    assert [(one.model, one.batch, one.passes) for one in found.alone[:3]] == [
        ("mine", 8, 1),
        ("mine", 4, 1),
        ("mine", 8, 2),
    ]
    assert found.slowdown("mine", "mine") is not None
    (row,) = found.runtime()
    assert row["first_start_s"] > 0.0
    assert row["restart_s"] is row["stop_s"] is row["checkpoint_s"] is None


@pytest.mark.skipif(sys.platform == "win32", reason="locks of POSIX")
def test_a_pair_of_which_one_dies_is_kept_with_the_reason(train: Path) -> None:
    train.write_text(
        "import fcntl\n"
        "lock = open('lock', 'w')\n"
        "def make(batch, passes, device):\n"
        "    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "    return lambda: None\n"
    )
    found = gl.profile.measure(
        ["train:make@1"], device="cpu", passes=(1,), seconds=0.1, repeats=1, starts=0
    )
    (pair,) = found.pairs
    assert pair.per_s == []
    assert "make: the worker ended: BlockingIOError" in pair.failed
    assert found.cluster().sharing is None


def test_a_worker_that_dies_is_named_with_its_last_line(train: Path) -> None:
    with (
        Workers("cpu", 60.0) as workers,
        pytest.raises(gl.errors.PeerError) as caught,
    ):
        workers.get((Model("mine", "absent:make", 1), 0))
    assert str(caught.value) == (
        "mine: the worker ended: ModuleNotFoundError: No module named 'absent'"
    )
    assert caught.value.reason == "left"


def test_a_worker_that_hangs_is_given_up(train: Path) -> None:
    train.write_text("import time\ndef make(batch, passes, device):\n    time.sleep(600)\n")
    with (
        Workers("cpu", 0.5) as workers,
        pytest.raises(gl.errors.PeerError) as caught,
    ):
        workers.get((Model("mine", "train:make", 1), 0))
    assert caught.value.reason == "silent"


def test_a_gpu_is_seen_through_pytorch(train: Path) -> None:
    (train.parent / "torch.py").write_text(
        "class cuda:\n"
        "    is_available = staticmethod(lambda: True)\n"
        "    get_device_name = staticmethod(lambda: 'NVIDIA T4')\n"
        "    class get_device_properties:\n"
        "        def __init__(self, index): self.total_memory = 16 * 2**30\n"
        "__version__ = '2.0'\n"
    )
    assert gl.profile.look() == {
        "device": "cuda", "gpu": "NVIDIA T4", "memory_gb": 16.0, "torch": "2.0"
    }  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_worker_ends_with_the_process_that_started_it() -> None:
    code = (
        "from gangline.studies.profile.workers import Workers\n"
        "from gangline.studies.profile import Model\n"
        "import time\n"
        "workers = Workers('cpu', 60.0)\n"
        "(one,) = workers.get((Model('a', 'conv', 2), 0))\n"
        "one.send(do='run')\n"
        "one.answer()\n"
        "print(one._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    assert_ends([worker])


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_a_measurement_and_its_processes(train: Path) -> None:
    train.write_text(
        "import os\n"
        "def make(batch, passes, device):\n"
        "    open('processes', 'a').write(f'{os.getpid()}\\n')\n"
        "    return lambda: sum(range(1000))\n"
    )
    command = [sys.executable, "-m", "gangline", "profile", "measure", "a=train:make@8",
               "--out", "lab", "--device", "cpu", "--seconds", "600"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "batch 8" in line:
                break
        while not (train.parent / "processes").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert_ends([int(line) for line in (train.parent / "processes").read_text().split()])
    assert not (train.parent / "lab").exists()


def test_a_plan_says_what_each_start_waits_for() -> None:
    # x: 30 steps, 3 s alone. y: 8 steps of b, 2 s alone.
    trace = jobs(job_id=["x", "y"], arrival_s=[0.0, 1.0], model=["a", "b"], iterations=[30.0, 8.0])
    first, second = plan_of(
        BY_HAND, trace, gl.simulate(BY_HAND.cluster(), trace, "fifo", segments=True), "fifo"
    )
    assert (first.job, first.steps, first.start_s, first.after) == ("x", 30, 0.0, frozenset())
    assert (second.job, second.steps, second.start_s, second.finish_s) == ("y", 8, 3.0, 5.0)
    assert (second.earliest_s, second.after) == (1.0, frozenset({"x"}))
    # Both take twice as long from 1 s on: y to 5 s, and x, with 2 s of work left, to 5 s.
    shared = gl.simulate(BY_HAND.cluster(), trace, "sjf-ffs", segments=True)
    first, second = plan_of(BY_HAND, trace, shared, "sjf-ffs")
    assert (second.start_s, second.finish_s, second.after) == (1.0, 5.0, frozenset())


def test_durations_become_steps_by_the_measured_rate() -> None:
    trace = jobs(job_id=["x"], arrival_s=[0.0], model=["a"], duration_s=[2.5])
    done = gl.simulate(BY_HAND.cluster(), trace, "fifo", segments=True)
    (only,) = plan_of(BY_HAND, trace, done, "fifo")
    assert (only.steps, only.batch) == (25, 32)
    # 15 steps per second at half the batch
    trace = jobs(job_id=["x"], arrival_s=[0.0], model=["a"], duration_s=[2.0], batch_size=[16])
    done = gl.simulate(BY_HAND.cluster(), trace, "fifo", segments=True)
    (only,) = plan_of(BY_HAND, trace, done, "fifo")
    assert (only.steps, only.batch) == (30, 16)


def test_a_job_that_cannot_run_is_left_out_of_the_plan() -> None:
    trace = as_trace(
        pa.table({"job_id": ["wide", "x"], "arrival_s": [0.0, 0.0], "gpus": [2, 1],
                  "model": ["a", "a"], "duration_s": [1.0, 1.0]})
    )  # fmt: skip
    done = gl.simulate(BY_HAND.cluster(), trace, "fifo", segments=True, on_infeasible="drop")
    assert [one.job for one in plan_of(BY_HAND, trace, done, "fifo")] == ["x"]


def test_jobs_run_one_after_the_other_or_together(measured: Profile, tmp_path: Path) -> None:
    # A second of each alone: three jobs whose order and pairs the prediction knows.
    steps = {one: max(1, round(measured.rate(one))) for one in ("mlp-large", "conv")}
    names = ["mlp-large", "conv", "mlp-large"]
    trace = jobs(
        job_id=["x", "y", "z"],
        arrival_s=[0.0, 0.1, 0.2],
        model=names,
        iterations=[float(steps[one]) for one in names],
    )
    alone, pair = gl.profile.replay(measured, trace, ["fifo", "sjf-ffs"])
    rows = {row["job_id"]: row for row in alone.observed.to_pylist()}
    assert list(rows) == ["x", "y", "z"]
    assert all(row["finish_s"] > row["first_start_s"] >= row["arrival_s"] for row in rows.values())
    assert rows["y"]["first_start_s"] >= rows["x"]["finish_s"]
    assert rows["z"]["first_start_s"] >= rows["y"]["finish_s"]
    both = {row["job_id"]: row for row in pair.observed.to_pylist()}
    assert both["y"]["first_start_s"] < both["x"]["finish_s"]
    pair.write(tmp_path / "seen.csv")
    found = gl.validate(measured.cluster(), trace, "sjf-ffs", str(tmp_path / "seen.csv"))
    assert found["sjf-ffs"].layers["prediction"].measures["jct_mean_s"].observed > 0.0


def test_a_cold_job_waits_for_its_process() -> None:
    one = Profile(facts={"gpu_type": "CPU", "device": "cpu"}, models=[Model("a", "conv", 2)],
                  starts=[], alone=[Rate("a", 2, 1, [100.0])], pairs=[])  # fmt: skip
    trace = jobs(job_id=["x"], arrival_s=[5.0], model=["a"], iterations=[3.0])
    (done,) = gl.profile.replay(one, trace, "fifo", cold=True)
    (row,) = done.observed.to_pylist()
    # a process of Python takes longer to start than 50 ms; three steps do not
    assert row["run_s"] > 0.05
    assert row["first_start_s"] >= 5.0


@pytest.mark.parametrize(
    ("policy", "cluster", "model", "kind"),
    [
        ("srtf", None, "a", gl.errors.PolicyError),
        ("fifo", "1x2xT4", "a", gl.errors.ClusterError),
        ("fifo", None, "c", gl.errors.TraceError),
    ],
)
def test_what_cannot_be_run_is_refused(
    policy: str, cluster: str | None, model: str, kind: type[Exception]
) -> None:
    trace = jobs(job_id=["x", "y"], arrival_s=[0.0, 1.0], model=["a", model],
                 duration_s=[10.0, 1.0])  # fmt: skip
    with pytest.raises(kind):
        gl.profile.replay(BY_HAND, trace, policy, cluster=cluster)


def test_a_job_with_a_smaller_batch_per_pass_is_refused() -> None:
    # 16 GiB hold two jobs of 10 GiB only if the second one halves its batch
    trace = jobs(job_id=["x", "y"], arrival_s=[0.0, 1.0], model=["a", "b"], duration_s=[90.0, 9.0],
                 memory_gb=[10.0, 8.0], batch_size=[32, 8])  # fmt: skip
    with pytest.raises(gl.errors.PolicyError, match="smaller batch per pass"):
        gl.profile.replay(BY_HAND, trace, "sjf-bsbf")


def test_drawn_jobs_are_those_of_the_models_and_the_seed() -> None:
    drawn = gl.profile.draw(BY_HAND, 40, gap_s=1.0, shortest_s=1.0, longest_s=2.0, seed=3)
    assert drawn.column("model").to_pylist() == ["a", "b"] * 20
    assert drawn.column("batch_size").to_pylist() == [32, 8] * 20
    lengths = [x / r for x, r in zip(drawn.column("iterations").to_pylist(), [10.0, 4.0] * 20,
                                     strict=True)]  # fmt: skip
    assert 0.875 <= min(lengths) <= max(lengths) <= 2.125  # rounded to whole steps
    assert (
        drawn.sha256 == gl.profile.draw(BY_HAND, 40, shortest_s=1.0, longest_s=2.0, seed=3).sha256
    )
    with pytest.raises(gl.errors.OptionError):
        gl.profile.draw(BY_HAND, 0)


def test_the_commands_go_from_a_measurement_to_a_comparison(tmp_path: Path) -> None:
    assert "mlp-small" in call("profile models", tmp_path)
    options = "--device cpu --seconds 0.1 --repeats 1 --starts 0 --passes 1 --processes 2 --gpu T4"
    done = call(f"profile measure conv@4 --out lab {options}", tmp_path)
    assert "Slowdown factor" in done
    call("cluster validate lab/cluster.toml", tmp_path)
    call("profile draw lab --out jobs.csv --count 2 --longest-s 0.5", tmp_path)
    done = call("profile run lab --trace jobs.csv --policies fifo --out seen", tmp_path)
    assert "mean JCT" in done
    with (tmp_path / "seen" / "fifo.csv").open(newline="") as file:
        assert [row["job_id"] for row in csv.DictReader(file)] == ["job-00", "job-01"]
    wrong = gangline("profile", "measure", "bort", "--out", "other", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "did you mean `bert`" in wrong.stderr
    wrong = gangline("profile", "measure", "--passes", "1,x", "--out", "other", cwd=tmp_path)
    assert wrong.returncode == 2
