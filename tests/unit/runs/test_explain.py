"""Tests explanations of waiting against the run, GPU by GPU, and in worlds by hand."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline import policies
from gangline.cli._inputs import dropped
from gangline.cli.app import main
from gangline.errors import ResultError
from gangline.policies.choice import resolve_policy
from gangline.policies.registry import make
from gangline.runs.execution import Worlds
from gangline.runs.explain.face import explain
from gangline.runs.explain.watched import policy_labels
from refusals import refused
from unit.runs.explain_oracle import Oracle, check

if TYPE_CHECKING:
    from pathlib import Path

    from gangline.runs.explain.explanation import Explanation
    from snapshots import Snapshot

# Placement rules that may refuse a gang although enough GPUs are free, or none to choose at all.
STRICT = {
    "tiresias",
    "tiresias-gittins",
    "dally",
    "themis",
    "gandiva",
    "hadare",
    "pollux",
    "optimus",
}

EACH = 8
"""So many jobs apart are those that are looked at: each GPU at each instant takes its time."""


def explained(
    cluster: Any,
    trace: Any,
    policy: str,
    params: dict[str, Any] | None = None,
    *,
    each: int = 1,
    **options: Any,
) -> tuple[Oracle, dict[str, tuple[Explanation, list[int]]], bool]:
    """Return the run GPU by GPU, explanations of each nth job, and if gangs mix types."""
    worlds = Worlds()
    run = worlds.take(cluster, trace, policy, params=params, **{**options, "segments": True})
    plain = worlds.run(run)
    result, watched = worlds.watch(run, range(len(worlds.trace(run.spec.trace))))
    assert result.log_hash == plain.log_hash
    names = result.jobs["job_id"].to_pylist()
    said = {
        name: (explain(result, name, lambda *_: (result, watched)), watched.types[row])
        for row, name in list(enumerate(names))[::each]
    }
    return Oracle(result, run.spec.build_cluster(), watched.outages), said, watched.mixes_types


def check_all(
    policy: str,
    cluster: Any,
    trace: Any,
    params: dict[str, Any] | None = None,
    *,
    each: int = EACH,
    **options: Any,
) -> set[str]:
    oracle, said, mixes = explained(cluster, trace, policy, params, each=each, **options)
    strict = policy in STRICT or policy.startswith(("gavel", "sjf-"))
    strict |= (params or {}).get("placement") not in (None, "consolidate")
    causes: set[str] = set()
    for one, types in said.values():
        if one.status == "dropped":
            assert (one.waits, one.runs) == ([], [])
            continue
        causes |= check(oracle, one, types, mixes=mixes, is_strict=strict)
        assert one.note == ""
        assert str(one)
        assert one._repr_html_()
        assert json.dumps(one.to_dict())
    return causes


@pytest.mark.parametrize("policy", list(policies.registry))
def test_explanations_are_true_of_the_run(policy: str) -> None:
    made = make(policy, {})
    checked = 0
    for cluster, trace, options in gl.testing.small_worlds():
        try:
            check_all(policy, cluster, trace, **options)
        except gl.GanglineError as error:
            assert not isinstance(error, ResultError), made
            continue
        checked += 1
    assert checked >= 1, "no world of these is one for this policy"


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("fifo", {"placement": "yarn"}),
    ("fifo-skip", {"placement": "whole_servers"}),
    ("easy", {"estimate_error": 0.5, "placement": "skew"}),
    ("srtf", {"preempt_min_run_s": 20.0, "placement": "yarn"}),
    ("las", {"discretised": False, "las_quantum": 30.0}),
    ("las", {"limits": [50.0, 300.0], "promote_knob": 1.0}),
    ("hadar", {"mix_types": False, "backfill": False, "round_s": 60.0}),
    ("sjf-ffs", {"block": True}),
]


@pytest.mark.parametrize(("policy", "params"), VARIANTS)
def test_explanations_of_variants_are_true(policy: str, params: dict[str, Any]) -> None:
    for cluster, trace, options in gl.testing.small_worlds()[:5]:
        if not (params.get("promote_knob") and "checkpoint_interval_s" in options):
            check_all(policy, cluster, trace, params, **options)


def test_a_user_of_a_queue_waits_behind_its_own_head() -> None:
    causes = set()
    for cluster, trace, options in gl.testing.small_worlds():
        if "user" in trace.columns:
            causes |= check_all("yarn-cs", cluster, trace, {"queue_by": "user"}, **options)
    assert {"quota", "behind"} <= causes


def test_jobs_of_kueue_wait_for_quota_for_their_turn_and_after_a_preemption() -> None:
    """By hand: a1 lends b its quota back at 1, may return at 2 and does when b1 ends."""
    jobs = pa.table(
        {
            "arrival_s": [0.0, 0.0, 1.0, 2.0],
            "gpus": [2, 2, 2, 1],
            "duration_s": [10.0, 10.0, 3.0, 1.0],
            "vc": ["a", "a", "b", "a"],
        }
    )
    queues = [
        {"name": "a", "cohort": "x", "strategy": "StrictFIFO", "flavors": quota(2)},
        {"name": "b", "cohort": "x", "reclaim": "Any", "flavors": quota(2)},
    ]
    run = gl.simulate(LAB, jobs, "kueue", params={"queues": queues})
    assert spans(run.explain(0)) == [(1.0, 2.0, "evicted", None), (2.0, 4.0, "no quota", None)]
    assert {one.gpus for one in run.explain(0).waits[0].stretches} == {None, 2}
    assert "  2 s: its queue `a` held 2 GPUs of the types" in str(run.explain(0))
    assert "job 0 (2 GPUs) was at the head of its queue `a` and" in str(run.explain(3))
    # at 4 job 0 takes the GPUs that b gives back; the quota of both is used until job 1 ends
    assert spans(run.explain(3)) == [(2.0, 4.0, "behind", "0"), (4.0, 10.0, "no quota", None)]


def test_jobs_of_kai_wait_for_a_limit_and_for_the_quota_of_fixed_jobs() -> None:
    """By hand: the quota of a is full until job 0 ends, and the limit of b until job 2 ends."""
    jobs = pa.table(
        {
            "arrival_s": [0.0, 1.0, 2.0, 3.0],
            "gpus": [1, 1, 1, 1],
            "duration_s": [10.0, 1.0, 5.0, 1.0],
            "vc": ["a", "a", "b", "b"],
            "priority": [100, 100, 50, 50],
        }
    )
    queues = [{"name": "a", "quota": 1}, {"name": "b", "limit": 1}]
    run = gl.simulate(LAB, jobs, "kai", params={"queues": queues})
    assert spans(run.explain(1)) == [(1.0, 10.0, "over quota", None)]
    assert spans(run.explain(3)) == [(3.0, 7.0, "limit", None)]
    assert "held 1 GPU of the quota of its queue `a` or of one above it" in str(run.explain(1))
    assert "  4 s: its queue `b`, or one above it, held 1 GPU" in str(run.explain(3))


def test_a_queue_is_named_only_if_the_policy_has_several() -> None:
    """One queue of kueue has all jobs, jobs without a label are in `default`; braces are text."""
    jobs = gl.Trace.from_arrow(
        pa.table(
            {
                "arrival_s": [0.0, 1.0, 1.0],
                "gpus": [4, 4, 4],
                "duration_s": [9.0, 9.0, 9.0],
                "vc": ["{a}", "{a}", None],
            }
        )
    )

    def queue(policy: str, row: int, **params: Any) -> dict[str, str]:
        return policy_labels(resolve_policy(policy, params), jobs, row)

    assert queue("kueue", 0) == queue("yarn-cs", 0) == queue("fifo", 0) == {}
    assert queue("yarn-cs", 0, queue_by="vc") == queue("kai", 0) == {"queue": "{a}"}
    assert queue("kai", 2) == {"queue": "default"}
    assert queue("kai", 0, queue_by="user") == {"queue": "default"}
    queues = [{"name": name, "limit": 3} for name in ("{a}", "default")]
    queues[0]["limit"] = 4
    run = gl.simulate(LAB, jobs, "kai", params={"queues": queues}, on_infeasible="drop")
    assert "its queue `{a}`, or one above it, held 4 GPUs" in str(run.explain(1))


def test_jobs_of_slurm_wait_for_a_limit_for_their_turn_and_after_a_preemption() -> None:
    """By hand, on two servers of four GPUs; passes are due at multiples of 30 s."""
    lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    rows = {"arrival_s": [0.0, 1.0, 2.0], "time_limit_s": [100.0, 100.0, 300.0]}

    def run(params: dict[str, Any], gpus: list[int], duration_s: list[float], **of: Any) -> Any:
        jobs = pa.table({**rows, "gpus": gpus, "duration_s": duration_s, **of})
        return gl.simulate(lab, jobs, "slurm", params=params)

    # one user may have four GPUs, and has them until 100
    limit = {"qos_user_gpus": {"normal": 4}}
    held = run(limit, [4, 4, 4], [100.0, 50.0, 10.0], user=["u", "u", "v"])
    assert spans(held.explain(1)) == [(1.0, 100.0, "user limit", None)]
    assert "its user `u` may hold 4 GPUs in its QOS (qos_user_gpus)" in str(held.explain(1))
    # job 1 has all GPUs from 100 to 150; job 2 fits until then, and would hold them for 300 s
    behind = run({}, [4, 8, 4], [100.0, 50.0, 200.0])
    assert spans(behind.explain(1)) == [(1.0, 100.0, "no place", None)]
    assert spans(behind.explain(2)) == [
        (2.0, 100.0, "order", None),
        (100.0, 150.0, "no place", None),
    ]
    # job 1 stops job 0 at 1; 120 s later it may start again, and the next pass is at 150
    urgent = {"qos_preempt": {"high": ["low"]}}
    stopped = run(urgent, [8, 8, 1], [500.0, 10.0, 1.0], qos=["low", "high", "normal"]).explain(0)
    assert spans(stopped) == [(1.0, 150.0, "requeue delay", None)]
    assert {one.until_s for one in stopped.waits[0].stretches} == {121.0}
    # job 0 starts again at 150, and job 2 stops it once more at 200
    jobs = {"arrival_s": [0.0, 1.0, 200.0], "gpus": [8, 8, 8], "duration_s": [500.0, 10.0, 10.0]}
    twice = gl.simulate(
        lab, pa.table({**jobs, "qos": ["low", "high", "high"]}), "slurm", params=urgent
    )
    assert "does not start it again before +2 min 1 s, then +5 min 20 s" in str(twice.explain(0))


@pytest.mark.parametrize(
    ("params", "cause", "words"),
    [
        (
            {"qos_grp_gpus": {"high": 6}},
            "QOS limit",
            "the jobs of its QOS `high` may hold 6 GPUs (qos_grp_gpus)",
        ),
        (
            {"qos_user_jobs": {"high": 1}},
            "job limit",
            "its user `u` may run 1 job at a time in its QOS `high` (qos_user_jobs)",
        ),
        (
            {"account_grp_gpus": {"bio": 7}},
            "account limit",
            "its account `bio` or one above it may hold 7 GPUs (account_grp_gpus)",
        ),
    ],
)
def test_a_limit_of_slurm_is_named_with_its_amount(
    params: dict[str, Any], cause: str, words: str
) -> None:
    """By hand: job 0 holds 4 of 8 GPUs until 100, and with job 1 the limit would be exceeded."""
    lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    rows = {"arrival_s": [0.0, 1.0], "gpus": [4, 4], "duration_s": [100.0, 50.0]}
    names = {"user": ["u", "u"], "qos": ["high", "high"], "account": ["bio", "bio"]}
    jobs = pa.table(rows | names)
    said = gl.simulate(lab, jobs, "slurm", params=params).explain(1)
    assert spans(said) == [(1.0, 100.0, cause, None)]
    assert f"1 min 39 s: {words}, and starting it would have exceeded this" in str(said)


def test_an_explanation_begins_with_the_date_of_the_arrival(tmp_path: Path) -> None:
    """By hand: the second job arrives two minutes after the first, as summer time begins."""
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,submit_time,gpus,duration\n"
        "a,2024-03-31 01:59:00,4,100\n"
        "b,2024-03-31 03:01:00,4,100\n"
    )
    columns = {"arrival_s": "submit_time", "duration_s": "duration"}
    trace = gl.read_trace(path, columns=columns, zone="Europe/Berlin")
    said = gl.simulate(LAB, trace, "fifo").explain("b")
    assert said.arrival_date == "2024-03-31 03:01:00 CEST"
    assert str(said).startswith("Job b asked for 4 GPUs on 2024-03-31 03:01:00 CEST (120 s). Under")
    assert said.to_dict()["arrival_date"] == said.arrival_date


def test_a_stopped_job_gets_no_other_gpus_from_the_same_decision() -> None:
    """By hand, on two servers of two GPUs under tiresias; VGG11 must not be spread.

    Job 0 is on server 0. Jobs 1 and 2 take the second GPU of server 0 and a GPU of server 1 at
    2,000 s. Job 3 comes before job 0, which goes down a queue at 3,250 s, and is admitted by its
    number of GPUs, but needs a server with two free GPUs. At 4,000 s job 4 also comes before job 0
    and takes its GPU. The last GPU of server 1 is free, and job 0 gets GPUs again at the next
    decision, when job 4 ends.
    """
    lab = gl.Cluster.homogeneous(servers=2, gpus=2)
    jobs = {
        "arrival_s": [0.0, 2000.0, 2000.0, 3000.0, 4000.0],
        "gpus": [1, 1, 1, 2, 1],
        "duration_s": [5000.0, 8000.0, 8000.0, 4000.0, 500.0],
        "model": ["VGG11", "VGG11", "VGG11", "VGG11", "ResNet50"],
    }
    said = gl.simulate(lab, pa.table(jobs), "tiresias").explain(0)
    assert spans(said)[0] == (4000.0, 4500.0, "stopped", None)
    assert "tiresias had just stopped it" in str(said)
    assert "accepted none of them" not in str(said)
    assert "servers that can hold" not in str(said)  # a single GPU is never spread


def test_scattered_gpus_are_no_place_under_slurm_if_gangs_must_be_on_one_server() -> None:
    """By hand: jobs 0 and 1 leave one GPU on each of two servers until 100.

    Job 2 could only be on both servers. Job 3 has a place, which job 2 before it keeps from it.
    """
    lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    rows = {"arrival_s": [0.0, 0.0, 1.0, 2.0], "gpus": [3, 3, 2, 1]}
    jobs = pa.table({**rows, "duration_s": [100.0, 300.0, 50.0, 10.0]})

    def run(max_level: str) -> Any:
        params = {"max_level": max_level, "backfill": False}
        return gl.simulate(lab, jobs, "slurm", params=params)

    strict = run("server")
    assert spans(strict.explain(2)) == [(1.0, 100.0, "no place", None)]
    assert spans(strict.explain(3)) == [(2.0, 100.0, "order", None)]
    # a gang that may be on several servers starts at once
    assert run("network").jobs["first_start_s"].to_pylist() == [0.0, 0.0, 1.0, 51.0]


@pytest.mark.parametrize(
    ("policy", "params"),
    [
        ("slurm", {"partition_types": {"new": ["A100"]}}),
        (
            "kueue",
            {
                "queue_by": "partition",
                "queues": [
                    {"name": "new", "flavors": [{"gpu": "A100", "nominal": 4}]},
                    {"name": "default", "flavors": [{"gpu": "V100", "nominal": 4}]},
                ],
            },
        ),
    ],
)
def test_gpus_outside_the_partition_of_a_job_are_none_that_it_can_use(
    policy: str, params: dict[str, Any]
) -> None:
    """Job 1 waits for the A100 of job 0, while the V100 are free and then run job 2."""
    part = {"partition": ["new", "new", None], "arrival_s": [0.0, 1.0, 2.0]}
    jobs = pa.table({**part, "gpus": [4, 4, 1], "duration_s": [100.0, 50.0, 20.0]})
    said = gl.simulate("1x4xA100,1x4xV100", jobs, policy, params=params).explain(1)
    assert {one.state for one in said.waits[0].stretches} == {"too few"}
    assert [(one.start_s, one.end_s) for one in said.waits] == [(1.0, 100.0)]


def quota(nominal: int) -> list[dict[str, Any]]:
    return [{"gpu": LAB.gpu_types[0].name, "nominal": nominal}]


def table(*rows: tuple[float, int, float]) -> pa.Table:
    return worlds.jobs(*rows)


def said_of(policy: str, job: int, lab: Any, jobs: Any, **given: Any) -> Explanation:
    return gl.simulate(lab, jobs, policy, **given).explain(job)


def spans(said: Explanation) -> list[tuple[float, float, str | None, str | None]]:
    """Return the reasons of a job: begin, end, cause, other job."""
    found: list[tuple[float, float, str | None, str | None]] = []
    for wait in said.waits:
        for one in wait.stretches:
            key = (one.cause, one.job_id)
            if found and found[-1][1] == one.start_s and found[-1][2:] == key:
                found[-1] = (found[-1][0], one.end_s, *key)
            else:
                found.append((one.start_s, one.end_s, *key))
    return found


LAB = gl.Cluster.homogeneous(servers=1, gpus=4)


def test_fifo_stands_behind_the_blocked_head_then_at_the_head(snapshot: Snapshot) -> None:
    jobs = table((0, 2, 100), (1, 4, 50), (2, 1, 10))
    said = said_of("fifo", 2, LAB, jobs)
    # Job 1 needs all four GPUs and starts at 100; job 2 is first from then on.
    assert spans(said) == [(2.0, 100.0, "behind", "1"), (100.0, 150.0, "no place", None)]
    assert [one.state for one in said.waits[0].stretches] == ["together", "too few"]
    snapshot(str(said))


def test_easy_names_the_reservation() -> None:
    jobs = table((0, 3, 100), (1, 4, 50), (2, 1, 200), (3, 1, 20))
    head = said_of("easy", 1, LAB, jobs)
    assert spans(head) == [(1.0, 100.0, "promised", None)]
    assert {one.until_s for one in head.waits[0].stretches} == {100.0}
    long = said_of("easy", 2, LAB, jobs)
    # It would end at 202, after the head's reservation at 100; job 3 is short enough.
    assert spans(long)[0] == (2.0, 3.0, "reserved", "1")
    assert (3.0, 23.0, "no place", None) in spans(long)
    assert [(one.job_id, one.outranks) for one in long.waits[0].passed_by] == [("3", True)]
    assert said_of("easy", 3, LAB, jobs).waits == []


def test_srtf_names_who_outranks_and_who_took_the_gpus(snapshot: Snapshot) -> None:
    jobs = table((0, 4, 100), (10, 2, 20))
    said = said_of("srtf", 0, LAB, jobs)
    assert spans(said) == [(10.0, 30.0, "outranked", "1")]
    assert [(run.end, run.taken_by) for run in said.runs] == [
        ("preempted", {"1": 2}),
        ("finished", {}),
    ]
    snapshot(str(said))


def test_gpus_that_later_jobs_already_held_count_as_free(snapshot: Snapshot) -> None:
    """By hand: job 0 ends at 100, and all eight GPUs would be free then.

    Job 2 has four of them from 2 to 302. Job 3, if there is one, has the others from 100 to 250.
    """
    lab = gl.Cluster.homogeneous(servers=1, gpus=8)
    rows = [(0, 4, 100), (1, 8, 50), (2, 4, 300), (3, 4, 150)]
    for count, passed in ((4, [("2", False), ("3", True)]), (3, [("2", False)])):
        said = said_of("fifo-skip", 1, lab, table(*rows[:count]))
        (wait,) = said.waits
        assert (wait.start_s, wait.end_s, wait.enough_s) == (1.0, 302.0, 100.0)
        assert [(one.job_id, one.outranks) for one in wait.passed_by] == passed
        snapshot(str(said))
    # if job 0 stays as long as job 2, there are never more than four
    never = said_of("fifo-skip", 1, lab, table((0, 4, 302), *rows[1:3]))
    assert math.isnan(never.waits[0].enough_s)
    snapshot(str(never))


def test_tiresias_after_its_demotion() -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=1)
    jobs = table((0, 1, 100), (10, 1, 30))
    said = said_of("las", 0, lab, jobs, params={"limits": [20.0]})
    # At 20 it has attained its limit and goes down; the newcomer runs from 20 to 40, then is
    # demoted too, and the older of the two goes first.
    assert spans(said)[0] == (20.0, 40.0, "outranked", "1")
    assert said.runs[0].taken_by == {"1": 1}


def test_dally_waits_for_one_server_until_its_delay_is_over(snapshot: Snapshot) -> None:
    lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    jobs = table((0, 3, 10000), (0, 3, 10000), (10, 2, 50))
    params = {"lease_s": 100000, "mode": "manual", "rack_delay": 0.002, "network_delay": 0.004}
    said = said_of("dally", 2, lab, jobs, params=params)
    assert [(wait.start_s, wait.end_s) for wait in said.waits] == [(10.0, 210.0)]
    (stretch,) = said.waits[0].stretches
    assert (stretch.cause, stretch.state) == ("delayed", "apart")
    assert (stretch.tier, stretch.until_s) == ("server", 210.0)
    snapshot(str(said))


def test_dally_names_the_delay_that_counts() -> None:
    rows = {"count": 4, "gpu": "A", "gpus": 4, "rack": "fill:2"}
    lab = gl.Cluster.from_dict({"gpu_types": [{"name": "A", "memory_gb": 16}], "servers": [rows]})
    jobs = table(*[(0, 3, 10000)] * 4, (10, 3, 50))
    params = {"lease_s": 100000, "mode": "manual", "rack_delay": 0.002, "network_delay": 0.004}
    said = said_of("dally", 4, lab, jobs, params=params)
    # One GPU of each server is free, two of each rack: that it accepts a rack from 210 s on is of
    # no use, and at 410 s it accepts any servers.
    (stretch,) = said.waits[0].stretches
    assert (stretch.cause, stretch.tier, stretch.until_s) == ("delayed", "rack", 410.0)
    assert (stretch.start_s, stretch.end_s) == (10.0, 410.0)


def test_what_a_queue_holds_may_change_while_a_job_waits(snapshot: Snapshot) -> None:
    jobs = table((0, 3, 100), (0, 1, 50), (2, 4, 10), (1000, 1, 1))
    jobs = jobs.append_column("user", pa.array(["a", "a", "a", "b"]))
    said = said_of("yarn-cs", 2, LAB, jobs, params={"queue_by": "user"})
    held = [(one.start_s, one.end_s, one.gpus) for one in said.waits[0].stretches]
    assert held == [(2.0, 50.0, 4), (50.0, 100.0, 3)]
    snapshot(str(said))


def test_yarn_names_what_its_queue_holds(snapshot: Snapshot) -> None:
    jobs = table((0, 3, 100), (1, 1, 100), (2, 2, 10), (3, 1, 10))
    jobs = jobs.append_column("user", pa.array(["a", "b", "a", "a"]))
    params = {"queue_by": "user"}
    said = said_of("yarn-cs", 2, LAB, jobs, params=params)
    assert spans(said) == [(2.0, 100.0, "quota", None)]
    snapshot(str(said))
    assert spans(said_of("yarn-cs", 3, LAB, jobs, params=params))[0] == (3.0, 100.0, "behind", "2")


def test_a_round_is_waited_for() -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    jobs = table((0, 1, 1000), (10, 1, 100))
    for policy in ("gavel-las", "hadar"):
        said = said_of(policy, 1, lab, jobs, params={"round_s": 60.0})
        assert spans(said)[0][:3] == (10.0, 60.0, "not asked"), policy
        assert "it decides at round boundaries, every 1 min" in str(said)


def test_hadar_names_the_price() -> None:
    causes = set()
    for cluster, trace, options in gl.testing.small_worlds():
        causes |= check_all("hadar", cluster, trace, {"backfill": False}, each=1, **options)
    assert "price" in causes


def test_sjf_bsbf_names_the_refusal_to_share() -> None:
    lab = gl.Cluster.from_dict({**LAB.to_dict(), "sharing": {"xi": 1.9}})
    # Both are slowed so much that sharing pays only beside a job that is much longer.
    said = said_of("sjf-bsbf", 1, lab, table((0, 4, 100), (1, 4, 90)))
    assert spans(said) == [(1.0, 100.0, "no partner", None)]


def test_gandiva_takes_turns() -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=1)
    said = said_of("gandiva", 0, lab, table((0, 1, 300), (1, 1, 300)))
    assert {cause for _, _, cause, _ in spans(said)} == {"turn"}
    assert {other for _, _, _, other in spans(said)} == {"1"}


def test_a_failure_is_no_preemption(snapshot: Snapshot) -> None:
    data = {**LAB.to_dict(), "failures": {"table": [{"server": 0, "down_s": 10, "up_s": 40}]}}
    said = said_of("fifo", 0, gl.Cluster.from_dict(data), table((0, 2, 100)))
    assert next((run.start_s, run.end_s, run.end) for run in said.runs) == (0.0, 10.0, "failed")
    assert [(wait.start_s, wait.end_s) for wait in said.waits] == [(10.0, 40.0)]
    snapshot(str(said))
    assert [one.gpus_down_max for one in said.waits[0].stretches] == [4]


def test_jobs_that_the_end_of_the_run_cut_off(snapshot: Snapshot) -> None:
    jobs = table((0, 4, 1000), (1, 4, 10), (800, 4, 10))
    result = gl.simulate(LAB, jobs, "fifo", until_s=500.0)
    runs, waits, comes = (str(result.explain(job)) for job in range(3))
    snapshot(runs)
    snapshot(waits)
    late = "It was to arrive at 800 s (13 min 20 s), after the end of the run."
    assert comes == f"Job 2 asked for 4 GPUs. {late}"


def test_an_arrival_is_written_as_in_the_trace(snapshot: Snapshot) -> None:
    """The CSV has seconds since 1970 without separators, so the explanation does, too."""
    epoch_s = 1_763_932_933
    jobs = table((epoch_s, 4, 1000), (epoch_s + 80_000, 4, 10))
    result = gl.simulate(LAB, jobs, "fifo", until_s=epoch_s + 500.0)
    runs, comes = (str(result.explain(job)) for job in range(2))
    snapshot(runs)
    assert "It was to arrive at 1764012933 s" in comes


def test_the_bar_shows_turns() -> None:
    said = said_of(
        "gandiva", 0, gl.Cluster.homogeneous(servers=1, gpus=1), table((0, 1, 3000), (1, 1, 3000))
    )
    lines = str(said).splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("The life of the job"))
    assert "+ = both" in lines[at]
    assert lines[at + 1].count("+") > 10
    assert any("more times with and without GPUs" in line for line in lines)


def test_what_a_job_may_get_counts_as_enough(snapshot: Snapshot) -> None:
    cluster, trace, options = gl.testing.small_worlds()[-1]
    said = gl.simulate(cluster, trace, "pollux", **options)
    of = {row["job_id"]: said.explain(row["job_id"]) for row in said.jobs.to_pylist()[:12]}
    assert {one.gpus_min for one in of.values() if one.gpus > 1} > {1}, "elastic and others"
    assert any("(1 is enough)" in str(one) for one in of.values())
    rigid = gl.simulate(cluster, trace, "fifo", **options)
    assert all(rigid.explain(name).gpus_min == one.gpus for name, one in of.items())
    copies = said_of("hadare", 0, gl.Cluster.homogeneous(servers=3, gpus=2), table((0, 1, 1e5)))
    assert (copies.gpus_min, copies.runs[0].copies) == (2, 3)
    snapshot(str(copies))
    wide = said_of("fifo", 0, gl.Cluster.homogeneous(servers=3, gpus=2), table((0, 6, 1e5)))
    assert wide.runs[0].copies == 1
    snapshot(str(wide))


def test_a_job_that_can_never_run() -> None:
    said = said_of("fifo", 1, LAB, table((0, 1, 1), (0, 9, 1)), on_infeasible="drop")
    assert "can never run on this cluster" in str(said)


@pytest.mark.parametrize(
    ("policy", "params"),
    [
        ("kai", {"queues": [{"name": "b", "limit": 4}], "queue_by": "account"}),
        ("kai", {"queues": [{"name": "b", "quota": 4}], "queue_by": "account"}),
        (
            "kueue",
            {
                "queues": [{"name": "b", "flavors": [{"gpu": "gpu", "nominal": 4}]}],
                "queue_by": "account",
            },
        ),
        ("slurm", {"account_grp_gpus": {"b": 4}}),
    ],
)
def test_a_job_beyond_its_limit_is_told_the_limit(
    policy: str, params: dict[str, Any], snapshot: Snapshot
) -> None:
    lab = gl.Cluster.homogeneous(servers=2, gpus=4, gpu="gpu")
    jobs = pa.table(
        {
            "arrival_s": [0.0],
            "gpus": [6],
            "duration_s": [1.0],
            "account": ["b"],
            "priority": [100],
        }
    )
    with refused(gl.InfeasibleJobError, snapshot, job=0):
        gl.simulate(lab, jobs, policy, params=params)
    left = gl.simulate(lab, jobs, policy, params=params, on_infeasible="drop")
    snapshot(str(left.explain("0")), *dropped(left))
    assert left.explain("0").to_dict()["never"]


class Late(gl.Policy):
    """Starts its first job at the end of a minute, on the first GPU."""

    wake_on = ("arrival", "timer")

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        if view.now_s < 60.0:
            plan.wake_at(60.0)
        else:
            plan.start(0, {0: 1})
        return plan


def test_a_policy_in_python_gets_what_was_free() -> None:
    result = gl.simulate(LAB, table((0, 1, 10)), Late())
    said = result.explain(0)
    assert [(one.cause, one.state) for one in said.waits[0].stretches] == [(None, "together")]
    assert "the policy left them" in str(said)


def test_parts_of_an_explanation_are_values() -> None:
    said = said_of("fifo", 2, LAB, table((0, 2, 100), (1, 4, 50), (2, 1, 10)))
    stretches = said.waits[0].stretches
    assert [stretches[at].cause for at in (0, 1, -1)] == ["behind", "no place", "no place"]
    assert [one.job_id for one in stretches[1:]] == [None]
    assert len(stretches) == 2
    with pytest.raises(IndexError):
        stretches[2]


def test_a_job_with_fewer_copies_goes_on(snapshot: Snapshot) -> None:
    lab = gl.Cluster.homogeneous(servers=3, gpus=1)
    jobs = table((0, 1, 9000), (0, 1, 9000), (30, 1, 900))
    first, *_ = [
        line for line in str(said_of("hadare", 0, lab, jobs)).splitlines() if "6 min as" in line
    ]
    snapshot(first)


def test_saved_runs_are_repeated(tmp_path: Path, snapshot: Snapshot) -> None:
    jobs = table((0, 2, 100), (1, 4, 50), (2, 1, 10))
    path = tmp_path / "jobs.parquet"
    gl.write_trace(gl.Trace.from_arrow(jobs), path)
    result = gl.simulate(LAB, path, "fifo")
    fresh = result.explain(2).to_dict()
    saved = gl.load_result(result.save(tmp_path / "plain"))
    kept = gl.load_result(result.save(tmp_path / "kept", explain=True))
    assert saved.explain(2).to_dict() == fresh
    path.unlink()
    assert kept.explain(2).to_dict() == fresh
    with refused(ResultError, snapshot):
        saved.explain(2)
    long = gl.simulate(LAB, jobs, "fifo", segments=True)
    alone = gl.load_result(long.save(tmp_path / "segments")).explain(2)
    assert "the trace was a table in memory" in alone.note
    assert [one.state for one in alone.waits[0].stretches] == ["together", "too few"]


def test_unknown_jobs_are_named() -> None:
    result = gl.simulate(LAB, table((0, 1, 10)), "fifo")
    with refused(ResultError, key="job"):
        result.explain(17)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    run = ["run", "--trace", "synth:philly?jobs=60&seed=1&max_gpus=8", "--policy", "fifo"]
    cluster = tmp_path / "c.toml"
    cluster.write_text(gl.Cluster.homogeneous(servers=1, gpus=8).to_toml())
    assert main([*run, "--cluster", str(cluster), "--explain", "--out", out, "--json"]) == 0
    capsys.readouterr()
    worst = max(gl.load_result(out).jobs.to_pylist(), key=lambda row: row["wait_s"])["job_id"]
    assert main(["explain", out, "--job", worst]) == 0
    assert f"Job {worst} asked for" in capsys.readouterr().out
    assert main(["explain", out, "--job", worst, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    lengths = [one["end_s"] - one["start_s"] for w in document["waits"] for one in w["stretches"]]
    assert math.isclose(sum(lengths), document["wait_s"])
    assert main(["explain", out, "--job", "nope"]) == 2
    assert "no job `nope`" in capsys.readouterr().err
