"""Tests the agents of examples/rl_scheduling, and the numbers in the guide."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from examples.rl_scheduling import agents
from examples.rl_scheduling.__main__ import rows

import gangline as gl
from gangline.rl import SchedulingEnv

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = "2x4xV100"
TRACE = "synth:philly?jobs=60&max_gpus=8&max_duration_s=86400&load=1.3&cluster_gpus=8"


def mean_jct(policy: str, seed: int) -> float:
    return float(gl.simulate(CLUSTER, f"{TRACE}&seed={seed}", policy).summary["jct_mean_s"])


def test_agents_without_weights_act_as_policies() -> None:
    env = SchedulingEnv(CLUSTER, TRACE, window=60)
    for seed in range(3):
        jct_s = agents.play(env, agents.first_fit, seed)
        assert np.isclose(jct_s, mean_jct("fifo-skip", seed), rtol=1e-9)
        jct_s = agents.play(env, agents.shortest_first(env), seed)
        assert np.isclose(jct_s, mean_jct("sjf", seed), rtol=1e-9)
        assert agents.play(env, agents.random_agent(seed), seed) != jct_s


def test_a_linear_agent_can_be_shortest_first_and_can_wait() -> None:
    env = SchedulingEnv(CLUSTER, TRACE)
    weights = np.zeros(len(env.job_columns) + len(env.cluster_columns) + 1)
    weights[env.job_columns.index("remaining_s")] = -1.0
    weights[-1] = -9.0
    shortest = agents.play(env, agents.shortest_first(env), 1)
    assert agents.play(env, agents.linear_agent(env, weights), 1) == shortest
    observation, info = env.reset(seed=1)
    weights[-1] = 9.0
    assert agents.linear_agent(env, weights)(observation, info["action_mask"]) == 16


def test_training_finds_an_agent_that_is_better_than_fifo() -> None:
    env = SchedulingEnv(CLUSTER, TRACE)
    found = list(agents.train(env, generations=3, episodes=2, seed=1))
    assert len(found) == 3
    agent = agents.linear_agent(env, found[-1][0])
    ratios = [agents.play(env, agent, seed) / mean_jct("fifo", seed) for seed in range(10)]
    assert np.exp(np.log(ratios).mean()) < 0.9
    again = list(agents.train(env, generations=3, episodes=2, seed=1))
    assert again[-1][0].tolist() == found[-1][0].tolist()


def test_the_guide_says_what_was_measured() -> None:
    kept = json.loads((ROOT / "examples/rl_scheduling/results.json").read_text("utf-8"))
    assert kept["rows"] == rows(kept["jct_s"])
    jct_s = {name: np.asarray(values) for name, values in kept["jct_s"].items()}
    assert {len(values) for values in jct_s.values()} == {50}
    cells = {row[0]: row for row in kept["rows"]}
    high = float(cells["trained"][2].rpartition(" to ")[2].rstrip(")"))
    assert high < 1.0  # better than fifo
    low = float(cells["trained"][3].partition("(")[2].partition(" to ")[0])
    assert low > 1.0  # and not as good as srtf
    assert kept["steps_per_s"] >= 20_000
    assert kept["trained_s"] < 60
