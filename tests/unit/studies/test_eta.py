"""Tests forecasts of starts: queues by hand, a count of GPUs, run times, and coverage."""

from __future__ import annotations

import heapq
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from scripts import eta_coverage as script

import gangline as gl
from commands import gangline
from gangline.errors import OptionError, TraceError
from gangline.studies.eta.estimates import Arrivals, Estimates, History, Jobs
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

LAB = gl.Cluster.homogeneous(servers=1, gpus=4)
QUEUE: dict[str, list[Any]] = {
    "job_id": ["runs", "long", "wide", "huge"],
    "user": ["ann", "bob", "bob", None],
    "arrival_s": [0, 30, 31, 32],
    "gpus": [2, 4, 2, 8],
    "trace_status": ["running", "pending", "pending", "pending"],
    "observed_start_s": [10, None, None, None],
    "time_limit_s": [100, 50, 60, 5],
}


def starts(found: gl.Eta) -> dict[str, float]:
    return {one.job_id: one.start_in_s for one in found}


def causes(found: gl.Eta) -> dict[str, str]:
    return {one.job_id: str(one.cause) for one in found}


@pytest.mark.parametrize(
    ("policy", "long_s", "wide_s", "long_cause", "wide_cause"),
    [
        # at 40, `runs` has 70 s left; `long` takes all GPUs at 110, `wide` follows at 160
        ("fifo", 70.0, 120.0, "no place", "behind job long"),
        # two GPUs are free for 70 s, which is enough for the 60 s of `wide`
        ("easy", 70.0, 0.0, "promised, in 1 min 10 s", "starts now"),
        ("fifo-skip", 70.0, 0.0, "no place", "starts now"),
        # `long` is shorter, but does not fit
        ("sjf", 70.0, 0.0, "no place", "starts now"),
        # expected ends are rounded up to minutes from the moment: 120 s for `runs`, 60 for `wide`
        ("slurm", 70.0, 0.0, "no place", "starts now"),
        # `long` has the least left, 50 s, and stops `runs`; then `wide` with 60 s goes before it
        ("srtf", 0.0, 50.0, "starts now", "outranked job long"),
    ],
)
def test_by_hand(
    policy: str, long_s: float, wide_s: float, long_cause: str, wide_cause: str
) -> None:
    found = gl.eta(LAB, pa.table(QUEUE), policy, at=40)
    assert starts(found) == {"long": long_s, "wide": wide_s, "huge": math.inf}
    assert causes(found) == {"long": long_cause, "wide": wide_cause, "huge": "too large"}
    assert found.spread.source == "none"
    assert (found.running, found.unplaced, found.outlived) == (1, 0, 0)
    assert [one.waited_s for one in found] == [10.0, 9.0, 8.0]


def test_a_running_job_has_paid_for_its_start() -> None:
    # `runs` started at 10 and made no progress until 30, so it ends at 130 instead of 110
    found = gl.eta(LAB, pa.table(QUEUE), "fifo", at=40, first_start_s=20.0)
    assert starts(found)["long"] == 90.0


def fifo(
    gpus: int, running: list[tuple[int, float]], waiting: list[tuple[int, float]]
) -> list[float]:
    """Return starts by counting GPUs: jobs are (GPUs, seconds left) in order of arrival."""
    ends = [(left, size) for size, left in running]
    heapq.heapify(ends)
    free, now, found = gpus - sum(size for size, _ in running), 0.0, []
    for size, length in waiting:
        while free < size:
            now, back = heapq.heappop(ends)
            free += back
        found.append(now)
        free -= size
        heapq.heappush(ends, (now + length, size))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_fifo_against_a_count_of_gpus(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 9, 40).tolist()
    running = 0
    while sum(sizes[: running + 1]) <= 32:
        running += 1
    # times are in units of 1/8 s, which are exact as floats and as nanoseconds
    started = np.sort(random.integers(0, 8000, running)) / 8.0
    limit = random.integers(8000, 40000, 40) / 8.0
    came = np.sort(random.integers(0, 8000, 40 - running)) / 8.0
    table = pa.table(
        {
            "arrival_s": [*started.tolist(), *came.tolist()],
            "gpus": sizes,
            "trace_status": ["running"] * running + ["pending"] * (40 - running),
            "observed_start_s": [*started.tolist(), *[None] * (40 - running)],
            "time_limit_s": limit,
        }
    )
    found = gl.eta(gl.Cluster.homogeneous(servers=32, gpus=1), table, "fifo", at=1000.0)
    left = (limit[:running] - (1000.0 - started)).tolist()
    expected = fifo(
        32,
        list(zip(sizes[:running], left, strict=True)),
        list(zip(sizes[running:], limit[running:].tolist(), strict=True)),
    )
    assert [one.start_in_s for one in found] == expected


def estimates(
    limit: list[float],
    elapsed: list[float],
    past: list[tuple[str, float, float]] | None = None,
    error: float | None = None,
    user: str = "ann",
) -> Estimates:
    """Return estimates of jobs of one user; the past is (user, limit, run time)."""
    labels: dict[str, list[Any]] = {"user": [user] * len(limit), "gpus": [1] * len(limit)}
    history = None
    if past is not None:
        users, limits, times = zip(*past, strict=True)
        of = Jobs({"user": list(users), "gpus": [1] * len(users)}, np.asarray(limits),
                  np.zeros(len(users)))  # fmt: skip
        history = History(of, np.asarray(times))
    return Estimates(Jobs(labels, np.asarray(limit), np.asarray(elapsed)), history, error)


def values(found: Estimates, draws: int = 400) -> npt.NDArray[np.float64]:
    return np.stack(list(found.draws(draws, 7)))


def test_a_log_normal_error_by_its_quantiles() -> None:
    found = estimates([100.0, 100.0, 100.0], [0.0, 100.0, 200.0], error=0.5)
    # having run for the median, the median of what remains is the upper quartile: z = 0.6744898
    third = 1.0 - 0.5 * math.erfc(math.log(2.0) / 0.5 / math.sqrt(2.0))
    third = third + 0.5 * (1.0 - third)
    drawn = values(found)
    assert found.median_s()[:2] == pytest.approx([100.0, 100.0 * math.exp(0.5 * 0.6744898)])
    assert 0.5 * math.erfc(
        -math.log(found.median_s()[2] / 100.0) / 0.5 / math.sqrt(2.0)
    ) == pytest.approx(third)
    assert (drawn > [0.0, 100.0, 200.0]).all()
    # with 400 draws, the share below the median is within 99.9 % of a binomial distribution
    assert (drawn < found.median_s()).mean(axis=0) == pytest.approx([0.5] * 3, abs=0.085)


PAST = [("ann", 100.0, float(ratio)) for ratio in range(1, 41)]  # ratios 0.01, 0.02, ... 0.40
OTHERS = [("eve", 100.0, 500.0)] * 30


def test_history_gives_the_ratios_of_the_same_user() -> None:
    found = estimates([1000.0], [0.0], PAST + OTHERS)
    drawn = values(found)[:, 0]
    assert found.median_s().tolist() == pytest.approx([210.0])  # the 21st of 40 ratios
    assert set(np.round(drawn, 6).tolist()) <= {10.0 * ratio for ratio in range(1, 41)}
    assert len(set(drawn.tolist())) > 35


def test_a_running_job_counts_those_that_took_longer() -> None:
    found = estimates([1000.0], [300.0], PAST + OTHERS)
    assert set(np.round(values(found)[:, 0], 6).tolist()) == {
        10.0 * ratio for ratio in range(31, 41)
    }


def test_few_that_took_longer_make_the_wider_group_count() -> None:
    # three of ann's jobs took longer than 0.37 of their limit, and 33 of all jobs
    found = estimates([1000.0], [370.0], PAST + OTHERS)
    assert set(np.round(values(found)[:, 0], 6).tolist()) == {380.0, 390.0, 400.0, 5000.0}


def test_a_stranger_is_compared_with_all() -> None:
    found = estimates([1000.0], [0.0], PAST + OTHERS, user="new")
    assert 5000.0 in values(found)[:, 0].tolist()


def test_without_a_limit_run_times_count() -> None:
    found = estimates([math.nan], [0.0], PAST + OTHERS)
    assert found.median_s().tolist() == [21.0]


@pytest.mark.parametrize(
    ("limit", "total"),
    [(900.0, 900.0), (5000.0, 1200.0), (math.nan, 1200.0), (500.0, 1200.0)],
)
def test_one_that_outlived_all_is_half_done(limit: float, total: float) -> None:
    found = estimates([limit], [600.0], [("ann", 100.0, 10.0)] * 30)
    assert values(found, 3).tolist() == [[total]] * 3
    assert found.outlived == 1


def test_the_latest_of_a_group_count() -> None:
    early = [("ann", 100.0, 90.0)] * 100
    late = [("ann", 100.0, 10.0)] * 200
    assert set(values(estimates([100.0], [0.0], early + late))[:, 0].tolist()) == {10.0}


def test_no_estimate_at_all() -> None:
    with refused(OptionError, field="history"):
        estimates([math.nan], [0.0])
    with refused(OptionError, field="history"):
        estimates([math.nan], [0.0], error=0.5)


def test_a_job_without_an_estimate_and_an_array_are_named(tmp_path: Path) -> None:
    """Of three jobs `b` has no limit; with one, the array is a job, and a note tells of it."""
    queue = (
        "JOBID|STATE|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODES|TRES_PER_NODE\n"
        "7|RUNNING|2024-03-01T08:00:00|2024-03-01T08:00:00|1:00:00|2:00:00|1|gres/gpu:V100:2\n"
        "8|RUNNING|2024-03-01T08:00:00|2024-03-01T08:00:00|1:00:00|UNLIMITED|1|gres/gpu:V100:2\n"
        "9_[1-4]|PENDING|2024-03-01T08:30:00|N/A|0:00|1:00:00|1|gres/gpu:V100:4\n"
    )
    lab, path = "1x4xV100", tmp_path / "queue.txt"
    path.write_text(queue)
    message = "1 job of 3, such as `8`, with no time limit and no estimate"
    with refused(OptionError, field="history") as caught:
        gl.eta(lab, path, "fifo")
    assert message in str(caught.value)
    path.write_text(queue.replace("UNLIMITED", "3:00:00"))
    found = gl.eta(lab, path, "fifo")
    assert (len(found), found.notes) == (1, {"pending_array": 1})


def test_a_default_limit_is_that_of_jobs_without_one() -> None:
    """`runs` has none: with 100 s it ends at 110, as in `test_by_hand`."""
    queue = pa.table({**QUEUE, "time_limit_s": [None, 50, 60, 5]})
    found = gl.eta(LAB, queue, "fifo", at=40, default_limit_s=100.0)
    assert starts(found) == {"long": 70.0, "wide": 120.0, "huge": math.inf}
    assert found.spread.unlimited == 1
    assert "A limit of 1 min 40 s is assumed for 1 job without one." in found.sentences()
    assert found.to_dict()["spread"]["default_limit_s"] == 100.0  # type: ignore[index,call-overload]
    same = gl.eta(LAB, pa.table(QUEUE), "fifo", at=40, default_limit_s=7.0)
    assert starts(same) == starts(found)  # every job has a limit
    assert not any("is assumed for" in said for said in same.sentences())


def test_a_default_limit_also_holds_for_the_history() -> None:
    """The finished jobs took 4 s, which is half of the default: so do all others."""
    log = pa.table({"arrival_s": range(20), "gpus": [1] * 20, "duration_s": [4.0] * 20})
    queue = pa.table({**QUEUE, "time_limit_s": [None] * 4, "observed_start_s": [39, *[None] * 3]})
    half = gl.eta(LAB, queue, "fifo", at=40, history=log, default_limit_s=8.0)
    assert starts(half)["long"] == 3.0  # `runs` has run for 1 s of 4 s
    mixed = {"time_limit_s": [16, *[None] * 3], "observed_start_s": [39, *[None] * 3]}
    found = gl.eta(
        LAB, pa.table({**QUEUE, **mixed}), "fifo", at=40, history=log, default_limit_s=8.0
    )
    assert starts(found)["long"] == 7.0  # half of 16 s


@pytest.mark.parametrize("default_s", [0.0, -1.0, math.nan, math.inf])
def test_a_default_limit_is_positive(default_s: float) -> None:
    with refused(OptionError, field="default_limit_s"):
        gl.eta(LAB, pa.table(QUEUE), "fifo", at=40, default_limit_s=default_s)


def test_jobs_that_should_have_started_long_ago_are_counted() -> None:
    """On two servers, `long` and `wide` fit at once next to `runs`, and `huge` does not."""
    two = gl.Cluster.homogeneous(servers=2, gpus=4)
    queue = pa.table({**QUEUE, "time_limit_s": [9000, 50, 60, 5]})

    def told(at: float) -> list[str]:
        found = gl.eta(two, queue, at=at)
        return [said for said in found.sentences() if "have already" in said or "has a" in said]

    assert told(3630.0) == []  # `long` has waited for 3,600 s
    assert told(3631.0)[0].startswith(
        "1 job starts now in this forecast, but has already waited for 1 h. A scheduler"
    )
    both = told(3930.0)
    assert both[0].startswith("2 jobs start now in this forecast, but have already waited for ")
    assert "for more than 1 h, one of them for 1 h 5 min. A scheduler" in both[0]


def test_an_interval_is_of_orders_of_the_draws() -> None:
    """With one running job the start in each draw is its end, which is drawn here directly."""
    queue = pa.table({name: column[:2] for name, column in QUEUE.items()})
    found = gl.eta(LAB, queue, "fifo", at=40, estimate_error=0.5, draws=39, seed=3)
    random = np.random.Generator(np.random.Philox(3))
    level = np.stack([random.random(2) for _ in range(39)])[:, 0]
    from statistics import NormalDist

    normal = NormalDist()
    past = normal.cdf(math.log(30.0 / 100.0) / 0.5)
    ends = sorted(
        100.0 * math.exp(0.5 * normal.inv_cdf(past + at * (1.0 - past))) - 30.0 for at in level
    )
    one = found["long"]
    # k = 40 * 0.1 = 4: the fourth from both ends, and the 20th is the median
    assert (one.from_in_s, one.start_in_s, one.to_in_s) == pytest.approx(
        (ends[3], ends[19], ends[35]), abs=1e-8
    )


def test_the_same_arguments_give_the_same_numbers() -> None:
    def run(**more: Any) -> list[Any]:
        made = gl.eta(LAB, pa.table(QUEUE), "easy", at=40, estimate_error=0.5, **more)
        return [(one.from_in_s, one.start_in_s, one.to_in_s, one.cause) for one in made]

    assert repr(run(workers=1)) == repr(run(workers=2))
    assert repr(run(seed=1)) != repr(run(seed=2))


@pytest.mark.parametrize("policy", ["gavel-las", "themis", "tiresias", "srtf", "yarn-cs", "dally"])
def test_running_jobs_run_on(policy: str) -> None:
    """They run at the moment under every policy, including those in rounds."""
    table = pa.table(
        {
            "arrival_s": [0.0, 100.0, 150.0, 700.0, 900.0],
            "gpus": [2, 1, 1, 4, 1],
            "trace_status": ["running"] * 3 + ["pending"] * 2,
            "observed_start_s": [0.0, 111.0, 333.0, None, None],
            "time_limit_s": [5000.0, 2000.0, 3000.0, 50.0, 60.0],
        }
    )
    found = gl.eta(LAB, table, policy, at=1000.0)
    assert (found.running, found.unplaced) == (3, 0)
    assert all(math.isfinite(one.start_in_s) for one in found)


@pytest.mark.parametrize("at", [40, 47.5, 61])
def test_slurm_looks_at_the_whole_queue_at_the_moment(at: float) -> None:
    # a second after a pass, `wide` would wait for the next one, though it has a place
    found = gl.eta(LAB, pa.table(QUEUE), "slurm", at=at)
    assert causes(found) == {"long": "no place", "wide": "starts now", "huge": "too large"}
    # `runs` is expected to end a minute after a moment of 61 s, `wide` is then over, and delays
    assert starts(found)["long"] == max(110.0, at + 60.0) - at


@pytest.mark.parametrize(
    ("policy", "cause"), [("slurm", "order"), ("easy", "reserved job long, in 1 min 10 s")]
)
def test_policies_plan_with_limits_and_not_with_the_run_times_drawn(
    policy: str, cause: str
) -> None:
    """`runs` is taken to end in 30 s; `wide` takes 20 s, but its limit is 200 s.

    By limits `runs` ends in 70 s, and `wide` would delay `long`.
    """
    history = {"job_id": list("abcdefghijklmnopqrst"), "arrival_s": [0] * 20, "gpus": [1] * 20}
    ended = {"observed_start_s": [0] * 20, "duration_s": [10.0] * 20, "time_limit_s": [100] * 20}
    log = pa.table({**history, **ended, "trace_status": ["finished"] * 20})
    queue = {**QUEUE, "time_limit_s": [100, 50, 200, 5]}
    found = gl.eta(LAB, pa.table(queue), policy, at=40, history=log, draws=9)
    assert causes(found)["wide"] == cause


def test_the_run_time_of_a_job_without_a_limit_is_what_a_policy_plans_with() -> None:
    history = {"job_id": list("abcdefghijklmnopqrst"), "arrival_s": [0] * 20, "gpus": [2] * 20}
    ended = {"observed_start_s": [0] * 20, "duration_s": [60.0] * 20}
    log = pa.table({**history, **ended, "trace_status": ["finished"] * 20})
    queue = pa.table({name: QUEUE[name] for name in QUEUE if name != "time_limit_s"})
    found = gl.eta(LAB, queue, "easy", at=40, history=log, draws=9)
    # all take 60 s: `runs` has 30 s left, and `wide` would delay `long`
    assert causes(found)["wide"] == "reserved job long, in 30 s"


def test_a_job_beyond_a_limit_is_not_said_to_be_too_large_for_the_cluster_alone() -> None:
    params = {"qos_user_gpus": {"normal": 2}}
    found = gl.eta(LAB, pa.table(QUEUE), "slurm", at=40, params=params)
    assert causes(found)["long"] == "too large"
    assert "or a limit or quota allows fewer" in str(found)


def test_slurm_subtracts_nice() -> None:
    queue = {**QUEUE, "gpus": [4, 4, 4, 4], "nice": [0, 500, 0, 0]}
    found = gl.eta(LAB, pa.table(queue), "slurm", at=40, params={"weight_job_size": 1000})
    # 1000 for a job of all GPUs, less 500
    assert starts(found) == {"wide": 70.0, "huge": 130.0, "long": 135.0}


def test_a_cluster_that_is_too_small_is_said() -> None:
    small = gl.Cluster.homogeneous(servers=1, gpus=1)
    found = gl.eta(small, pa.table(QUEUE), at=40)
    assert found.unplaced == 1
    assert "Check that this is the cluster" in " ".join(found.sentences())


def test_types_that_the_cluster_lacks_are_said() -> None:
    table = pa.table({**QUEUE, "gpu_types": [["a100"]] * 4})
    found = gl.eta(gl.Cluster.homogeneous(servers=1, gpus=4, gpu="A100"), table, at=40)
    assert found.unknown_types == ["a100"]
    # the type is what is wrong, whatever the size
    assert set(causes(found).values()) == {"unknown type a100"}
    assert (
        "unknown type: it can never run: the cluster has no GPU type with exactly this name"
        in str(found)
    )
    assert "too large" not in str(found)
    mixed = pa.table(
        {**QUEUE, "gpu_types": [["A100"], ["A100"], ["a100", "h100"], ["a100", "A100"]]}
    )
    found = gl.eta(gl.Cluster.homogeneous(servers=1, gpus=4, gpu="A100"), mixed, at=40)
    assert sorted(causes(found).values()) == ["no place", "too large", "unknown type a100, h100"]
    assert "`a100`" in " ".join(found.sentences())


def test_a_policy_of_the_users_own_gives_its_words() -> None:
    class Nobody(gl.Policy):
        """Starts no wide job, and gives this as the reason."""

        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            plan = gl.Plan(view)
            for job in view.waiting.job:
                plan.place(job)
            return plan

        def why(self, view: gl.View, job: int) -> gl.Reason:
            return gl.Reason("it is not its day")

    found = gl.eta(LAB, pa.table(QUEUE), Nobody(), at=40)
    assert causes(found)["long"] == "it is not its day"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"draws": 1}, "draws"),
        ({"draws": 2.0}, "draws"),
        ({"draws": 10, "level": 0.9}, "draws"),
        ({"level": 1.0}, "level"),
        ({"level": 0.0}, "level"),
        ({"estimate_error": -0.1}, "estimate_error"),
        ({"estimate_error": math.nan}, "estimate_error"),
        ({"estimate_error": 0.5, "history": "log.csv"}, "estimate_error"),
        ({"workers": 0}, "workers"),
    ],
)
def test_wrong_options(options: dict[str, Any], field: str) -> None:
    with refused(OptionError, field=field):
        gl.eta(LAB, pa.table(QUEUE), at=40, **options)


def test_a_queue_in_which_none_waits() -> None:
    queue = pa.table({name: column[:1] for name, column in QUEUE.items()})
    with refused(TraceError, value=40.0):
        gl.eta(LAB, queue, at=40)


def test_coverage_under_fifo() -> None:
    """Under fifo later jobs cannot matter, so the coverage is exactly 80 % in the long run."""
    for source in ("error", "history"):
        found = script.synthetic("fifo", source, 25)
        low, high = script.bounds(25, alpha=1e-4)
        assert low <= sum(one.is_in for one in found) <= high, source


def arriving(policy: str, **options: Any) -> gl.Eta:
    """Until 100 a job of one GPU came and ran every 10 s; then one runs to 150 and two wait."""
    count = 10
    table = pa.table(
        {
            "job_id": [*map(str, range(count)), "runs", "wide", "last"],
            "arrival_s": [*(10.0 * one for one in range(count)), 95.0, 96.0, 97.0],
            "gpus": [1] * count + [2, 4, 3],
            "duration_s": [7.0] * count + [55.0, 20.0, 30.0],
            "trace_status": ["finished"] * count + ["running", "unknown", "unknown"],
            "observed_start_s": [*(10.0 * one for one in range(count)), 95.0, None, None],
            "time_limit_s": [7.0] * count + [55.0, 20.0, 30.0],
        }
    )
    return gl.eta(LAB, table, policy, at=100.0, estimate_error=0.0, draws=39, **options)


def test_later_jobs_change_nothing_under_fifo() -> None:
    for found in (arriving("fifo"), arriving("fifo", arrivals=True)):
        assert starts(found) == {"wide": 50.0, "last": 70.0}
        assert [(one.from_in_s, one.to_in_s) for one in found] == [(50.0, 50.0), (70.0, 70.0)]


def test_later_jobs_go_first_where_the_policy_lets_them() -> None:
    alone, found = arriving("fifo-skip"), arriving("fifo-skip", arrivals=True)
    # `last` needs three GPUs and waits for `runs`, as `wide` does, which is before it
    assert starts(alone) == {"wide": 50.0, "last": 70.0}
    # jobs of one GPU fit beside `runs`: one that runs at 50 holds `wide` back until it is done
    assert found["wide"].to_in_s > 50.0
    assert found.spread.arrivals
    assert "arrive later" in " ".join(found.sentences())


def test_arrivals_are_blocks_of_the_log() -> None:
    arrival = [0.0, 10.0, 40.0, 41.0, 45.0]
    duration = [5.0, 6.0, 7.0, 8.0, 9.0]
    trace = gl.Trace.from_arrow(
        pa.table({"arrival_s": arrival, "gpus": [1, 2, 3, 4, 5], "duration_s": duration})
    )
    run_s = np.asarray([5.0, np.nan, 7.0, 8.0, 9.0])
    seen = Arrivals(trace, np.arange(5), run_s, 1e9, 3)
    # the gap before each job; before the first the mean, a quarter of 45 s
    gaps = [11.25, 10.0, 30.0, 1.0, 4.0]
    firsts = set()
    for _ in range(40):
        come = seen.draw(np.asarray([66.0, 99.0]))
        rows = come.rows.tolist()
        firsts.add(rows[0])
        assert len(rows) == 2_000
        assert 0.0 < come.in_s[0] <= gaps[rows[0]] + 0.001
        assert np.diff(come.in_s) == pytest.approx([gaps[row] for row in rows[1:]])
        assert come.run_s.tolist() == [[5.0, 66.0, 7.0, 8.0, 9.0][row] for row in rows]
        # blocks of two, of a log that was drawn in blocks of two: every other pair at least half
        # the time is one of the log, which one of 25 would be by chance
        pairs = list(zip(rows[::2], rows[1::2], strict=True))
        assert sum(b == (a + 1) % 5 for a, b in pairs) > len(pairs) / 4
    assert firsts == {0, 1, 2, 3, 4}
    near = Arrivals(trace, np.arange(5), run_s, 15.0, 3)
    assert all(near.draw(np.ones(1)).in_s.max(initial=0.0) <= 15.001 for _ in range(20))


def test_arrivals_differ_as_logs_of_that_length_do() -> None:
    """The number that comes in a time has the variance of the log and of what follows it.

    Gaps are exponential, so that each of the two alone has that of a Poisson count.
    """
    count, horizon_s = 400, 400.0
    arrival = np.cumsum(np.random.default_rng(5).exponential(1.0, count))
    jobs = {"arrival_s": arrival, "gpus": [1] * count, "duration_s": [1.0] * count}
    trace = gl.Trace.from_arrow(pa.table(jobs))
    seen = Arrivals(trace, np.arange(count), np.ones(count), horizon_s, 3)
    comes = np.asarray([len(seen.draw(np.empty(0)).rows) for _ in range(400)])
    mean = horizon_s * count / float(arrival[-1])
    assert comes.mean() == pytest.approx(mean, rel=0.02)
    assert 1.3 * mean < comes.var() < 3.0 * mean


def test_all_that_came_at_once_come_once() -> None:
    jobs = {"arrival_s": [0.0] * 3, "gpus": [1] * 3, "duration_s": [1.0] * 3}
    seen = Arrivals(gl.Trace.from_arrow(pa.table(jobs)), np.arange(3), np.ones(3), 9.0, 3)
    assert len(seen.draw(np.empty(0)).rows) == 3


def test_arrivals_of_another_log() -> None:
    log = pa.table({"arrival_s": [0.0, 1.0], "gpus": [1, 1], "duration_s": [3.0, 4.0]})
    found = gl.eta(LAB, pa.table(QUEUE), "fifo", at=40, history=log, arrivals=True)
    assert found.spread.jobs == 2
    assert "fewer than 20" in " ".join(found.sentences())
    assert found.spread.source == "history"


def test_bounds_of_a_binomial_count() -> None:
    # four tosses of a fair coin have 0 or 4 heads with 1/16 each, and 1 or 3 with 4/16 each
    assert script.bounds(4, 0.5, 0.2) == (1, 3)
    assert script.bounds(4, 0.5, 0.1) == (0, 4)


def test_command(tmp_path: Path) -> None:
    lines = ["job_id,arrival_s,gpus,trace_status,observed_start_s,time_limit_s"]
    lines += ["runs,0,2,running,10,100", "long,30,4,pending,,50", "wide,31,2,pending,,60"]
    (tmp_path / "queue.csv").write_text("\n".join(lines) + "\n")
    asked = ("eta", "--trace", "queue.csv", "--cluster", "1x4xA100", "--at", "40")
    found = json.loads(gangline(*asked, "--json", cwd=tmp_path).stdout)
    assert [one["start_in_s"] for one in found["forecasts"]] == [70.0, 120.0]
    assert found["forecasts"][1]["cause"]["text"] == "behind job long"
    shown = gangline(*asked, "--job", "wide", "--policy", "easy", cwd=tmp_path)
    assert shown.returncode == 0
    assert "starts now" in shown.stdout
    assert "long" not in shown.stdout.split("why not now")[1].split("Every job")[0]
    nodes = "NodeName=a Gres=gpu:4 State=IDLE\n\nNodeName=b Gres=gpu:4 State=IDLE+DRAIN\n"
    (tmp_path / "nodes.txt").write_text(nodes)
    listed = gangline(*asked[:3], "--cluster", "nodes.txt", "--at", "40", cwd=tmp_path)
    assert "note: servers_away 1: " in listed.stderr
    assert gangline(*asked, "--job", "runs", cwd=tmp_path).returncode == 2
    assert gangline(*asked, "--limit", "1", cwd=tmp_path).returncode == 2
