"""Stores the reasons that a run recorded for the jobs that it watched."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gangline.runs.explain.reasons import OF_TABLES, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from gangline import _core
    from gangline.policies.choice import ChosenPolicy
    from gangline.trace.jobs.table import Trace

__all__ = ["REASON", "Watched", "policy_labels", "policy_types"]

_NAMELESS = "default"  # the name for a missing partition or queue

REASON = np.dtype(
    [
        ("decided_s", "f8"),  # the instant of the decision
        ("cause", "U13"),  # empty if the policy says no more than the tables
        ("job", "i8"),  # the row of the other job, or -1
        # the GPUs of that job, or the number that the reason counts; -1 if there are none
        ("gpus", "i8"),
        ("number", "i8"),  # the number that the reason counts, or -1
        ("until_s", "f8"),
        ("words", "O"),  # the text of a policy in Python
    ]
)
"""The reason why a job waits, from one decision on."""


class Watched(NamedTuple):
    """The records of the jobs that a run watched.

    Attributes
    ----------
    said : dict of int to array of `REASON`
        For each row of the trace, the reasons of the policy, sorted by time.
    types : dict of int to list of int
        For each row of the trace, the GPU types that the job can use and its policy allows.
    fewest : dict of int to int
        For each row of the trace, the minimum number of GPUs that the job may get.
    mixes_types : bool
        Whether a gang may have GPUs of several types.
    outages : list of (server, down_s, up_s)
        Intervals in which servers were unavailable.
    round_s : float
        Length of a round in seconds; NaN for a policy without rounds.
    reasons : dict of str to Reason
        The reasons of the policy and those that follow from the tables, keyed by name.
    dropped : dict of int to str
        For each row of the trace whose job was dropped, the reason why the job can never run.
    labels : dict of int to dict of str to str
        For each row of the trace, the names by which the policy groups the job: see
        `policy_labels`.
    dates : dict of str to str
        Metadata of the trace, which contain the date of time 0.
    """

    said: dict[int, npt.NDArray[np.void]]
    types: dict[int, list[int]]
    fewest: dict[int, int]
    mixes_types: bool
    outages: list[tuple[int, float, float]]
    round_s: float
    reasons: dict[str, Reason]
    dropped: dict[int, str]
    labels: dict[int, dict[str, str]]
    dates: dict[str, str]

    def why_never(self, row: int) -> str:
        """Return why a dropped job can never run, in words that name its queue or account."""
        reason = Reason("", self.dropped.get(row, "")).naming(self.labels.get(row, {}))
        return reason.sentence.format()

    def reasons_of(self, row: int) -> dict[str, Reason]:
        """Return the reasons by name, with sentences that name the job's queue or account."""
        labels = self.labels.get(row, {})
        return {name: reason.naming(labels) for name, reason in self.reasons.items()}

    @classmethod
    def of(cls, output: _core.RunOutput) -> Watched:
        """Read the records from the output of a run."""
        capacity, usable, mixes, round_s = output.watched()
        columns = output.causes()
        declared = [Reason(*(one[name] for name in Reason._fields)) for one in columns["reasons"]]
        reasons, of_job = _reasons(columns, declared), columns["row"]
        said = {job: reasons[of_job == job] for job, _, _ in usable}
        types = {job: [at for at in range(64) if mask >> at & 1] for job, mask, _ in usable}
        fewest = {job: gpus for job, _, gpus in usable}
        down: dict[int, float] = {}
        outages = []
        for time_s, server, is_up in capacity:
            if not is_up:
                down[server] = time_s
            elif server in down:
                outages.append((server, down.pop(server), time_s))
        outages += [(server, time_s, math.inf) for server, time_s in down.items()]
        known = OF_TABLES | {reason.name: reason for reason in declared}
        length_s = math.nan if round_s is None else round_s
        dropped = dict(output.dropped())
        return cls(said, types, fewest, mixes, outages, length_s, known, dropped, {}, {})


def policy_types(chosen: ChosenPolicy, trace: Trace, row: int) -> set[str] | None:
    """Return the GPU types that a policy allows for a job's partition or queue; None for all.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> from gangline.policies.choice import resolve_policy
    >>> jobs = {"arrival_s": [0], "gpus": [1], "duration_s": [9], "partition": ["old"]}
    >>> chosen = resolve_policy("slurm", {"partition_types": {"old": ["V100"]}})
    >>> policy_types(chosen, gl.Trace.from_arrow(pa.table(jobs)), 0)
    {'V100'}
    """
    params: Mapping[str, Any] = chosen.params
    match chosen.policy:
        case "slurm":
            by, types = "partition", params.get("partition_types") or {}
        case "kueue":
            by = str(params.get("queue_by", "vc"))
            queues = params.get("queues") or []
            types = {
                queue["name"]: [flavor["gpu"] for flavor in queue.get("flavors") or []]
                for queue in queues
            }
        case _:
            return None
    name = trace.table[by][row].as_py() if by in trace.columns else None
    allowed = types.get(_NAMELESS if name is None else name)
    return None if allowed is None else set(allowed)


def policy_labels(chosen: ChosenPolicy, trace: Trace, row: int) -> dict[str, str]:
    """Return a job's queue, or its QOS, user and account, if the policy groups jobs in this way.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> from gangline.policies.choice import resolve_policy
    >>> jobs = gl.Trace.from_arrow(
    ...     pa.table({"arrival_s": [0], "gpus": [1], "duration_s": [9], "account": ["vision"]})
    ... )
    >>> policy_labels(resolve_policy("kai", {"queue_by": "account"}), jobs, 0)
    {'queue': 'vision'}
    >>> policy_labels(resolve_policy("slurm", {}), jobs, 0)
    {'account': 'vision'}
    """
    params: Mapping[str, Any] = chosen.params
    match chosen.policy:
        case "slurm":
            by = {"QOS": "qos", "user": "user", "account": "account"}
        case "kai":
            by = {"queue": str(params.get("queue_by", "vc"))}
        case "kueue" if params.get("queues"):  # without queues, all jobs are in the same one
            by = {"queue": str(params.get("queue_by", "vc"))}
        case "yarn-cs" if params.get("queue_by", "none") != "none":
            by = {"queue": str(params["queue_by"])}
        case _:
            return {}
    names = {
        what: trace.table[label][row].as_py() if label in trace.columns else None
        for what, label in by.items()
    }
    if "queue" in names:
        names["queue"] = _NAMELESS if names["queue"] is None else names["queue"]
    return {what: name for what, name in names.items() if name is not None}


def _reasons(columns: dict[str, Any], declared: list[Reason]) -> npt.NDArray[np.void]:
    reasons = np.empty(len(columns["row"]), REASON)
    for name in ("decided_s", "job", "gpus", "number", "until_s"):
        reasons[name] = columns[name]
    # the index -1 selects the last entry, which is empty
    reasons["cause"] = np.asarray([*(one.name for one in declared), ""])[columns["reason"]]
    reasons["words"] = np.asarray([*columns["said"], ""], object)[columns["words"]]
    is_gpus = np.asarray([*(one.number == "gpus" for one in declared), False])[columns["reason"]]
    reasons["gpus"][is_gpus] = reasons["number"][is_gpus]
    return reasons
