"""A cluster scheduler as an environment: the agent starts waiting jobs or lets time pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt

from gangline._support.formatting import did_you_mean
from gangline.errors import OptionError
from gangline.policies.protocol import Plan
from gangline.rl.episodes import Episodes
from gangline.runs.inputs import TABLES, as_cluster, make_options
from gangline.runs.simulation import Simulation
from gangline.trace.read import as_trace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from gangline.policies._generated import Rule
    from gangline.policies.protocol import PlacementParams
    from gangline.rl.episodes import Drawer
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.runs.options import RunOptions
    from gangline.runs.result import Result
    from gangline.trace.jobs.table import Trace

    Observation: TypeAlias = dict[str, npt.NDArray[np.float32]]
    Masks: TypeAlias = npt.NDArray[np.int8]
    Info: TypeAlias = dict[str, "Masks | int | dict[str, float]"]

__all__ = ["REWARDS", "SchedulingEnv"]

REWARDS: Final = ("jct", "wait", "slowdown", "makespan", "utilization")
"""Names of the rewards. Each reward is the negative of an integral over a step's simulated time."""

_NS: Final = 1e9
_SEED_MAX: Final = 2**31  # Our own choice: every generator accepts seeds below this.
_TIME_S: Final = 30 * 86_400.0  # Our own choice: longer times are shown as 1.
_JOBS: Final = 1_000.0  # Our own choice: more waiting jobs are shown as 1.
_ENDS: Final = ("until_s", "max_events")


class SchedulingEnv(gymnasium.Env["Observation", np.int64]):
    """A run of `gangline.Simulation` in which an agent starts the jobs.

    The window contains the first waiting jobs, in the order of arrival. Action k < `window` starts
    job k of the window on GPUs that a placement rule chooses. Action `window` lets time pass until
    the next event, so several jobs may start at one instant. Time also passes automatically while
    no job in the window can be placed. The agent never preempts jobs; a job that loses its GPUs to
    a failure waits again. An episode ends when all jobs are done.

    Every step and reset returns `info["action_mask"]`: 1 for actions that are possible. Waiting is
    impossible if no job runs, no job will arrive, and a job can be placed.

    Parameters
    ----------
    cluster : Cluster, mapping, str or path
        As for `gangline.simulate`.
    trace : Trace, Arrow table, str, path or callable
        Jobs of an episode. A `synth:` spec without `seed` (`synth:philly?jobs=100`) is drawn anew
        at each reset, and a callable is called with the episode's seed. Any other trace is the same
        in every episode.
    window : int
        Number of waiting jobs that the agent sees and may choose from.
    reward : str or mapping from str to float
        A name in `REWARDS`, or a mapping from names to weights.
    knowledge : {"remaining", "online"}
        Whether observations show the remaining run times of jobs.
    estimate_error : float
        Sigma of the log-normal error in the durations shown, as for the policy `sjf`.
    placement : str
        Placement rule, as for `Plan.place`.
    placement_params : mapping, optional
        Parameters of the placement rule.
    masked : {"wait", "raise"}
        The effect of an impossible action. With "wait", the run waits instead; if waiting is
        impossible, it starts the first job that can be placed. With "raise", the action raises an
        `OptionError`.
    episode_jobs : int, optional
        Number of consecutive jobs of the trace that form an episode. Each reset draws the first of
        them at random.
    **options
        Options of `gangline.simulate`, except `until_s` and `max_events`. Without `seed`, the run
        uses the seed of the episode.

    Attributes
    ----------
    observation_space : gymnasium.spaces.Dict
        "jobs" has a row for each place in the window, with the columns `job_columns`; "cluster" has
        the columns `cluster_columns`. Each number x is shown as log(1 + x) / log(1 + X), at most 1,
        where X is the scale of its column in `scales`. Rows without a job are 0; after the end, all
        rows are 0.
    job_columns, cluster_columns : tuple of str
        Names of the columns.
    scales : dict
        The value of X for each column.

    Raises
    ------
    OptionError
        If an argument is unknown or out of range.

    Examples
    --------
    >>> import gangline.rl
    >>> env = gangline.rl.SchedulingEnv("2x4xV100", "synth:philly?jobs=20&seed=1&max_gpus=8")
    >>> observation, info = env.reset()
    >>> total, ended = 0.0, False
    >>> while not ended:
    ...     oldest = int(info["action_mask"].argmax())  # the first that is possible
    ...     observation, reward, ended, truncated, info = env.step(oldest)
    ...     total += reward
    >>> round(-total / 20) == round(env.result().summary["jct_mean_s"])
    True
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - gymnasium's own attribute

    def __init__(
        self,
        cluster: ClusterLike,
        trace: TraceLike | Drawer,
        *,
        window: int = 16,
        reward: str | Mapping[str, float] = "jct",
        knowledge: Literal["remaining", "online"] = "remaining",
        estimate_error: float = 0.0,
        placement: Rule = "consolidate",
        placement_params: PlacementParams | None = None,
        masked: Literal["wait", "raise"] = "wait",
        episode_jobs: int | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        _check_choice("knowledge", knowledge, ("remaining", "online"))
        _check_choice("masked", masked, ("wait", "raise"))
        if window < 1:
            message = f"`window`: {window} jobs. Expected at least 1."
            raise OptionError(message, field="window", value=window)
        for name in _ENDS:
            if options.get(name) is not None:
                message = f"`{name}`: an episode ends with its jobs; use `max_episode_steps`"
                raise OptionError(message, field=name, value=options.get(name))
        if not estimate_error >= 0.0:
            message = f"`estimate_error`: {estimate_error}. Expected at least 0."
            raise OptionError(message, field="estimate_error", value=estimate_error)
        make_options({name: value for name, value in options.items() if name not in TABLES})
        self._cluster = as_cluster(cluster)
        self._episodes = Episodes(trace, episode_jobs)
        self._error = estimate_error if knowledge == "remaining" else None
        self._rule = placement
        self._params: PlacementParams = {**(placement_params or {})}
        self._raises = masked == "raise"
        self._options = options
        self._window = window
        self._describe(knowledge == "remaining")
        self._weights = _weights(reward, self._gpus)
        self._run: Simulation | None = None
        self._mask = np.zeros(window + 1, np.int8)
        self._is_over = True

    def _describe(self, knows_lengths: bool) -> None:
        """Define the columns, the arrays and the spaces."""
        capacity: dict[str, float] = {}
        largest: dict[str, float] = {}
        for server in self._cluster.to_dict()["servers"]:
            kind, gpus = server["gpu"], float(server["gpus"])
            capacity[kind] = capacity.get(kind, 0.0) + gpus * server.get("count", 1)
            largest[kind] = max(largest.get(kind, 0.0), gpus)
        kinds = [kind["name"] for kind in self._cluster.to_dict()["gpu_types"]]
        self._gpus = sum(capacity.values())
        jobs = {
            "present": 1.0,
            "has_place": 1.0,
            "wait_s": _TIME_S,
            "gpus": self._gpus,
            "attained_gpu_s": _TIME_S * self._gpus,
            **{f"speed[{kind}]": 1.0 for kind in kinds},
        }
        cluster = {
            name: scale
            for kind in kinds
            for name, scale in (
                (f"free[{kind}]", capacity.get(kind, 1.0)),
                (f"largest_free[{kind}]", largest.get(kind, 1.0)),
                (f"up[{kind}]", capacity.get(kind, 1.0)),
            )
        }
        cluster |= {"waiting": _JOBS, "waiting_gpus": _JOBS * self._gpus, "running": self._gpus}
        if knows_lengths:
            jobs["remaining_s"] = cluster["next_end_s"] = _TIME_S
        self.job_columns, self.cluster_columns = tuple(jobs), tuple(cluster)
        self.scales = {**jobs, **cluster}
        shape = (self._window, len(jobs))
        split = self._window * len(jobs)
        self._split, self._shape = split, shape
        # a single array, so that one pass scales all values
        self._numbers = np.zeros(split + len(cluster))
        self._jobs = self._numbers[:split].reshape(shape)
        self._totals = self._numbers[split:]
        self._ids = np.full(self._window, -1, np.int64)
        tops = [*jobs.values()] * self._window + [*cluster.values()]
        self._factors = 1.0 / np.log1p(np.asarray(tops))
        boxes: dict[str, gymnasium.Space[Any]] = {
            "jobs": gymnasium.spaces.Box(0.0, 1.0, shape),
            "cluster": gymnasium.spaces.Box(0.0, 1.0, (len(cluster),)),
        }
        # mypy objects, because gymnasium's `Dict` is a space of `dict[str, Any]`
        self.observation_space = gymnasium.spaces.Dict(boxes)  # type: ignore[assignment]
        self.action_space = gymnasium.spaces.Discrete(self._window + 1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[Observation, Info]:
        """Begin an episode.

        If time passes before the first choice, its reward is added to that of the first step.

        Parameters
        ----------
        seed : int, optional
            Seed of the generator that draws the seeds of this and all later episodes.
        options : mapping, optional
            A mapping with the key "episode_seed" (the seed of this episode) or "trace" (its jobs).

        Returns
        -------
        tuple
            The first observation, and the dictionary `info`. `info["episode_seed"]` is the seed
            that repeats the episode.
        """
        super().reset(seed=seed)
        given: dict[str, Any] = dict(options or {})
        drawn = int(self.np_random.integers(_SEED_MAX))
        episode_seed = int(given.pop("episode_seed", drawn))
        trace = given.pop("trace", None)
        for name in given:
            hint = did_you_mean(name, ("episode_seed", "trace"))
            raise OptionError(f"unknown option of reset `{name}`{hint}", field=name)
        self._trace = self._episodes.trace(episode_seed) if trace is None else as_trace(trace)
        run_options: RunOptions = {"seed": episode_seed}
        run_options |= self._options
        self._run = Simulation(self._cluster, self._trace, **run_options)
        self._core = self._run._core
        # in the order of REWARDS, in ns; the last is in GPU-ns
        self._sums: list[float] = [0, 0, 0.0, 0, 0]
        self._told = tuple(self._sums)
        self._has_begun = self._ended = self._is_over = False
        self._advance()
        self._seek()
        return self._observation(), {"action_mask": self._mask.copy(), "episode_seed": episode_seed}

    def step(self, action: int | np.int64) -> tuple[Observation, float, bool, bool, Info]:
        """Start a job, or let time pass.

        Returns
        -------
        tuple
            Observation, reward, whether all jobs are done, False (never truncated), and the info.
            After the last step, `info["totals"]` has the sums of the episode; see `totals`.

        Raises
        ------
        OptionError
            If no episode is under way, or if the action is impossible and `masked="raise"`.
        StalledError
            If a job can never start under the placement rule.
        """
        if self._is_over:
            message = "no episode is under way: call `reset`"
            raise OptionError(message, field="action")
        chosen = int(action)
        if not (0 <= chosen <= self._window and self._mask[chosen]):
            chosen = self._instead(chosen)
        if chosen < self._window:
            placed = self._plan.place(int(self._ids[chosen]), self._rule, **self._params)
            assert placed, "the check above found a place for it"
            self._look()
        elif not self._ended:
            self._pass_time()
        self._seek()
        told, self._told = self._told, tuple(self._sums)
        self._is_over = self._ended
        info: Info = {"action_mask": self._mask.copy()}
        if self._ended:
            info["totals"] = self.totals
        return self._observation(), self._reward(told), self._ended, False, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return which actions are possible; `MaskablePPO` from sb3-contrib calls this method."""
        return self._mask.astype(np.bool_)

    @property
    def trace(self) -> Trace:
        """The jobs of the episode."""
        return self._trace

    @property
    def simulation(self) -> Simulation:
        """The run of the episode; do not advance it, because the environment does so."""
        if self._run is None:
            raise OptionError("no episode is under way: call `reset`", field="simulation")
        return self._run

    @property
    def jobs_in_window(self) -> dict[str, npt.NDArray[np.float64] | npt.NDArray[np.int64]]:
        """The columns of the jobs in the window, in their natural units; "job" is the job's index.

        Rows without a job are left out.
        """
        count = int((self._ids >= 0).sum())
        columns = {name: self._jobs[:count, at] for at, name in enumerate(self.job_columns)}
        return {"job": self._ids[:count].copy(), **{k: v.copy() for k, v in columns.items()}}

    @property
    def totals(self) -> dict[str, float]:
        """The running totals of the episode, keyed by reward.

        A reward is minus the increase of its total. The totals are the sums of JCTs, of times
        without GPUs and of slowdowns, the makespan, and the makespan times (1 - GPU utilisation).
        For unfinished jobs, times up to now are counted.
        """
        sums = (*self._sums[:4], self._sums[4] / self._gpus)
        return {name: value / _NS for name, value in zip(REWARDS, sums, strict=True)}

    def result(self) -> Result:
        """Return the result of the run so far."""
        return self.simulation.result()

    def _instead(self, action: int) -> int:
        """Return the action that replaces an impossible one."""
        if self._raises or not 0 <= action <= self._window:
            expected = "one that `action_mask` allows"
            message = f"action {action} is impossible. Expected {expected}."
            raise OptionError(message, field="action", value=action, expected=expected)
        return self._window if self._mask[-1] else int(self._mask.argmax())

    def _seek(self) -> None:
        """Let time pass while no job in the window can be placed."""
        while not (self._ended or self._standing[-1]):
            self._pass_time()

    def _pass_time(self) -> None:
        """Carry out the plan, advance to the next decision, and update the sums."""
        now, waiting, running, busy, inverse, is_more_to_come, _ = self._standing
        self.simulation.apply(self._plan)
        self._advance()
        active = waiting + running
        self._has_begun = self._has_begun or active > 0
        if not (self._has_begun and (active or is_more_to_come)):
            return
        passed = self._core.now_ns - now
        sums = self._sums
        sums[0] += active * passed
        sums[1] += waiting * passed
        sums[2] += inverse * passed
        sums[3] += passed
        sums[4] += (self._gpus - busy) * passed

    def _advance(self) -> None:
        self._ended = self.simulation.advance() == "done"
        if self._ended:
            self._numbers.fill(0.0)
            self._ids.fill(-1)
            self._mask.fill(0)
            self._mask[-1] = 1
            return
        self._plan = Plan(self.simulation.view)
        self._look()

    def _look(self) -> None:
        """Update the window and the cluster to their state after the actions planned so far."""
        self._standing = self._core.view.window(
            self._plan.actions,
            self._rule,
            self._params or None,
            self._error,
            self._jobs,
            self._totals,
            self._ids,
            self._mask,
        )

    def _reward(self, before: tuple[float, ...]) -> float:
        """Return the reward: minus the weighted increase of the sums since the last step."""
        sums = self._sums
        passed = sum(weight * (sums[at] - before[at]) for at, weight in self._weights)
        return 0.0 - passed / _NS

    def _observation(self) -> Observation:
        scaled = np.log1p(self._numbers)
        scaled *= self._factors
        shown = np.minimum(scaled, 1.0, dtype=np.float32, casting="same_kind")
        return {"jobs": shown[: self._split].reshape(self._shape), "cluster": shown[self._split :]}


def _check_choice(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        message = f"`{name}`: {value!r} is unknown. Expected one of {', '.join(known)}."
        raise OptionError(message, field=name, value=value)


def _weights(reward: str | Mapping[str, float], gpus: float) -> list[tuple[int, float]]:
    """Return the index and weight of each sum; the last sum is in GPU-ns, the others are in ns."""
    given = {reward: 1.0} if isinstance(reward, str) else dict(reward)
    for name in given:
        _check_choice("reward", name, REWARDS)
    per = (1.0, 1.0, 1.0, 1.0, gpus)
    return [(at, given[name] / per[at]) for at, name in enumerate(REWARDS) if name in given]
