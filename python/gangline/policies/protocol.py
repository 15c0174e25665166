"""Defines what policies in Python see (`View`, `Changes`) and return (`Plan`).

A policy sees tables of the active jobs and of the servers, whose columns are filled on demand. It
answers with a plan, which the engine checks as a whole. A view is valid only during `decide`.

Examples
--------
>>> import gangline as gl
>>> class Widest(gl.Policy):
...     '''Largest gang first.'''
...     def decide(self, view, changes):
...         plan = gl.Plan(view)
...         gpus, jobs = view.waiting.gpus, view.waiting.job
...         for i in gpus.argsort(kind="stable")[::-1]:
...             plan.place(jobs[i])
...         return plan
>>> cluster = gl.Cluster.homogeneous(servers=2, gpus=4)
>>> trace = gl.synth.philly(jobs=20, seed=1, max_gpus=8)
>>> gl.simulate(cluster, trace, Widest()).summary["finished"]
20
"""

from __future__ import annotations

import dataclasses
import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypedDict,
)

from gangline._support.builtin_values import to_builtins
from gangline._support.safe import safe
from gangline.errors import PolicyError
from gangline.policies.tables import Parts, Residents, RunningJobs, Servers, WaitingJobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from gangline._core import PolicyChanges, PolicyView
    from gangline._support.builtin_values import Json
    from gangline.policies._generated import Rule

__all__ = [
    "STEADY",
    "Batch",
    "Changes",
    "Label",
    "PlacementParams",
    "Plan",
    "Policy",
    "Reason",
    "Steady",
    "View",
]


Label: TypeAlias = Literal["gpu_type", "model", "user", "vc", "account", "partition", "qos"]
"""The labels that views represent as numbers in their columns."""


class PlacementParams(TypedDict, total=False):
    """Parameters of the placement rules; see docs/concepts/placement.md."""

    fit: Literal["best", "first"]
    max_level: Literal["server", "rack", "network"]
    slots: Literal["lowest", "aligned"]
    rack_choice: Literal["best_fit", "fewest_servers"]
    skew: Literal["flags", "sizes", "oracle"]
    skew_threshold: float
    skew_eps: float
    yarn_cross_rack: bool


class Steady:
    """The type of the constant `STEADY`."""

    def __repr__(self) -> str:
        return "STEADY"


STEADY: Final = Steady()
"""Return `(plan, STEADY)` if the policy would decide the same until the next event."""


class Batch(NamedTuple):
    """The split of an elastic job's batch, and the resulting rate.

    Attributes
    ----------
    sub_batch : int
        Samples per GPU and pass.
    accum : int
        Number of further passes after the first, before the gradients are exchanged.
    rate : float
        Progress in iterations of the initial batch per second, at the current gradient noise, on
        GPUs of speed 1.
    """

    sub_batch: int
    accum: int
    rate: float


class Reason(NamedTuple):
    """The reason why a job waits; `Policy.why` returns it.

    Attributes
    ----------
    words : str
        Words that complete the sentence "It waited for 5 min: ...". In these words, `{job}` stands
        for another job, and `{until}` for an instant. Reasons that differ only in the job or the
        instant should have the same words.
    job : int, optional
        Index of the job for which `{job}` stands.
    until_s : float, optional
        The simulated time for which `{until}` stands.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> class Quiet(gl.Policy):
    ...     '''First fit, but nothing starts before 100 s.'''
    ...
    ...     wake_on = ("arrival", "completion", "timer")
    ...
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan(view)
    ...         if view.now_s < 100.0:
    ...             plan.wake_at(100.0)
    ...             return plan
    ...         for job in view.waiting.job.tolist():
    ...             plan.place(job)
    ...         return plan
    ...
    ...     def why(self, view, job):
    ...         return gl.Reason("no job starts before {until}", until_s=100.0)
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    >>> jobs = pa.table({"job_id": ["a"], "arrival_s": [0.0], "gpus": [1], "duration_s": [5.0]})
    >>> print(gl.simulate(lab, jobs, Quiet()).explain("a"))
    Job a asked for 1 GPU at 0 s and finished 1 min 45 s later. Under Quiet it waited ...
      1 min 40 s: no job starts before +1 min 40 s
      ...
    """

    words: str
    job: int | None = None
    until_s: float | None = None


class View:
    """The state that a policy may read during one decision.

    Every decision gets the same object, which shows the current state. Reading it outside of
    `decide`, `start` and `why` is an error. Labels (model, user, gpu_type and others) are numbers;
    see `labels`.

    Attributes
    ----------
    waiting : WaitingJobs
        The waiting jobs, in the order of arrival.
    running : RunningJobs
        The running jobs, ordered by index.
    servers : Servers
        The servers.
    parts : Parts
        One row per part of each running job; a job has one part unless the policy forks jobs.
    residents : Residents
        One row per job on each GPU.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> class Watching(gl.Policy):
    ...     longest = 0
    ...
    ...     def decide(self, view, changes):
    ...         self.longest = max(self.longest, len(view.waiting.job))
    ...         plan = gl.Plan(view)
    ...         for job in view.waiting.job.tolist():
    ...             plan.place(job)
    ...         return plan
    >>> policy = Watching()
    >>> lab = gl.Cluster.homogeneous(servers=1, gpus=4)
    >>> jobs = pa.table({"arrival_s": [0, 1, 2], "gpus": [4, 4, 4], "duration_s": [9, 9, 9]})
    >>> result = gl.simulate(lab, jobs, policy)
    >>> policy.longest
    2
    """

    __slots__ = ("_core", "_names", "parts", "residents", "running", "servers", "waiting")

    def __init__(self, core: PolicyView, names: pa.ChunkedArray | None = None) -> None:
        self._core = core
        self._names = names
        self.waiting: Final = WaitingJobs(core)
        self.running: Final = RunningJobs(core)
        self.servers: Final = Servers(core)
        self.parts: Final = Parts(core)
        self.residents: Final = Residents(core)

    @property
    def now_s(self) -> float:
        """The simulated time in seconds."""
        return self._core.now_s

    @property
    def now_ns(self) -> int:
        """The simulated time in nanoseconds."""
        return self._core.now_ns

    def name_of(self, job: int) -> str:
        """Return the name of a job, its `job_id` in the trace."""
        return str(job if self._names is None else self._names[_number(job, "job")].as_py())

    def labels(self, of: Label) -> list[str]:
        """Return the names that the numbers of a label (GPU type, model, user, ...) stand for.

        Item i of the list is the name that number i stands for.
        """
        return self._core.labels(of)

    def rate_on(self, job: int, masks: Mapping[int, int], *, alone: bool = False) -> float:
        """Return a job's iterations per second on the given GPUs; 0 if it cannot run there.

        Parameters
        ----------
        job : int
            Index of the job.
        masks : mapping
            Mapping from servers to slot masks.
        alone : bool
            Whether to ignore the jobs that are currently on these GPUs.
        """
        pairs = _places(None, masks)[0]
        return self._core.rate_on(_number(job, "job"), pairs, alone)

    def slowdown(self, job: int, beside: int, gpu_type: int = 0) -> float | None:
        """Return a job's slowdown factor with a co-runner; None if they must not share a GPU."""
        pair = _number(job, "job"), _number(beside, "job")
        return self._core.slowdown(*pair, _number(gpu_type, "gpu_type"))

    def lp_inputs(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the active jobs as arguments for `gl.lp.solve`, with the waiting jobs first.

        The arguments include the remaining steps if the policy declares `knowledge = "remaining"`.

        Examples
        --------
        >>> import gangline as gl
        >>> class Shares(gl.Policy):
        ...     def decide(self, view, changes):
        ...         plan = gl.Plan(view)
        ...         if len(view.waiting) and not len(view.running):
        ...             print(gl.lp.solve("gavel-las", **view.lp_inputs()).shares.ravel())
        ...         for job in gl.orders.fifo(view):
        ...             plan.place(job)
        ...         return plan
        >>> jobs = {"job_id": ["a", "b"], "arrival_s": [0, 0], "gpus": [1, 1]}
        >>> jobs["duration_s"] = [60, 60]
        >>> import pyarrow as pa
        >>> _ = gl.simulate(gl.Cluster.homogeneous(servers=1, gpus=1), pa.table(jobs), Shares())
        [0.5 0.5]
        [1.]
        """
        import numpy as np

        tables = (self.waiting, self.running)
        kinds, gpus, up = self.servers.gpu_type, self.servers.gpus, self.servers.up
        types = len(self.labels("gpu_type"))
        inputs: dict[str, npt.NDArray[np.float64]] = {
            "rates": np.concatenate([table.rates for table in tables]),
            "scale": np.concatenate([table.gpus for table in tables]).astype(np.float64),
            "capacity": np.bincount(kinds, gpus * up, types).astype(np.float64),
            "weight": np.concatenate([table.weight for table in tables]),
            "age_s": self.now_s - np.concatenate([table.arrival_s for table in tables]),
        }
        if self._core.knows_work:
            left = np.concatenate([table.work_remaining for table in tables])
            inputs["steps_remaining"] = left
        return inputs

    def gpus_of(self, job: int, part: int | None = None) -> dict[int, int]:
        """Return the GPUs of a running job, or of one part, as a slot mask for each server."""
        pairs = self._core.gpus_of(int(job), part)
        return {int(server): int(mask) for server, mask in pairs}

    def best_batch(self, job: int, gpus: int, *, apart: bool = False) -> Batch | None:
        """Return the batch with which an elastic job progresses fastest on a given number of GPUs.

        Parameters
        ----------
        job : int
            Index of the job.
        gpus : int
            Number of GPUs.
        apart : bool
            Whether the GPUs are on several servers.

        Returns
        -------
        Batch or None
            The batch; None if the job is not elastic or cannot run on that many GPUs.
        """
        count = _number(gpus, "gpus")
        found = self._core.best_batch(_number(job, "job"), count, bool(apart))
        return None if found is None else Batch(*found)


class Changes:
    """The outcome of the last plan and the events since then, in order.

    Jobs and servers are given by index. Each access creates a new array.

    Examples
    --------
    >>> import gangline as gl
    >>> class Counting(gl.Policy):
    ...     arrivals = 0
    ...
    ...     def decide(self, view, changes):
    ...         self.arrivals += len(changes.arrived)
    ...         plan = gl.Plan(view)
    ...         for job in view.waiting.job.tolist():
    ...             plan.place(job)
    ...         return plan
    >>> policy = Counting()
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> result = gl.simulate(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), policy)
    >>> policy.arrivals
    40
    """

    __slots__ = ("_core",)

    def __init__(self, core: PolicyChanges) -> None:
        self._core = core

    @property
    def started(self) -> npt.NDArray[np.int64]:
        """Jobs that the last plan started; some may have ended since then."""
        return self._core.started

    @property
    def preempted(self) -> npt.NDArray[np.int64]:
        """Jobs that lost all their GPUs because of the last plan."""
        return self._core.preempted

    @property
    def moved(self) -> npt.NDArray[np.int64]:
        """Jobs that the last plan moved to other GPUs; some may have ended since then."""
        return self._core.moved

    @property
    def retimed(self) -> npt.NDArray[np.int64]:
        """Jobs whose rate may have changed.

        Possible reasons: the last plan changed their batch, quota or overhead; a co-runner arrived,
        left or began to make progress; their share of an uplink changed; or an elastic job entered
        its next phase. If GPUs or uplinks are shared, jobs that were started or moved are
        included. A job can occur twice, and it may have ended in the meantime.
        """
        return self._core.retimed

    @property
    def arrived(self) -> npt.NDArray[np.int64]:
        """Jobs that arrived."""
        return self._core.arrived

    @property
    def finished(self) -> npt.NDArray[np.int64]:
        """Jobs that ended."""
        return self._core.finished

    @property
    def requeued(self) -> npt.NDArray[np.int64]:
        """Jobs that a failure evicted; they wait again."""
        return self._core.requeued

    @property
    def parts_lost(self) -> list[tuple[int, int]]:
        """Parts (job, number) that a failure ended while other parts of their jobs continue."""
        return self._core.parts_lost

    @property
    def servers_up(self) -> npt.NDArray[np.int64]:
        """Servers that came back."""
        return self._core.servers_up

    @property
    def servers_down(self) -> npt.NDArray[np.int64]:
        """Servers that failed."""
        return self._core.servers_down

    @property
    def timers(self) -> list[tuple[int | None, int]]:
        """Timers that fired: (None, tag)."""
        return self._core.timers

    @property
    def is_round(self) -> bool:
        """Return whether this is a round boundary."""
        return self._core.is_round

    @property
    def has_room(self) -> bool:
        """Return whether a gang that did not fit might fit now: a job ended or a server changed."""
        return self._core.has_room


class Plan:
    """The actions of one decision, which are checked and applied as a whole.

    `gl.Plan(view)` tracks which GPUs are free after the plan's actions, and `place` lets a
    placement rule choose among these GPUs. If a plan is created with `gl.Plan()`, its actions must
    name all GPUs.

    An elastic job may be started on, and moved to, any number of GPUs in its range. With
    `sub_batch` and `accum`, a plan also sets the job's batch: `sub_batch` samples on each GPU in
    each of `accum` + 1 passes.

    GPUs are given as a mapping from servers to numbers of GPUs; the lowest free slots are used.
    Alternatively, `masks` maps servers to slots. A job, server, count, mask or tag that is not a
    whole number raises a TypeError at once. A number that is negative or too large raises a
    PolicyError.

    Parameters
    ----------
    view : View, optional
        The view of this decision.

    Examples
    --------
    >>> import gangline as gl
    >>> class FirstFit(gl.Policy):
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan(view)
    ...         for job in view.waiting.job.tolist():
    ...             plan.place(job)  # False where no GPUs are free for it
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> gl.simulate(lab, "synth:pai?jobs=40&seed=3&max_gpus=8", FirstFit()).summary["finished"]
    40
    """

    __slots__ = ("_view", "actions")

    def __init__(self, view: View | None = None) -> None:
        self._view = view
        self.actions: list[tuple[Any, ...]] = []

    def place(
        self,
        job: int,
        rule: Rule = "consolidate",
        *,
        types: int | Sequence[int] | None = None,
        gpus: int | None = None,
        sub_batch: int | None = None,
        overhead_s: float | None = None,
        quota: float | None = None,
        accum: int | None = None,
        **params: Unpack[PlacementParams],
    ) -> bool:
        """Start a waiting job, or move a running job, on GPUs that a placement rule chooses.

        The rule works in the same way as for registered policies. It chooses among the GPUs that
        are free after this plan's actions so far, on the first of the job's types on which the rule
        finds a place. A running job's own GPUs count as free for it.

        Parameters
        ----------
        job : int
            Index of the job.
        rule : str
            `consolidate`, `yarn`, `whole_servers`, `spread`, `random`, `random_server`, `count`,
            `skew` or `best_speed`.
        types : int or sequence of int, optional
            GPU types to consider among those that the job may use; all by default.
        gpus : int, optional
            Number of GPUs of an elastic job, in its range; by default, the gang size in the trace.
        sub_batch, overhead_s, quota, accum
            As for `start`.
        **params
            Parameters of the rule (`fit`, `max_level`, `slots`, ...).

        Returns
        -------
        bool
            Whether the rule found a place; if not, the plan does not change.
        """
        chosen = [types] if isinstance(types, int) else types
        terms = (sub_batch, overhead_s, quota, accum)
        core = self._look()
        return core.place(self.actions, job, rule, params or None, chosen, gpus, terms)

    def unplaceable(
        self, rule: Rule = "consolidate", **params: Unpack[PlacementParams]
    ) -> list[int]:
        """Return the jobs of the trace that a rule could never place, for `Policy.start`.

        Rules such as `yarn` do not place some gangs even on an empty cluster.
        """
        return self._look().unplaceable(self.actions, rule, params or None)

    def release(self, job: int) -> bool:
        """Release the GPUs of a running job for other jobs. Return whether the job is running.

        `place` can then give the job other GPUs, and `restore` returns the old ones. If neither is
        called, the job is preempted.
        """
        pairs = self._look().gpus_of(job)
        if pairs:
            self.actions.append(("release", _number(job, "job")))
        return bool(pairs)

    def restore(self, job: int) -> bool:
        """Give a released job its old GPUs if all are still free; return whether it got them."""
        return self._look().restore(self.actions, job)

    @property
    def free_mask(self) -> npt.NDArray[np.uint64]:
        """For each server, a bit mask of the slots that are free after the actions so far."""
        return self._look().free_masks(self.actions)

    def sole_residents(self, gpu_type: int = 0) -> dict[int, dict[int, int]]:
        """Return the GPUs that hold exactly one job after the actions so far.

        Parameters
        ----------
        gpu_type : int
            Type of the GPUs.

        Returns
        -------
        dict of dict
            Slot masks by job and server, both ascending.
        """
        found: dict[int, dict[int, int]] = {}
        for job, server, mask in self._look().sole_residents(self.actions, gpu_type):
            found.setdefault(job, {})[server] = mask
        return found

    def pair(self, job: int, resident: int, sub_batch: int = 0) -> tuple[float, float, bool] | None:
        """Apply the pair test of `sjf-bsbf` to a waiting job and a resident.

        Parameters
        ----------
        job, resident : int
            A waiting job, and a job that holds GPUs after the actions so far.
        sub_batch : int
            Samples per GPU and pass of the waiting job; 0 for its full batch.

        Returns
        -------
        tuple or None
            The mean completion time of the two jobs, in seconds from now, if the waiting job starts
            on the resident's GPUs; the same time if it waits until the resident ends; and whether
            sharing pays, which is false for ties. None if the two must not share, or if a GPU has
            too little memory for both.
        """
        return self._look().pair(self.actions, job, resident, sub_batch)

    def _look(self) -> PolicyView:
        if self._view is None:
            message = "this plan does not know the free GPUs; create it with `gl.Plan(view)`"
            raise PolicyError(message, field="view")
        return self._view._core

    def start(
        self,
        job: int,
        gpus: Mapping[int, int] | None = None,
        *,
        masks: Mapping[int, int] | None = None,
        sub_batch: int | None = None,
        overhead_s: float | None = None,
        quota: float | None = None,
        part: int = 0,
        accum: int | None = None,
    ) -> None:
        """Start a waiting job on GPUs, given as counts (`gpus`) or slot masks (`masks`) per server.

        Parameters
        ----------
        job : int
            Index of the job.
        gpus, masks : mapping, one of the two
            Mapping from servers to a number of GPUs, or to a slot mask.
        sub_batch : int, optional
            Samples per GPU and pass; by default, the job's batch.
        overhead_s : float, optional
            Time in seconds without progress, which replaces the run's `restart_s` or
            `first_start_s`.
        quota : float, optional
            Iterations after which the job keeps its GPUs without progress; see `keep`.
        part : int, default 0
            Number of the part; numbers other than 0 need a policy that declares `forks`.
        accum : int, optional
            Number of passes of an elastic job after the first, together with `sub_batch`. Without
            it, the job has its total batch from the trace.
        """
        terms = _terms(sub_batch, overhead_s, quota, part, accum)
        self.actions.append(("start", _number(job, "job"), *_places(gpus, masks), *terms))

    def preempt(self, job: int, *, part: int = 0) -> None:
        """Stop a running job, or a part of it; the job keeps all work done so far."""
        self.actions.append(("preempt", _number(job, "job"), _number(part, "part", _PARTS)))

    def move(
        self,
        job: int,
        gpus: Mapping[int, int] | None = None,
        *,
        masks: Mapping[int, int] | None = None,
        sub_batch: int | None = None,
        overhead_s: float | None = None,
        quota: float | None = None,
        part: int = 0,
        accum: int | None = None,
    ) -> None:
        """Move a running job to other GPUs; moving it to the GPUs it already holds costs nothing.

        The parameters are those of `start`; the sub-batch does not change unless it is given.
        """
        terms = _terms(sub_batch, overhead_s, quota, part, accum)
        self.actions.append(("move", _number(job, "job"), *_places(gpus, masks), *terms))

    def keep(
        self,
        job: int,
        *,
        sub_batch: int | None = None,
        overhead_s: float | None = None,
        quota: float | None = None,
        part: int = 0,
        accum: int | None = None,
    ) -> None:
        """Keep a running job on its GPUs, with a different sub-batch, a pause or a quota.

        Parameters
        ----------
        job : int
            Index of the job.
        sub_batch : int, optional
            Samples per GPU and pass from now on; the change costs nothing.
        overhead_s : float, optional
            Time in seconds for which the job pauses in place; its work so far is then safe from
            failures.
        quota : float, optional
            Maximum number of further iterations. After these iterations, the job keeps its GPUs
            without progress until it gets a new quota, moves or stops. Reaching the quota does
            not wake the policy, so use `wake_at` or decide in rounds. `math.inf` removes a quota.
        part : int, default 0
            Number of the part.
        accum : int, optional
            Number of passes of an elastic job after the first, from now on, together with
            `sub_batch`.
        """
        terms = _terms(sub_batch, overhead_s, quota, part, accum)
        self.actions.append(("keep", _number(job, "job"), *terms))

    def set_sub_batch(self, job: int, sub_batch: int) -> None:
        """Change the batch per pass of a running job, like `keep` with a sub-batch."""
        self.keep(job, sub_batch=sub_batch)

    def limit(self, job: int, iterations: float) -> None:
        """Give a quota to a job that runs after this plan, in addition to the job's other action.

        This sets the `quota` of the job's action in this plan, or of a `keep` if the job has no
        action.
        """
        self.actions.append(("limit", int(job), float(iterations)))

    def wake_at(self, time_s: float, tag: int = 0) -> None:
        """Ask to be woken at a later instant; the policy must wake on "timer"."""
        self.actions.append(("wake_at", float(time_s), _number(tag, "tag")))

    def cancel(self, tag: int) -> None:
        """Cancel the timers with a tag."""
        self.actions.append(("cancel", _number(tag, "tag")))

    def __len__(self) -> int:
        return len(self.actions)


_PARTS = 2**16  # Our own choice: parts have numbers from 0 to 65535.


def _terms(
    sub_batch: int | None,
    overhead_s: float | None,
    quota: float | None,
    part: int,
    accum: int | None,
) -> tuple[int | None, float | None, float | None, int, int | None]:
    """Return the common fields of actions, in the order that the core expects."""
    return (
        None if sub_batch is None else _number(sub_batch, "sub_batch"),
        None if overhead_s is None else float(overhead_s),
        None if quota is None else float(quota),
        _number(part, "part", _PARTS),
        None if accum is None else _number(accum, "accum"),
    )


def _places(
    gpus: Mapping[int, int] | None, masks: Mapping[int, int] | None
) -> tuple[list[tuple[int, int]], bool]:
    """Return (server, value) pairs, and whether the values are slot masks rather than counts."""
    if (gpus is None) == (masks is None):
        message = "give GPUs either as counts (`gpus`) or as slot masks (`masks`)"
        raise PolicyError(message, field="gpus")
    chosen = gpus if gpus is not None else masks
    assert chosen is not None, "one of the two is not None"
    most = 2**64 if masks is not None else 2**32
    what = "a slot mask" if masks is not None else "a number of GPUs"
    places = [
        (_number(server, "server"), _number(value, what, most)) for server, value in chosen.items()
    ]
    return places, masks is not None


def _number(value: object, what: str, most: int = 2**32) -> int:
    """Return a whole number >= 0; numpy integers are accepted, floats are not."""
    number = operator.index(value)  # type: ignore[arg-type]
    if not 0 <= number < most:
        raise PolicyError(
            f"{what}: expected 0 to {most - 1}, got {number}", field=what, value=number
        )
    return number


def read_answer(answer: object) -> tuple[list[tuple[Any, ...]], bool]:
    """Return the actions in the result of `decide`, and whether the result contains STEADY."""
    is_pair = isinstance(answer, tuple) and len(answer) == 2
    plan, word = answer if isinstance(answer, tuple) and is_pair else (answer, None)
    if not isinstance(plan, Plan) or not (word is None or isinstance(word, Steady)):
        raise PolicyError(
            f"`decide` returned {answer!r}; expected a gangline.Plan, or (plan, gangline.STEADY)",
            field="decide",
            value=type(answer).__name__,
        )
    return plan.actions, word is not None


def read_start(answer: object, jobs: int) -> list[int]:
    """Return the jobs that `start` returned, in ascending order; `jobs` is the total number."""
    if answer is None:
        return []
    if not isinstance(answer, Iterable) or isinstance(answer, str):
        message = f"`start` returned {safe(repr(answer), 200)}; expected None, or indices of jobs"
        raise PolicyError(message, field="start", value=type(answer).__name__)
    return sorted({_number(job, "job", jobs) for job in answer})


_WORDS_MAX = 400  # Our own choice: a reason is one sentence.


def read_reason(answer: object, jobs: int) -> tuple[str, int | None, float | None] | None:
    """Split the result of `why` into words, job and instant; `jobs` is the number of jobs."""
    if answer is None:
        return None
    words, job, until_s = answer if isinstance(answer, Reason) else (answer, None, None)
    problem = None
    if not isinstance(words, str):
        problem = "expected None, text, or a gangline.Reason"
    elif not words.strip() or len(words) > _WORDS_MAX:
        problem = f"expected words, at most {_WORDS_MAX} characters"
    elif ("{job}" in words) != (job is not None):
        problem = "expected a job and `{job}` in the words, or neither"
    elif ("{until}" in words) != (until_s is not None):
        problem = "expected an instant and `{until}` in the words, or neither"
    elif job is not None and not (hasattr(job, "__index__") and 0 <= job < jobs):
        problem = f"expected the index of a job, 0 to {jobs - 1}"
    elif until_s is not None and not _is_instant(until_s):
        problem = "expected until_s in seconds, at least 0"
    if problem is not None or not isinstance(words, str):
        message = f"`why` returned {safe(repr(answer), 200)}; {problem}"
        raise PolicyError(message, field="why", value=type(answer).__name__)
    return (
        words,
        None if job is None else operator.index(job),
        None if until_s is None else float(until_s),
    )


def _is_instant(value: object) -> bool:
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return 0.0 <= seconds < _LAST_S


_LAST_S = 2.0**63 / 1e9  # the engine counts nanoseconds in 64 bits


class Policy(ABC):
    """The base class of policies written in Python.

    Attributes
    ----------
    name : str
        Name shown in results; the default is the class name.
    wake_on : tuple of str
        The events at which the policy decides: arrival, completion, capacity, timer, round.
    round_s : float, optional
        Period of a round-based policy. The policy decides at 0, round_s, 2 round_s, ... and at the
        events in `wake_on`; an empty `wake_on` means only at rounds.
    knowledge : str
        "online", or "remaining" if the policy may read how much work is left.
    max_share : int
        Maximum number of jobs on one GPU.
    mixes_types : bool
        Whether the gangs of this policy may use several GPU types.
    forks : bool
        Whether a job may hold several parts at once under this policy, each of them a whole gang on
        one server.

    Examples
    --------
    >>> import gangline as gl
    >>> class Smallest(gl.Policy):
    ...     '''Gangs with the fewest GPUs first.'''
    ...
    ...     def decide(self, view, changes):
    ...         plan = gl.Plan(view)
    ...         for row in view.waiting.gpus.argsort(kind="stable"):
    ...             plan.place(int(view.waiting.job[row]))
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> gl.simulate(lab, gl.synth.philly(jobs=40, seed=3, max_gpus=8), Smallest()).policy
    'Smallest'
    """

    name: ClassVar[str] = ""
    wake_on: tuple[str, ...] = ("arrival", "completion", "capacity")
    round_s: float | None = None
    knowledge: str = "online"
    max_share: int = 1
    mixes_types: bool = False
    forks: bool = False

    def start(self, view: View) -> Iterable[int] | None:  # noqa: ARG002 - for subclasses
        """Prepare for a run before its first decision; an object may serve several runs in turn.

        Returns
        -------
        iterable of int, optional
            Jobs that this policy can never start; `gl.Plan(view).unplaceable(rule)` returns those
            that a placement rule cannot place. The run drops them or ends with an error, depending
            on `on_infeasible`.
        """
        return None

    @abstractmethod
    def decide(self, view: View, changes: Changes) -> Plan | tuple[Plan, Steady]:
        """Make one decision: return a plan, or (plan, STEADY)."""

    def why(self, view: View, job: int) -> str | Reason | None:  # noqa: ARG002 - for subclasses
        """Return why a job still waits after the last decision; defining this method is optional.

        Only `Result.explain` and `gangline explain` call this method, for one job, after each
        decision. The method must not change anything: the run must be the same with and without it.

        Parameters
        ----------
        view : View
            The state after the plan has been carried out.
        job : int
            Index of the job.

        Returns
        -------
        str, Reason or None
            The reason; None if the free GPUs explain the wait.

        Examples
        --------
        >>> import gangline as gl, pyarrow as pa
        >>> class OneByOne(gl.Policy):
        ...     '''Runs one job at a time, the oldest first.'''
        ...     def decide(self, view, changes):
        ...         plan = gl.Plan()
        ...         if len(view.waiting) and not len(view.running):
        ...             plan.start(view.waiting.job[0], {0: view.waiting.gpus[0]})
        ...         return plan
        ...     def why(self, view, job):
        ...         return gl.Reason("{job} ran, and only one job may run", view.running.job[0])
        >>> lab = gl.Cluster.homogeneous(servers=1, gpus=4)
        >>> jobs = {"job_id": ["a", "b"], "arrival_s": [0, 1], "gpus": [2, 1]}
        >>> jobs["duration_s"] = [60, 9]
        >>> why = gl.simulate(lab, pa.table(jobs), OneByOne()).explain("b")
        >>> print(str(why).splitlines()[3].strip())
        59 s: job a (2 GPUs) ran, and only one job may run
        """
        return None

    def label(self) -> str:
        """Return the name for tables; a dataclass adds the parameters that were set."""
        name = self.name or type(self).__name__
        if not dataclasses.is_dataclass(self):
            return name
        shown = [
            f"{field.name}={value}"
            for field in dataclasses.fields(self)
            if field.init and (value := getattr(self, field.name)) != _default(field)
        ]
        return f"{name}({', '.join(shown)})" if shown else name

    def params(self) -> dict[str, Json]:
        """Return the parameters that results record, which are the arguments of `__init__`.

        The default implementation returns the fields of a dataclass; any other class with
        parameters must override it.
        """
        if not dataclasses.is_dataclass(self):
            return {}
        fields = [field for field in dataclasses.fields(self) if field.init]
        return {field.name: getattr(self, field.name) for field in fields}


def _default(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


_KINDS = ("arrival", "completion", "capacity", "timer", "round")


def _is_period(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and 0.0 < value < float("inf"))


def _check_records(policy: Policy) -> None:
    """Reject values that could not be recorded after the run."""
    label: object = policy.label()
    if not isinstance(label, str) or not label:
        got = "an empty one" if label == "" else type(label).__name__
        name = type(policy).__name__
        message = f"{name}: label(): expected text, got {got}"
        raise PolicyError(message, policy=name, field="label", value=label)
    params: object = policy.params()
    if not isinstance(params, dict):
        message = f"{label}: params(): expected a dict of parameters, got {type(params).__name__}"
        raise PolicyError(message, policy=label, field="params", value=params)
    try:
        json.dumps(to_builtins(params))
    except (TypeError, ValueError) as error:
        message = f"{label}: params(): expected a dict of plain values, to be saved: {error}"
        raise PolicyError(message, policy=label, field="params", value=params) from None


def check_declaration(policy: Policy) -> None:
    """Raise a PolicyError if a policy object is inconsistent or results cannot record it."""
    _check_records(policy)
    declared: object = policy.wake_on
    kinds = list(declared) if isinstance(declared, (tuple, list, set)) else ["none"]
    period = policy.round_s
    checks: list[tuple[str, bool, str]] = [
        (
            "wake_on",
            bool(kinds or period) and all(kind in _KINDS for kind in kinds),
            f"some of {', '.join(_KINDS)}",
        ),
        ("round_s", _is_period(period), "seconds > 0, or None"),
        ("knowledge", policy.knowledge in ("online", "remaining"), '"online" or "remaining"'),
        ("max_share", policy.max_share in (1, 2), "1 or 2"),
        ("mixes_types", isinstance(policy.mixes_types, bool), "True or False"),
        ("forks", isinstance(policy.forks, bool), "True or False"),
    ]
    for field, fine, expected in checks:
        if not fine:
            value = getattr(policy, field)
            raise PolicyError(
                f"{policy.label()}: {field}: expected {expected}, got {value!r}",
                policy=policy.label(),
                field=field,
                value=value,
            )
