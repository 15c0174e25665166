"""Agents for `gangline/Scheduling-v0`, in numpy alone, and a way to train one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gangline.rl import SchedulingEnv

Observation: TypeAlias = dict[str, npt.NDArray[np.float32]]
Mask: TypeAlias = npt.NDArray[np.int8]
Weights: TypeAlias = npt.NDArray[np.float64]
Agent: TypeAlias = Callable[[Observation, Mask], int]

POPULATION = 24
ELITE = 6
FIRST_SPREAD = 1.0
LEAST_SPREAD = 0.05  # the least spread keeps the search alive
RARELY_WAITS = -2.0


def random_agent(seed: int) -> Agent:
    """Take any action that is possible."""
    rng = np.random.default_rng(seed)

    def act(_: Observation, mask: Mask) -> int:
        return int(rng.choice(np.flatnonzero(mask)))

    return act


def first_fit(_: Observation, mask: Mask) -> int:
    """Start the oldest job that has a place, as `fifo-skip` does."""
    return int(mask.argmax())


def shortest_first(env: SchedulingEnv) -> Agent:
    """Start the shortest job that has a place, as `sjf` does."""
    column = env.job_columns.index("remaining_s")

    def act(observation: Observation, mask: Mask) -> int:
        return int(np.where(mask[:-1], observation["jobs"][:, column], np.inf).argmin())

    return act


def linear_agent(env: SchedulingEnv, weights: Weights) -> Agent:
    """Start the job of the highest score, or wait if that scores higher.

    The score of a job is linear in its row, with the same weights for all jobs; that of waiting is
    linear in the state of the cluster.
    """
    split = len(env.job_columns)
    of_jobs, of_waiting, bias = weights[:split], weights[split:-1], weights[-1]

    def act(observation: Observation, mask: Mask) -> int:
        scores = np.where(mask[:-1], observation["jobs"] @ of_jobs, -np.inf)
        best = int(scores.argmax())
        waits = mask[-1] and observation["cluster"] @ of_waiting + bias > scores[best]
        return len(scores) if waits else best

    return act


def play(env: SchedulingEnv, agent: Agent, episode_seed: int) -> float:
    """Return the mean JCT of an episode in seconds."""
    observation, info = env.reset(options={"episode_seed": episode_seed})
    ended = False
    while not ended:
        action = agent(observation, np.asarray(info["action_mask"]))
        observation, _, ended, _, info = env.step(action)
    return env.totals["jct"] / len(env.trace)


def train(
    env: SchedulingEnv, *, generations: int, episodes: int, seed: int
) -> Iterator[tuple[Weights, float]]:
    """Search the weights of `linear_agent` by the cross-entropy method.

    Each generation draws weights, plays the same new episodes with all of them, and moves the mean
    and the spread of the next draw to those of the best.

    Parameters
    ----------
    env : SchedulingEnv
        The environment.
    generations, episodes : int
        Number of generations, and of episodes in each.
    seed : int
        The seed of the draws; episodes have seeds from 1,000,000 on.

    Yields
    ------
    (weights, ratio)
        After each generation the mean of the best weights, and their geometric mean JCT over that
        of `first_fit`.
    """
    rng = np.random.default_rng(seed)
    size = len(env.job_columns) + len(env.cluster_columns) + 1
    mean, spread = np.zeros(size), np.full(size, FIRST_SPREAD)
    mean[-1] = RARELY_WAITS
    for generation in range(generations):
        seeds = [1_000_000 + generation * episodes + at for at in range(episodes)]
        usual = log_jcts(env, first_fit, seeds)
        drawn = mean + spread * rng.normal(size=(POPULATION, size))
        losses = np.array([log_jcts(env, linear_agent(env, one), seeds) - usual for one in drawn])
        order = losses.mean(axis=1).argsort(kind="stable")[:ELITE]
        best = drawn[order]
        mean, spread = best.mean(axis=0), np.maximum(best.std(axis=0), LEAST_SPREAD)
        yield mean, float(np.exp(losses[order].mean()))


def log_jcts(env: SchedulingEnv, agent: Agent, seeds: Sequence[int]) -> npt.NDArray[Any]:
    """Return the logarithm of the mean JCT of each episode."""
    return np.log([play(env, agent, seed) for seed in seeds])
