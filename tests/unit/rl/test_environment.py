"""Tests `gangline/Scheduling-v0`: a run of `gl.Simulation` as an environment of gymnasium."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import gangline as gl
from gangline.rl import REWARDS, SchedulingEnv
from gangline.testing import strategies
from refusals import refused
from worlds import jobs, lab

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangline.testing import World
    from snapshots import Snapshot

ID = "gangline/Scheduling-v0"
LAB = gl.Cluster.homogeneous(servers=3, gpus=4)
DRAWN = "synth:philly?jobs=30&max_gpus=8"
MIXED = lab("2x4 slow", "1x8 fast*2")
FAILING = lab("3x4 g", failures={"mtbf_hours": 6.0, "mttr_hours": 0.5})
# with checkpoints, failures cannot undo a long job for ever
KEEP: Any = {"checkpoint_interval_s": 600.0}
EVERY_JOB = 64  # there are more places than waiting jobs


def oldest(env: SchedulingEnv) -> int:
    """Start the first job that has a place."""
    return int(env.action_masks().argmax())


def shortest(env: SchedulingEnv) -> int:
    """Start the shortest job that has a place; of equal ones the first."""
    seen = env.jobs_in_window
    length = np.where(seen["has_place"] > 0, seen["remaining_s"], np.inf)
    return int(length.argmin())


def anything(seed: int) -> Callable[[SchedulingEnv], int]:
    """Take any action that is possible."""
    rng = np.random.default_rng(seed)

    def choose(env: SchedulingEnv) -> int:
        return int(rng.choice(np.flatnonzero(env.action_masks())))

    return choose


def play(
    env: SchedulingEnv, choose: Callable[[SchedulingEnv], int], **reset: Any
) -> tuple[list[Any], float, dict[str, Any]]:
    """Return the observations, the sum of rewards and the last info of an episode."""
    seen, total, ended = [], 0.0, False
    observation, info = env.reset(**reset)
    while not ended:
        assert env.observation_space.contains(observation)
        assert info["action_mask"].tolist() == env.action_masks().tolist()
        seen.append(observation)
        observation, reward, ended, truncated, info = env.step(choose(env))
        assert not truncated
        total += reward
    assert env.observation_space.contains(observation)
    return seen, total, info


def test_the_checker_of_gymnasium_is_content() -> None:
    check_env(gymnasium.make(ID, cluster=LAB, trace=DRAWN).unwrapped)
    online = gymnasium.make(f"gangline.rl:{ID}", cluster=MIXED, trace=DRAWN, knowledge="online")
    check_env(online.unwrapped)


def test_a_world_by_hand() -> None:
    # on one GPU A takes 10 s and B 2 s from 0 s on, and C takes 1 s from 20 s on
    trace = jobs("A 0 1 10", "B 0 1 2", "C 20 1 1")
    env = SchedulingEnv(lab("1x1 g"), trace, window=2)
    _, info = env.reset()
    assert info["action_mask"].tolist() == [1, 1, 1]
    assert env.jobs_in_window["remaining_s"].tolist() == [10.0, 2.0]
    # A runs for 10 s while B waits; then B has a place
    _, reward, ended, _, info = env.step(0)
    assert (reward, ended, info["action_mask"].tolist()) == (-20.0, False, [1, 0, 1])
    # B ends at 12 s; nothing happens until C comes at 20 s
    _, reward, ended, _, info = env.step(0)
    assert (reward, ended, info["action_mask"].tolist()) == (-2.0, False, [1, 0, 0])
    _, reward, ended, _, info = env.step(0)
    assert (reward, ended) == (-1.0, True)
    # the slowdowns are 1, 6 and 1, and the GPU works 13 of 21 s
    expected = {"jct": 23.0, "wait": 10.0, "slowdown": 8.0, "makespan": 21.0, "utilization": 8.0}
    assert info["totals"] == pytest.approx(expected, rel=1e-12)


def test_time_before_the_first_choice_counts() -> None:
    down = {"table": [{"server": 0, "down_s": 0.0, "up_s": 5.0}]}
    env = SchedulingEnv(lab("1x1 g", failures=down), jobs("A 0 1 10", "B 2 1 1"))
    env.reset()
    assert env.simulation.now_s == 5.0
    _, reward, *_ = env.step(0)
    assert reward == -(15.0 + 13.0)


def test_an_episode_without_jobs_ends_at_once() -> None:
    env = SchedulingEnv(lab("1x1 g"), jobs("A 0 4 10"), on_infeasible="drop")
    _, info = env.reset()
    assert info["action_mask"].tolist() == [0] * 16 + [1]
    _, reward, ended, *_ = env.step(16)
    assert (reward, ended) == (0.0, True)


def test_every_cluster_has_as_many_gpus_as_its_environment_says() -> None:
    for name in gl.Cluster.presets():
        env = SchedulingEnv(name, jobs("0 1 10"), on_infeasible="drop")
        env.reset()
        servers = env.simulation.view.servers
        kinds = env.simulation.view.labels("gpu_type")
        for kind, label in enumerate(kinds):
            own = servers.gpus[servers.gpu_type == kind]
            assert env.scales[f"free[{label}]"] == own.sum(), name
            assert env.scales[f"largest_free[{label}]"] == own.max(), name


def test_what_is_shown_is_on_a_logarithmic_scale() -> None:
    env = SchedulingEnv(lab("1x1 A", "1x4 B*2"), jobs("0 1 9", "0 4 99"), window=3)
    observation, _ = env.reset()
    assert env.job_columns == (
        "present", "has_place", "wait_s", "gpus", "attained_gpu_s",
        "speed[A]", "speed[B]", "remaining_s",
    )  # fmt: skip
    month, half = np.log1p(30 * 86_400), np.log(1.5) / np.log(2)
    # 9 s are at speed 1, and B has speed 2: 4.5 s; the gang of four fits on B alone
    first = [1, 1, 0, np.log(2) / np.log(6), 0, half, 1, np.log(5.5) / month]
    assert observation["jobs"][0] == pytest.approx(first, rel=1e-6)
    second = [1, 1, 0, np.log(5) / np.log(6), 0, 0, 1, np.log(50.5) / month]
    assert observation["jobs"][1][[0, 1, 2, 3, 4, 6, 7]] == pytest.approx(
        [second[at] for at in (0, 1, 2, 3, 4, 6, 7)], rel=1e-6
    )
    assert not observation["jobs"][2].any()
    waits = [np.log(3) / np.log(1001), np.log(6) / np.log(5001), 0, 0]
    assert observation["cluster"] == pytest.approx([1, 1, 1, 1, 1, 1, *waits], rel=1e-6)


@pytest.mark.parametrize("world", [LAB, MIXED, FAILING])
@pytest.mark.parametrize("reward", REWARDS)
def test_rewards_add_up_to_what_the_result_says(world: Any, reward: str) -> None:
    env = SchedulingEnv(world, DRAWN, reward=reward, restart_s=60.0, **KEEP)
    for seed in range(3):
        _, total, info = play(env, anything(seed), seed=seed)
        result = env.result()
        summary, table = result.summary, result.jobs
        expected = {
            "jct": np.sum(table["jct_s"].to_numpy()),
            "wait": np.sum(table["wait_s"].to_numpy()),
            "slowdown": np.sum(table["slowdown"].to_numpy()),
            "makespan": summary["makespan_s"],
            "utilization": summary["makespan_s"] * (1.0 - summary["gpu_utilization"]),
        }
        assert summary["finished"] == 30
        assert total == pytest.approx(-expected[reward], rel=1e-9)
        assert info["totals"] == pytest.approx(expected, rel=1e-9)


def test_rewards_can_be_weighed() -> None:
    env = SchedulingEnv(LAB, DRAWN, reward={"jct": 0.5, "utilization": 2.0})
    _, total, info = play(env, oldest, seed=3)
    totals = info["totals"]
    assert total == pytest.approx(-0.5 * totals["jct"] - 2.0 * totals["utilization"], rel=1e-9)


@pytest.mark.parametrize("world", [LAB, MIXED, FAILING])
@pytest.mark.parametrize("seed", [1, 2])
def test_an_agent_that_acts_as_a_policy_makes_its_run(world: Any, seed: int) -> None:
    address = f"{DRAWN}&seed={seed}"
    env = SchedulingEnv(world, address, window=EVERY_JOB, seed=0, **KEEP)
    play(env, oldest)
    assert env.result().log_hash == gl.simulate(world, address, "fifo-skip", **KEEP).log_hash
    play(env, shortest)
    assert env.result().log_hash == gl.simulate(world, address, "sjf", **KEEP).log_hash


def test_estimates_are_those_of_the_policies() -> None:
    address = f"{DRAWN}&seed=5"
    env = SchedulingEnv(LAB, address, window=EVERY_JOB, estimate_error=1.0, seed=7)
    play(env, shortest)
    params = {"estimate_error": 1.0}
    blurred = gl.simulate(LAB, address, "sjf", params=params, seed=7)
    assert env.result().log_hash == blurred.log_hash
    assert blurred.log_hash != gl.simulate(LAB, address, "sjf").log_hash


def test_placement_rules_are_those_of_the_policies() -> None:
    address = f"{DRAWN}&seed=5"
    params: dict[str, Any] = {"placement": "consolidate", "max_level": "server"}
    trace = "synth:philly?jobs=30&max_gpus=4&seed=5"
    strict = gl.simulate(LAB, trace, "fifo-skip", params=params)
    env = SchedulingEnv(LAB, trace, window=EVERY_JOB, placement_params={"max_level": "server"})
    play(env, oldest)
    assert env.result().log_hash == strict.log_hash
    spread = SchedulingEnv(LAB, address, window=EVERY_JOB, placement="spread")
    play(spread, oldest)
    params = {"placement": "spread"}
    assert (
        spread.result().log_hash == gl.simulate(LAB, address, "fifo-skip", params=params).log_hash
    )


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 99), window=st.integers(1, 6))
def test_the_mask_says_what_is_possible(seed: int, window: int) -> None:
    env = SchedulingEnv(MIXED, DRAWN, window=window, masked="raise")
    choose = anything(seed)
    _, info = env.reset(seed=seed)
    ended, is_new = False, True
    while not ended:
        mask = info["action_mask"]
        for action in np.flatnonzero(mask == 0):
            with refused(
                gl.OptionError,
                field="action",
                value=int(action),
                expected="one that `action_mask` allows",
            ):
                env.step(action)
        if is_new:  # jobs of the plan must not count, so another way tests for a place
            fork = env.simulation.fork()
            waiting = fork.view.waiting.job[:window].tolist()
            places = [gl.Plan(fork.view).place(job) for job in waiting]
            assert mask[:-1].tolist() == [*places, *[False] * (window - len(places))]
        before = env.simulation.now_s
        _, _, ended, _, info = env.step(choose(env))
        is_new = not ended and env.simulation.now_s > before
    for action in (-1, window + 1):
        env.reset()
        with refused(
            gl.OptionError, field="action", value=action, expected="one that `action_mask` allows"
        ):
            env.step(action)


def test_an_impossible_start_waits() -> None:
    trace = jobs("A 0 1 10", "B 0 2 2", "C 0 1 5")
    env = SchedulingEnv(lab("1x2 g"), trace, window=4)
    env.reset()
    env.step(0)
    assert env.action_masks().tolist() == [False, True, False, False, True]
    _, reward, *_ = env.step(0)  # B has no place and waits for A
    assert (reward, env.simulation.now_s) == (-30.0, 10.0)
    assert env.action_masks().tolist() == [True, True, False, False, False]
    _, reward, *_ = env.step(4)  # otherwise nothing would happen, so B starts
    assert (reward, env.jobs_in_window["gpus"].tolist()) == (-4.0, [1.0])


@settings(max_examples=40, deadline=None)
@given(world=strategies.plain_worlds(), seed=st.integers(0, 9))
def test_drawn_worlds_are_played_to_the_end(world: World, seed: int) -> None:
    env = SchedulingEnv(world.cluster, world.trace, window=3, masked="raise", **world.options)
    _, total, _ = play(env, anything(seed))
    result = env.result()
    assert result.summary["finished"] + result.summary["dropped"] == len(world.jobs)
    assert total == pytest.approx(-np.nansum(result.jobs["jct_s"].to_numpy()), rel=1e-9)


def test_a_seed_repeats_an_episode() -> None:
    env, other = (SchedulingEnv(FAILING, DRAWN, **KEEP) for _ in range(2))
    first, total, _ = play(env, anything(1), seed=11)
    trace = env.trace
    again, same_total, _ = play(other, anything(1), seed=11)
    assert other.trace.table.equals(trace.table)
    assert same_total == total
    assert all(
        np.array_equal(one[key], two[key])
        for one, two in zip(first, again, strict=True)
        for key in one
    )
    _, info = env.reset()  # the next episode has other jobs
    assert not env.trace.table.equals(trace.table)
    other.reset(options={"episode_seed": info["episode_seed"]})
    assert other.trace.table.equals(env.trace.table)
    assert other.result().spec["seed"] == info["episode_seed"]


def test_where_jobs_come_from() -> None:
    fixed = f"{DRAWN}&seed=4"
    env = SchedulingEnv(LAB, fixed)
    for seed in (1, 2):
        env.reset(seed=seed)
        assert env.trace.table.equals(gl.read_trace(fixed).table)
    env.reset(options={"trace": jobs("0 1 5")})
    assert len(env.trace) == 1
    drawn = SchedulingEnv(LAB, lambda seed: gl.synth.pai(jobs=5, seed=seed, max_gpus=4))
    _, info = drawn.reset(seed=1)
    assert drawn.trace.table.equals(
        gl.synth.pai(jobs=5, seed=info["episode_seed"], max_gpus=4).table
    )


def test_an_episode_may_be_a_stretch_of_a_trace() -> None:
    whole = gl.read_trace(f"{DRAWN}&seed=4")
    env = SchedulingEnv(LAB, whole, episode_jobs=10)
    begins = set()
    for seed in range(8):
        env.reset(seed=seed)
        table = env.trace.table
        ids = whole.table["job_id"].to_pylist()
        at = ids.index(table["job_id"][0].as_py())
        assert table["job_id"].to_pylist() == ids[at : at + 10]
        arrivals = whole.numbers("arrival_s")[at : at + 10]
        assert env.trace.numbers("arrival_s").tolist() == (arrivals - arrivals[0]).tolist()
        begins.add(at)
    assert len(begins) > 1


def test_knowledge_hides_the_lengths() -> None:
    env = SchedulingEnv(LAB, DRAWN, knowledge="online")
    observation, _ = env.reset(seed=1)
    assert "remaining_s" not in env.job_columns
    assert "next_end_s" not in env.cluster_columns
    assert observation["jobs"].shape == (16, 6)
    short, long = (
        SchedulingEnv(LAB, jobs(f"0 4 {s}", "1 12 9"), knowledge="online") for s in (5, 50)
    )
    for one in (short, long):
        one.reset()
    assert np.array_equal(
        short.step(0)[0]["jobs"][:, [0, 1, 3]], long.step(0)[0]["jobs"][:, [0, 1, 3]]
    )


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vector_environments(mode: str) -> None:
    address = "synth:philly?jobs=8&max_gpus=8"
    keys = {"cluster": "3x4xV100", "trace": address, "window": 4}
    envs = gymnasium.make_vec(ID, num_envs=2, vectorization_mode=mode, **keys)
    alone = [SchedulingEnv(**keys) for _ in range(2)]
    observations, infos = envs.reset(seed=5)
    mine = [env.reset(seed=5 + at) for at, env in enumerate(alone)]
    for _ in range(6):
        for at, (seen, info) in enumerate(mine):
            assert np.array_equal(observations["jobs"][at], seen["jobs"])
            assert infos["action_mask"][at].tolist() == info["action_mask"].tolist()
        actions = infos["action_mask"].argmax(axis=1)
        observations, rewards, *_, infos = envs.step(actions)
        steps = [env.step(action) for env, action in zip(alone, actions, strict=True)]
        assert rewards.tolist() == [step[1] for step in steps]
        mine = [(step[0], step[4]) for step in steps]
    ended = np.zeros(2, bool)
    while not ended.any():
        *_, ended, _, infos = envs.step(infos["action_mask"].argmax(axis=1))
    assert infos["totals"]["jct"][ended].min() > 0
    envs.close()


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"reward": "profit"}, "reward"),
        ({"reward": {"jct": 1.0, "profit": 1.0}}, "reward"),
        ({"knowledge": "all"}, "knowledge"),
        ({"masked": "skip"}, "masked"),
        ({"window": 0}, "window"),
        ({"episode_jobs": 0}, "episode_jobs"),
        ({"until_s": 9.0}, "until_s"),
        ({"restart": 9.0}, "restart"),
        ({"estimate_error": -1.0}, "estimate_error"),
    ],
)
def test_a_wrong_argument_is_named(keys: dict[str, Any], field: str) -> None:
    with pytest.raises(gl.OptionError) as caught:
        SchedulingEnv(LAB, DRAWN, **keys)
    assert caught.value.field == field


def test_a_wrong_call_is_named(snapshot: Snapshot) -> None:
    env = SchedulingEnv(LAB, gl.read_trace(f"{DRAWN}&seed=1"), episode_jobs=31)
    with refused(gl.OptionError, snapshot):
        env.step(0)
    with refused(gl.OptionError, snapshot):
        env.result()
    with refused(gl.OptionError, snapshot):
        env.reset()
    with refused(gl.OptionError, snapshot):
        env.reset(options={"episode_sed": 1})


def test_without_gymnasium_the_extra_is_named() -> None:
    code = "import sys; sys.modules['gymnasium'] = None\nimport gangline.rl"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "gangline.errors.MissingExtraError: environments need the library gymnasium: "
        "pip install 'gangline[rl]'"
    )
