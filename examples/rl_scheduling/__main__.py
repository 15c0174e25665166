"""Trains a small agent to schedule a cluster, and compares it with the policies of gangline.

python -m examples.rl_scheduling [--quick] [--data FILE]

It takes a minute on one core, or seconds with --quick. `--data FILE` saves the measurements.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import gangline as gl
from gangline._support.statistics import ANY, interval
from gangline.rl import SchedulingEnv

from .agents import first_fit, linear_agent, play, random_agent, shortest_first, train

CLUSTER = "4x4xV100"
TRACE = "synth:philly?jobs=200&max_gpus=8&max_duration_s=86400&load=1.3&cluster_gpus=16"
POLICIES = ("fifo", "fifo-skip", "sjf", "srtf")
TITLES = {
    "random": "random",
    "first_fit": "first fit",
    "shortest_first": "shortest first",
    "trained": "trained",
    "trained_online": "trained, lengths hidden",
}
HELD_OUT = range(50)
STEPS = 10_000


def measure_speed(steps: int) -> float:
    """Return environment steps per second of processor time, the maximum of five measurements.

    The steps are those of `gymnasium.make`, and their time includes the resets.
    """
    env = gymnasium.make("gangline/Scheduling-v0", cluster=CLUSTER, trace=TRACE)
    _, info = env.reset(seed=1)
    taken = []
    for _ in range(5):
        begin = time.process_time()
        for _ in range(steps):
            _, _, ended, _, info = env.step(int(info["action_mask"].argmax()))
            if ended:
                _, info = env.reset()
        taken.append(time.process_time() - begin)
    return steps / min(taken)


def measure(*, is_quick: bool) -> dict[str, Any]:
    """Train, and run the held-out episodes with every agent and policy."""
    generations, episodes = (3, 2) if is_quick else (10, 4)
    env = SchedulingEnv(CLUSTER, TRACE)
    online = SchedulingEnv(CLUSTER, TRACE, knowledge="online")
    agents = {
        "random": (env, random_agent(0)),
        "first_fit": (env, first_fit),
        "shortest_first": (env, shortest_first(env)),
    }
    begin = time.process_time()
    for name, world in (("trained", env), ("trained_online", online)):
        for found, ratio in train(world, generations=generations, episodes=episodes, seed=1):
            print(f"{TITLES[name]}: {ratio:.3f} of the JCT of first fit")
            agents[name] = (world, linear_agent(world, found))
    trained_s = (time.process_time() - begin) / 2
    seeds = HELD_OUT[:10] if is_quick else HELD_OUT
    jct_s: dict[str, list[float]] = {
        name: [play(world, agent, seed) for seed in seeds]
        for name, (world, agent) in agents.items()
    }
    for policy in POLICIES:
        results = (gl.simulate(CLUSTER, f"{TRACE}&seed={seed}", policy) for seed in seeds)
        jct_s[policy] = [float(result.summary["jct_mean_s"]) for result in results]
    kept: dict[str, Any] = {
        "trained_s": round(trained_s, 1),
        "steps_per_s": round(measure_speed(STEPS // 20 if is_quick else STEPS)),
        "jct_s": {name: [round(one, 3) for one in values] for name, values in jct_s.items()},
    }
    return {**kept, "rows": rows(kept["jct_s"])}


def rows(measured: dict[str, list[float]]) -> list[list[str]]:
    """Return a row for each agent and policy: mean JCT, and the ratios to fifo and srtf."""
    jct_s = {name: np.asarray(values) for name, values in measured.items()}
    table = []
    for name in sorted(jct_s, key=lambda name: -jct_s[name].mean()):
        cells = [TITLES.get(name, f"`{name}`"), f"{jct_s[name].mean() / 3600:.2f}"]
        for rival in ("fifo", "srtf"):
            logs = np.log(jct_s[name] / jct_s[rival])
            ends = interval(logs.tolist(), ANY)
            mean = f"{np.exp(logs.mean()):.2f}"
            if name != rival and ends is not None:
                mean += f" ({np.exp(ends[0]):.2f} to {np.exp(ends[1]):.2f})"
            cells.append(mean)
        table.append(cells)
    return table


def main() -> None:
    """Measure, save and print the results."""
    parser = argparse.ArgumentParser(prog="python -m examples.rl_scheduling")
    parser.add_argument("--quick", action="store_true", help="fewer episodes")
    parser.add_argument("--data", type=Path, help="file that keeps what was measured")
    options = parser.parse_args()
    measured = measure(is_quick=options.quick)
    if options.data is not None:
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(measured[key])}" for key in measured)
        options.data.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(
        f"{measured['trained_s']} s to train an agent; {measured['steps_per_s']} steps per second"
    )
    for line in measured["rows"]:
        print("  ".join(f"{cell:>24}" for cell in line))


if __name__ == "__main__":
    main()
