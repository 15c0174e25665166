"""The error classes that gangline raises.

Each message says what is wrong, where, and what to do. The same facts are available as attributes,
so programs need not parse the text. Errors caused by a user's value are also `ValueError`.

Examples
--------
>>> import gangline as gl
>>> try:
...     gl.Cluster.homogeneous(servers=0, gpus=8, gpu="V100")
... except gl.ClusterError as error:
...     print(error.key)
servers[0].count
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline._support.safe import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ClusterError",
    "GanglineError",
    "InfeasibleJobError",
    "MergeError",
    "MissingDuration",
    "MissingExtraError",
    "MissingThroughput",
    "NetworkError",
    "OptionError",
    "OutOfMemoryError",
    "PeerError",
    "PlacementError",
    "PlanError",
    "PolicyError",
    "ResultError",
    "SolverError",
    "StalledError",
    "TraceError",
    "UnknownModel",
]


_VALUE_SHOWN = 200  # the maximum number of characters of a wrong value in a message


class GanglineError(Exception):
    """The base class of all gangline errors.

    Parameters
    ----------
    message : str
        The mistake, where it is, and what to do about it.
    **facts : object
        Values that become attributes of the error.
    """

    def __init__(self, message: str = "", **facts: object) -> None:
        super().__init__(message)
        for name, value in facts.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        # Messages quote names and cells from users' files, so they are escaped. The attributes are
        # not escaped.
        return safe(super().__str__())


class TraceError(GanglineError, ValueError):
    """A trace cannot be read; the error names the file, line, column, value and expectation."""

    path: str | None = None
    line: int | None = None
    column: str | None = None
    value: object = None
    expected: str | None = None
    errors: Sequence[TraceError] = ()
    more: int = 0

    def __str__(self) -> str:
        if not self.errors:
            return super().__str__()
        return "\n".join(map(str, [*self.errors, *([f"and {self.more} more"] * bool(self.more))]))

    @classmethod
    def at(
        cls,
        path: str | None,
        line: int | None,
        column: str | None,
        value: object,
        expected: str,
    ) -> TraceError:
        """Build the standard message `file:line: column: expected X, got "value"`."""
        place = path or "trace"
        if line is not None:
            place += f":{line}"
        parts = [place]
        if column is not None:
            parts.append(column)
        parts.append(f'expected {expected}, got "{safe(value, _VALUE_SHOWN)}"')
        return cls(
            ": ".join(parts), path=path, line=line, column=column, value=value, expected=expected
        )

    @classmethod
    def many(cls, errors: Sequence[TraceError], more: int = 0) -> TraceError:
        """Combine collected errors into one error with the attributes of the first."""
        first = errors[0]
        return cls(
            str(first),
            path=first.path,
            line=first.line,
            column=first.column,
            value=first.value,
            expected=first.expected,
            errors=tuple(errors),
            more=more,
        )


class ClusterError(GanglineError, ValueError):
    """A cluster description is wrong; the error names the file and the path of the key."""

    path: str | None = None
    key: str | None = None
    line: int | None = None
    value: object = None
    expected: str | None = None


class NetworkError(ClusterError):
    """A network description is wrong or does not cover the trace; the message names the key."""

    model: str | None = None


class UnknownModel(NetworkError):  # noqa: N818 - says what is unknown
    """Multi-GPU jobs have a model label that the network does not know."""

    jobs: Sequence[object] = ()
    count: int = 0


class MissingThroughput(NetworkError):  # noqa: N818 - says what is missing
    """A gang has no measured throughput; the error names the GPU type, model and gang size."""

    job: int | None = None
    job_id: str | None = None
    gpu_type: str | None = None
    gpus: int | None = None


class OptionError(GanglineError, ValueError):
    """An option of a run or a comparison is wrong; the error names the option and the value."""

    field: str | None = None
    value: object = None
    expected: str | None = None


class PolicyError(GanglineError, ValueError):
    """A policy or one of its parameters is wrong; the error names the field and the value.

    Attributes
    ----------
    lacks : sequence of str
        The facts about the cluster and the trace that the policy needs but that are missing.
    """

    policy: str | None = None
    field: str | None = None
    value: object = None
    lacks: Sequence[str] = ()


class PlacementError(PolicyError):
    """A placement rule was asked for something that it does not support."""


class MissingDuration(PolicyError):  # noqa: N818 - says what is missing
    """A policy needs durations, but some jobs of the trace have none."""

    jobs: Sequence[object] = ()


class StalledError(PolicyError):
    """The run would never end: jobs wait forever, or every job keeps losing its progress.

    Attributes
    ----------
    reason : str
        `no_event`: no future event can start the jobs that wait. `preemptions` or `failures`: these
        undo all progress again and again. `end_of_time`: the clock reaches its limit before the
        jobs finish.
    jobs : sequence
        The first unfinished jobs.
    """

    reason: str | None = None
    jobs: Sequence[object] = ()


class PlanError(GanglineError):
    """A plan broke a rule of the engine, and no part of it was applied.

    Attributes
    ----------
    job, job_id : int, str
        The job of the action; if the action sets or cancels a timer, `tag` is set instead.
    server : int, optional
        The server at fault, if any.
    rule : str
        Stable name of the broken rule.
    time_s, decision : float, int
        Simulated time of the plan, and index of the decision, counted from 0.
    """

    job: int | None = None
    job_id: str | None = None
    tag: int | None = None
    server: int | None = None
    rule: str | None = None
    time_s: float | None = None
    decision: int | None = None


class PeerError(GanglineError):
    """Another process (a scheduler or a training job) ended, hung, or broke the protocol.

    Attributes
    ----------
    reason : str
        "left", "silent" or "wrong".
    address : str, optional
        Address at which no scheduler was found.
    """

    reason: str | None = None
    address: str | None = None


class OutOfMemoryError(GanglineError, MemoryError):
    """A run needs more memory than the process can get; other runs and their results are kept.

    Attributes
    ----------
    time_s : float, optional
        Simulated time that the run had reached.
    segments : int, optional
        Number of rows of the segments table that the run had recorded.
    """

    time_s: float | None = None
    segments: int | None = None


class InfeasibleJobError(GanglineError, ValueError):
    """A job can never run on this cluster under this policy."""

    job: int | None = None
    job_id: str | None = None
    reason: str | None = None


class MergeError(GanglineError, ValueError):
    """The copies' parameters cannot be merged; the error names the array and the copy.

    Attributes
    ----------
    name : str, optional
        The array at fault, if any.
    copy : int, optional
        Index of the copy at fault, if any, counted from 0.
    why : str
        Description of the mistake.
    """

    name: str | None = None
    copy: int | None = None
    why: str | None = None


class ResultError(GanglineError, ValueError):
    """Saved results cannot be used; the error names the folder or file, the key and a remedy."""

    path: str | None = None
    key: str | None = None
    expected: str | None = None


class MissingExtraError(GanglineError):
    """An optional library is not installed; the error has the exact command that installs it."""

    extra: str | None = None


class SolverError(GanglineError):
    """The solver found no optimum; the error has the linear program's status, size and options."""

    policy: str | None = None
    status: str | None = None
    size: tuple[int, int] | None = None
    options: dict[str, object] | None = None
