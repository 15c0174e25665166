"""Tests the reasons of policies against the order of jobs in the tables, and by hand."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
import worlds
from gangline import _core
from gangline.cli.app import main
from gangline.errors import PolicyError
from refusals import refused
from unit.runs import explain_oracle
from unit.runs.explain_oracle import check_cause
from unit.runs.test_explain import LAB, check_all, explained, said_of, spans, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from snapshots import Snapshot
    from unit.runs.explain_oracle import Oracle

SEARCHES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("hadar", {"tier": "beam", "round_s": 60.0}, {"search"}),
    (
        "hadar",
        {"tier": "exact", "exact_max_jobs": 60, "backfill": False, "round_s": 60.0},
        {"search"},
    ),
    ("hadar", {"scan_limit": 1, "backfill": False}, {"price", "not looked at"}),
    ("hadar", {"order": "arrival"}, {"outranked", "outbid"}),
    ("pollux", {"search": "ga", "ga_generations": 10}, {"search"}),
    ("hadare", {"fill": False, "price_pass": True, "round_s": 60.0}, {"copies"}),
    ("hadare", {"min_share": 0.9, "round_s": 60.0}, {"copies", "no place"}),
]


@pytest.mark.parametrize(("policy", "params", "wanted"), SEARCHES)
def test_explanations_of_searches_are_true(
    policy: str, params: dict[str, Any], wanted: set[str]
) -> None:
    """`check_all` compares every reason with the run; these reasons name the policy's measure."""
    worlds = gl.testing.small_worlds()
    causes: set[str] = set()
    chosen = (0, 3, 6) if "tier" not in params else (0,)
    for cluster, trace, options in [worlds[at] for at in chosen]:
        causes |= check_all(policy, cluster, trace, params, each=2, **options)
    assert wanted <= causes


def test_the_greedy_search_of_pollux_never_says_that_it_searched_all_allocations() -> None:
    """Rigid gangs on servers of 4: some fit by count, but not on one server or whole idle ones."""
    lab = gl.Cluster.homogeneous(servers=6, gpus=4)
    jobs = "synth:philly?jobs=150&seed=3&max_gpus=16&load=1.5&cluster_gpus=24"
    oracle, said, _ = explained(lab, jobs, "pollux", restart_s=10.0)
    causes = set()
    for one, types in said.values():
        for wait in one.waits:
            for stretch in wait.stretches:
                causes.add(stretch.cause)
                if stretch.cause == "counted out":
                    check_cause(oracle, one, stretch, types, mixes=False, is_strict=True)
        assert "searched for the best" not in str(one)
        assert "placement rule" not in str(one)
    assert {"counted out", "outranked", "no place"} <= causes
    assert "search" not in causes


def test_an_arrival_between_two_nanoseconds_is_no_time_without_an_answer() -> None:
    """The engine rounds the arrival of job 1 up; it asks fifo at that instant."""
    said = said_of("fifo", 1, LAB, table((0, 4, 5000), (1971.4258485999999, 1, 10)))
    assert spans(said) == [(1971.4258486, 5000.0, "no place", None)]
    assert "not been asked" not in str(said)


def test_every_declared_reason_is_held_against_the_run() -> None:
    """A reason that the oracle does not know would pass whatever it claims."""
    code = inspect.getsource(explain_oracle)
    declared = {reason["name"] for entry in _core.registry() for reason in entry["reasons"]}
    unknown = {name for name in declared if f'"{name}"' not in code}
    assert unknown == {"no share"}  # no table of a run contains shares


def whole_steps() -> gl.Trace:
    """Return only jobs of whole iterations."""
    rows = [(float(i * 37 % 101), 1 + i * 5 % 4, 60.0 * (1 + i * 7 % 9)) for i in range(24)]
    return gl.Trace.from_arrow(table(*sorted(rows)))


@pytest.mark.parametrize("policy", ["gavel-las", "gavel-max-sum"])
def test_explanations_of_public_timing_are_true(policy: str) -> None:
    lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    params = {"compat": True, "round_s": 60.0}
    causes = check_all(policy, lab, whole_steps(), params, each=1)
    assert {"outranked", "next decision"} & causes
    assert "no place" not in causes


def served(oracle: Oracle, job: str, time_s: float) -> float:
    """Return the GPU-seconds that a job has had."""
    rows = [row for row in oracle.segments if row["job_id"] == job]
    spans = [max(0.0, min(row["end_s"], time_s) - row["start_s"]) for row in rows]
    masks = [row["gpu_mask"].bit_count() for row in rows]
    return sum(span * gpus for span, gpus in zip(spans, masks, strict=True))


def left(oracle: Oracle, job: str, time_s: float) -> float:
    """Return the time that a job still needs on its GPUs, in a world where nothing slows it."""
    whole = served(oracle, job, oracle.last_s)
    return (whole - served(oracle, job, time_s)) / oracle.jobs[job]["gpus"]


def service_left(oracle: Oracle, job: str, time_s: float) -> float:
    return left(oracle, job, time_s) * oracle.jobs[job]["gpus"]


def by_queue(oracle: Oracle, job: str, time_s: float) -> float:
    """Return queue (down at 50 and 300 GPU-seconds) and first start as one number."""
    queue = sum(served(oracle, job, time_s) >= limit - 1e-6 for limit in (50.0, 300.0))
    first_s = oracle.jobs[job]["first_start_s"]
    return queue * 1e6 + (first_s if first_s <= time_s else 5e5)


def led(oracle: Oracle, job: str, time_s: float) -> float:
    """Return the service of a job; one that runs has a lead of 10 GPU-seconds per GPU."""
    lead = 10.0 * oracle.jobs[job]["gpus"] if job in oracle.running(time_s) else 0.0
    return served(oracle, job, time_s) - lead


def arrival(oracle: Oracle, job: str, _: float) -> float:
    return float(oracle.jobs[job]["arrival_s"])


RANKS: list[tuple[str, dict[str, Any], Callable[[Oracle, str, float], float]]] = [
    ("srtf", {}, left),
    ("srsf", {}, service_left),
    ("las", {"limits": [50.0, 300.0]}, by_queue),
    ("las", {"discretised": False, "las_quantum": 10.0}, led),
    ("pollux", {}, served),
    ("optimus", {"period_s": 60.0}, arrival),
    ("hadar", {"order": "arrival", "round_s": 60.0}, arrival),
    ("hadar", {"order": "srtf", "round_s": 60.0}, left),
]


@pytest.mark.parametrize(("policy", "params", "key"), RANKS)
def test_the_job_named_is_the_largest_of_those_that_come_first(
    policy: str, params: dict[str, Any], key: Callable[[Oracle, str, float], float]
) -> None:
    """By the segments: no job that ranks behind is ever named, and none that is smaller."""
    cluster, trace, options = gl.testing.small_worlds()[0]
    oracle, said, _ = explained(cluster, trace, policy, params, **options)
    order = {name: at for at, name in enumerate(oracle.jobs)}
    seen = 0
    for job, (one, _) in said.items():
        reasons = [stretch for wait in one.waits for stretch in wait.stretches]
        for reason in reasons:
            if reason.cause != "outranked":
                continue
            at, own = reason.decided_s, key(oracle, job, reason.decided_s)
            ahead = {other: own - key(oracle, other, at) for other in oracle.running(at)}
            # what differs by rounding alone may come first or not
            before = {other for other, lead in ahead.items() if lead > 1e-6}
            before |= {
                other for other, lead in ahead.items() if not lead and order[other] < order[job]
            }
            assert reason.job_id in before or abs(ahead[str(reason.job_id)]) <= 1e-6, (job, reason)
            assert reason.gpus >= max([oracle.jobs[other]["gpus"] for other in before], default=1)
            seen += len(before) > 1
    assert seen > 20, "too few waits with a choice of jobs to name"


WIDE = gl.Cluster.homogeneous(servers=1, gpus=8)
FOUR = table((0, 1, 4000), (0, 2, 4000), (0, 6, 4000), (0, 5, 4000))
"""Jobs 0 and 1 leave five of eight GPUs: job 2 needs six, and job 3, the largest, comes later."""


@pytest.mark.parametrize(("policy", "params"), [("pollux", {}), ("hadar", {"order": "arrival"})])
def test_the_largest_job_before_it_is_named_and_none_behind(
    policy: str, params: dict[str, Any]
) -> None:
    said = said_of(policy, 2, WIDE, FOUR, params=params)
    assert spans(said)[0][2:] == ("outranked", "1")
    assert f"jobs that {policy} ranks before it held the GPUs, such as job 1 (2 GPUs)" in str(said)


def test_hadare_names_the_job_with_most_copies() -> None:
    lab = gl.Cluster.homogeneous(servers=3, gpus=1)
    jobs = table((0, 1, 100_000), (0, 1, 100_000), (30, 1, 100))
    said = said_of("hadare", 2, lab, jobs, params={"max_copies": 2})
    # Two jobs with two copies at most hold three servers until the round at 360.
    assert spans(said)[0] == (30.0, 360.0, "not asked", None)


def test_gavel_fifo_waits_for_the_next_allocation(snapshot: Snapshot) -> None:
    jobs = table((0, 3, 5000), (0, 2, 100), (0, 1, 100), (10, 1, 100))
    params = {"min_solve_interval_s": 1000.0, "round_s": 100.0}
    behind = said_of("gavel-fifo", 2, LAB, jobs, params=params)
    assert spans(behind)[0][2:] == ("behind", "1")
    late = said_of("gavel-fifo", 3, LAB, jobs, params=params)
    # Asked first at the round at 100; shares are worked out anew 1,000 s after the first time.
    assert spans(late)[:2] == [
        (10.0, 100.0, "not asked", None),
        (100.0, 1000.0, "next decision", None),
    ]
    assert spans(late)[2] == (1000.0, 5000.0, "behind", "1")
    snapshot(str(late))


class OneByOne(worlds.OneByOne):
    """Gives the first job in words."""

    def why(self, view: gl.View, job: int) -> str | gl.Reason | None:
        first = view.running("job")[0]
        if view.waiting("job")[0] != job:
            return "others come first"
        end_s = view.running("start_s")[0] + 60.0
        return gl.Reason("{job} ran alone, to {until}", first, end_s)


THREE = table((0, 2, 60), (1, 1, 60), (2, 1, 60))


def test_a_policy_in_python_says_its_own_reasons(snapshot: Snapshot) -> None:
    said = gl.simulate(LAB, THREE, OneByOne()).explain(2)
    assert spans(said) == [
        (2.0, 60.0, "own words", None),
        (60.0, 120.0, "own words", "1"),
    ]
    lines = [line.strip() for line in str(said).splitlines()]
    snapshot(lines)
    (stretch,) = said.to_dict()["waits"][0]["stretches"][1:]
    assert (stretch["words"], stretch["job_id"], stretch["until_s"]) == (
        "{job} ran alone, to {until}",
        "1",
        120.0,
    )


def test_words_about_several_jobs_stay_a_sentence(snapshot: Snapshot) -> None:
    class Names(OneByOne):
        def why(self, view: gl.View, job: int) -> gl.Reason:
            end_s = view.running("start_s")[0] + 60.0
            return gl.Reason("{job} ran alone, to {until}", view.running("job")[0], end_s)

    said = str(gl.simulate(LAB, table((0, 1, 60), (0, 1, 60), (0, 1, 60)), Names()).explain(2))
    snapshot(said)


def test_reasons_change_no_run() -> None:
    class Silent(OneByOne):
        why = gl.Policy.why

    silent = gl.simulate(LAB, THREE, Silent())
    assert silent.log_hash == gl.simulate(LAB, THREE, OneByOne()).log_hash
    assert [one.cause for one in silent.explain(2).waits[0].stretches] == [None]


@pytest.mark.parametrize(
    "answer",
    [
        17,
        "",
        "x" * 401,
        "{job} ran",
        gl.Reason("it ran", 0),
        gl.Reason("{job} ran", 3),
        gl.Reason("{job} ran", "a"),  # type: ignore[arg-type]
        gl.Reason("to {until}", None, float("nan")),
        gl.Reason("at last", None, 5.0),
    ],
)
def test_nonsense_is_refused(answer: Any, snapshot: Snapshot) -> None:
    class Odd(OneByOne):
        def why(self, view: gl.View, job: int) -> Any:
            return answer

    with refused(PolicyError, snapshot) as caught:
        gl.simulate(LAB, THREE, Odd()).explain(2)
    assert caught.value.field == "why"  # type: ignore[attr-defined]
    assert "raised by Odd at simulated time 2 s" in caught.value.__notes__[0]


@pytest.mark.parametrize("at_s", [0.0, 60.0, 120.0])
def test_an_error_in_why_passes_untouched(at_s: float) -> None:
    class Broken(OneByOne):
        def why(self, view: gl.View, job: int) -> str:
            if view.now_s >= at_s:
                raise KeyError("no such user")
            return "it waits"

    result = gl.simulate(LAB, THREE, Broken())
    if at_s > 60.0:  # the policy is not called any more
        assert result.explain(2).wait_s == 118.0
        return
    with pytest.raises(KeyError, match="no such user"):
        result.explain(2)


def test_a_policy_of_a_module_says_its_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_reasons.py").write_text(
        worlds.module_of(worlds.OneByOne, "Mine") + "\n"
        "    def why(self, view, job):\n"
        "        return 'one at a time'\n"
    )
    gl.write_trace(gl.Trace.from_arrow(THREE), tmp_path / "jobs.parquet")
    (tmp_path / "lab.toml").write_text(LAB.to_toml())
    run = [
        "run",
        "--trace",
        str(tmp_path / "jobs.parquet"),
        "--cluster",
        str(tmp_path / "lab.toml"),
    ]
    out = str(tmp_path / "out")
    assert main([*run, "--policy", "own_reasons:Mine", "--out", out, "--json"]) == 0
    capsys.readouterr()
    assert main(["explain", out, "--job", "2"]) == 0
    assert "1 min 58 s: one at a time" in capsys.readouterr().out
