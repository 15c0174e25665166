"""Tests pairs of jobs on the same GPUs (`packed = true`): shares, received time, refusals."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline.cli.app import main
from lp.shares import Shares
from parity.draws import PAIRING
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

PROGRAMS = tuple(name for name in PAIRING if name != "gavel-gandiva")


def pool(gpus: int = 1, **sharing: Any) -> dict[str, Any]:
    """Return one server, with the slowdown factor of jobs."""
    return worlds.lab(f"1x{gpus} g @0", name="pool", sharing={"xi": 1.25} | sharing)


def alike(count: int, length_s: float = 36000.0) -> gl.Trace:
    """Return equal jobs of one GPU that arrive together."""
    return worlds.trace(*((str(i), 0, 1, length_s) for i in range(count)))


@pytest.mark.parametrize("policy", PROGRAMS)
def test_what_each_job_is_promised_fits_its_time_and_the_gpus(policy: str) -> None:
    """By hand, alone and shared time of a job sum to at most 1, and GPUs of pairs count once."""
    rng = np.random.default_rng(5)
    jobs, kinds = 9, 3
    kind = rng.integers(0, kinds, jobs)
    speed = rng.uniform(1.0, 9.0, (kinds, 2))
    xi = rng.uniform(1.0, 1.9, (kinds, kinds, 1))
    arrays = {
        "rates": speed[kind],
        "scale": np.ones(jobs),
        "capacity": np.array([2.0, 1.0]),
        "weight": np.ones(jobs),
        "age_s": np.linspace(0.0, 50.0, jobs),
        "steps_remaining": rng.uniform(10.0, 500.0, jobs),
    }
    pair_rates = speed[:, None, :] / xi
    shares = Shares(policy, {"packed": True})
    alone, beside = shares.packed(jobs=np.arange(jobs), kind=kind, pair_rates=pair_rates, **arrays)
    time, gpus = alone.sum(axis=1), alone.sum(axis=0)
    for row, _, gpu_type, share in beside:
        time[row] += share
        gpus[gpu_type] += share / 2
    assert beside, "sharing pays here"
    assert (time <= 1.0 + 1e-6).all()
    assert (gpus <= arrays["capacity"] + 1e-6).all()


def test_time_received_by_each_pair_approaches_its_share() -> None:
    """With three equal jobs on one GPU, each of the three pairs has a third of the time."""
    result = gl.simulate(
        pool(), alike(3), gl.policies.GavelLas(packed=True), segments=True, until_s=36000.0
    )
    together: Counter[tuple[str, ...]] = Counter()
    for row in result.segments.to_pylist():
        pair = tuple(sorted((row["job_id"], row["co_runner"])))
        together[pair] += (row["end_s"] - row["start_s"]) / 2
    assert sorted(together) == [("0", "1"), ("0", "2"), ("1", "2")]
    assert all(abs(held - 12000.0) <= 2 * 360.0 for held in together.values())


def test_sharing_pays_where_both_gain_and_only_there() -> None:
    """Two equal jobs of 3600 s on one GPU take 1.25 x 3600 s if they share, or run in turn."""
    policy = gl.policies.GavelLas(packed=True)
    good = gl.simulate(pool(xi=1.25), alike(2, 3600.0), policy)
    assert good.summary["makespan_s"] == 4500.0
    bad = gl.simulate(pool(xi=2.5), alike(2, 3600.0), policy)
    assert bad.summary["makespan_s"] == 7200.0
    assert sum(bad.jobs["share_s"].to_pylist()) == 0.0


def test_jobs_that_need_too_much_memory_together_take_turns() -> None:
    rows = [
        {"job_id": i, "arrival_s": 0.0, "gpus": 1, "duration_s": 3600.0, "memory_gb": need}
        for i, need in (("a", 9.0), ("b", 7.5))
    ]
    trace = gl.Trace.from_arrow(pa.Table.from_pylist(rows))
    result = gl.simulate(pool(), trace, gl.policies.GavelLas(packed=True))
    assert result.summary["makespan_s"] == 7200.0


SHARERS: dict[str, Any] = {
    "packed rounds": gl.policies.GavelLas(packed=True),
    "random pairs": "gavel-gandiva",
    "packing trials": gl.policies.Gandiva(pack=True),
    "a policy in Python": worlds.Together(),
}


@pytest.mark.parametrize("policy", SHARERS.values(), ids=list(SHARERS))
def test_sharing_needs_a_source_of_slowdown_factors(policy: Any, snapshot: Snapshot) -> None:
    """The number of jobs on a GPU does not determine their slowdown factors."""
    silent = pool()
    for given in ({}, {"max_share": 2}, {"gang_xi": "mean"}):
        silent["sharing"] = given
        with refused(gl.OptionError, field="sharing") as caught:
            gl.simulate(silent, alike(2), policy)
        assert "`--set sharing.xi=1.25` on the command line" in str(caught.value)
        assert '`sharing={"xi": 1.25}` in Python' in str(caught.value)
    del silent["sharing"]
    # before its first run, a comparison knows the needs of a shipped policy, but not of a class
    error = gl.OptionError if isinstance(policy, worlds.Together) else gl.PolicyError
    with refused(error, snapshot):
        gl.compare(silent, alike(2), [policy])
    assert gl.simulate(silent, alike(2), policy, sharing={"xi": 1.5}).summary["finished"] == 2


def test_policies_that_put_one_job_on_a_gpu_need_no_source() -> None:
    plain = {key: value for key, value in pool().items() if key != "sharing"}
    for policy in ("gandiva", "gavel-las"):
        assert gl.simulate(plain, alike(2), policy).summary["finished"] == 2
    alone = plain | {"sharing": {"max_share": 1}}
    with pytest.raises(gl.PlanError):  # two jobs are on a GPU, but the run allows one
        gl.simulate(alone, alike(2), worlds.Together())


def test_the_spec_says_by_what_jobs_slow_each_other_down() -> None:
    run = gl.simulate(pool(xi=1.5, max_share=2), alike(2), "fifo")
    assert run.spec["sharing"] == {
        "max_share": 2,
        "interference": "constant",
        "xi": 1.5,
        "gang_xi": "max",
        "memory_fixed_fraction": 0.5,
        "acc_cost": 0.05,
    }
    rows = [
        {"model": "a", "co_model": "a", "xi": 1.5},
        {"model": "b", "co_model": "b", "xi": 1.5},
    ]
    table = pool() | {"sharing": {"interference": "table", "rows": rows, "missing": "infeasible"}}
    jobs = {"arrival_s": [0.0] * 2, "gpus": [1] * 2, "duration_s": [5.0] * 2, "model": ["a"] * 2}
    first, same = (gl.simulate(table, pa.table(jobs), "fifo").spec["sharing"] for _ in range(2))
    assert first == same
    assert len(first.pop("sha256")) == 64
    assert first == {
        "interference": "table",
        "gang_xi": "max",
        "memory_fixed_fraction": 0.5,
        "acc_cost": 0.05,
        "missing": "infeasible",
        "gang_fallback": "single",
    }
    rows[1]["xi"] = 1.6  # no job has model b
    assert gl.simulate(table, pa.table(jobs), "fifo").spec["sharing"] == same
    rows[0]["xi"] = 1.6
    assert gl.simulate(table, pa.table(jobs), "fifo").spec["sharing"] != same
    plain = {key: value for key, value in pool().items() if key != "sharing"}
    assert "sharing" not in gl.simulate(plain, alike(2), "fifo").spec


def test_pairs_that_are_absent_need_a_number() -> None:
    sharing = {"interference": "table", "rows": [], "missing": "constant"}
    sharing["rows"] = [{"model": "a", "co_model": "a", "xi": 1.5}]
    with refused(gl.ClusterError, key="sharing.xi", value="none"):
        gl.Cluster.from_dict(pool() | {"sharing": sharing})


def test_a_run_that_allows_one_job_per_gpu_is_refused() -> None:
    with refused(gl.PolicyError, field="max_share", value="1"):
        gl.simulate(pool(max_share=1), alike(2), gl.policies.GavelFtf(packed=True))


def test_the_public_timing_knows_no_pairs() -> None:
    with refused(gl.PolicyError, field="packed", value="true"):
        gl.simulate(pool(), alike(2), gl.policies.GavelLas(packed=True, compat=True))


def test_the_command_line_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["run", "--trace", "synth:philly?jobs=5&seed=1&max_gpus=2", "--cluster", "pollux-64"]
    assert main([*given, "--policy", "gavel-las", "--set", "packed=true"]) == 2
    assert "[sharing]" in capsys.readouterr().err


def test_random_pairs_take_equal_turns_and_stay_together() -> None:
    """Four equal jobs on one GPU, at 0.8 when shared, make two pairs with half of the time each."""
    result = gl.simulate(
        pool(), alike(4), gl.policies.GavelGandiva(), segments=True, until_s=36000.0
    )
    together: Counter[tuple[str, ...]] = Counter()
    for row in result.segments.to_pylist():
        pair = tuple(sorted((row["job_id"], row["co_runner"])))
        together[pair] += (row["end_s"] - row["start_s"]) / 2
    assert sorted(job for pair in together for job in pair) == ["0", "1", "2", "3"]
    assert all(abs(held - 18000.0) <= 360.0 for held in together.values())


def test_random_pairs_depend_on_the_seed_alone() -> None:
    def partners(seed: int) -> tuple[Any, ...]:
        result = gl.simulate(
            pool(), alike(6), "gavel-gandiva", segments=True, until_s=3600.0, seed=seed
        )
        rows = result.segments.to_pylist()
        return tuple(sorted({(row["job_id"], row["co_runner"]) for row in rows}))

    found = {partners(seed) for seed in range(8)}
    assert len(found) > 1
    assert partners(3) == partners(3)


def test_random_pairs_need_a_run_that_shares() -> None:
    with refused(gl.PolicyError, field="max_share", value="1"):
        gl.simulate(pool(max_share=1), alike(2), "gavel-gandiva")
