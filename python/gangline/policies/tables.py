"""Defines the tables of jobs and servers that a policy sees, with one property per column.

An array is filled when it is first accessed at a decision, and stays the same until the next
decision. The array is read-only: copy it before changing it.

Examples
--------
>>> import gangline as gl
>>> class Look(gl.Policy):
...     def decide(self, view, changes):
...         plan = gl.Plan(view)
...         for job, gpus in zip(view.waiting.job, view.waiting.gpus):
...             if plan.place(job):
...                 print(f"job {job} starts on {gpus} of {view.servers.gpus_free.sum()} GPUs")
...         return plan
>>> cluster = gl.Cluster.homogeneous(servers=1, gpus=4)
>>> jobs = {"job_id": ["a"], "arrival_s": [0], "gpus": [2], "duration_s": [60]}
>>> import pyarrow as pa
>>> _ = gl.simulate(cluster, pa.table(jobs), Look())
job 0 starts on 2 of 4 GPUs
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, overload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from gangline._core import PolicyView

    _Bools: TypeAlias = npt.NDArray[np.bool_]
    _Floats: TypeAlias = npt.NDArray[np.float64]
    _Ints: TypeAlias = npt.NDArray[np.int64]
    _Masks: TypeAlias = npt.NDArray[np.uint64]

__all__ = ["Jobs", "Parts", "Residents", "RunningJobs", "Servers", "WaitingJobs"]

_JobInts: TypeAlias = Literal[
    "job",
    "gpus",
    "batch_size",
    "model",
    "user",
    "vc",
    "account",
    "partition",
    "qos",
    "nice",
    "gpu_types",
    "min_gpus",
    "max_gpus",
]
_JobFloats: TypeAlias = Literal[
    "arrival_s",
    "attained_gpu_s",
    "weight",
    "priority",
    "time_limit_s",
    "memory_gb",
    "deadline_s",
    "remaining_s",
    "work_remaining",
]
_RunningInts: TypeAlias = Literal[
    "job",
    "gpus",
    "batch_size",
    "model",
    "user",
    "vc",
    "account",
    "partition",
    "qos",
    "nice",
    "gpu_types",
    "min_gpus",
    "max_gpus",
    "sub_batch",
    "gpu_type",
]
_RunningFloats: TypeAlias = Literal[
    "arrival_s",
    "attained_gpu_s",
    "weight",
    "priority",
    "time_limit_s",
    "memory_gb",
    "deadline_s",
    "remaining_s",
    "work_remaining",
    "start_s",
    "rate",
    "locality",
]
_ServerInts: TypeAlias = Literal[
    "gpus",
    "gpus_free",
    "rack",
    "gpu_type",
]
_PartInts: TypeAlias = Literal[
    "job",
    "part",
    "server",
    "gpus",
    "gpu_type",
    "sub_batch",
]
_PartFloats: TypeAlias = Literal[
    "rate",
    "locality",
    "xi",
    "progress_start_s",
]
_ResidentInts: TypeAlias = Literal[
    "server",
    "slot",
    "job",
]


class _Table:
    """A table in which all rows describe things of one kind, such as servers."""

    __slots__ = ("_core",)
    _name: ClassVar[str] = ""

    def __init__(self, core: PolicyView) -> None:
        self._core = core

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                raise AttributeError(name)
            known = [key for key in dir(type(self)) if not key.startswith("_")]
            raise AttributeError(f"no column `{name}` of {self._name}; known: {', '.join(known)}")

    def _ints(self, name: str) -> _Ints:
        found: _Ints = self._core.column(self._name, name)
        return found

    def _floats(self, name: str) -> _Floats:
        found: _Floats = self._core.column(self._name, name)
        return found


class Jobs(_Table):
    """The columns common to waiting and running jobs."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.job)

    @property
    def job(self) -> _Ints:
        """The index of the job, by which plans name it (int64)."""
        return self._ints("job")

    @property
    def gpus(self) -> _Ints:
        """The number of GPUs of the job's gang (int64)."""
        return self._ints("gpus")

    @property
    def batch_size(self) -> _Ints:
        """The samples per GPU and step; 0 if unknown (int64)."""
        return self._ints("batch_size")

    @property
    def model(self) -> _Ints:
        """The index of the job's model, -1 for none; `View.labels` has the names (int64)."""
        return self._ints("model")

    @property
    def user(self) -> _Ints:
        """The index of the job's user, -1 for none (int64)."""
        return self._ints("user")

    @property
    def vc(self) -> _Ints:
        """The index of the job's virtual cluster, -1 for none (int64)."""
        return self._ints("vc")

    @property
    def account(self) -> _Ints:
        """The index of the job's account, -1 for none (int64)."""
        return self._ints("account")

    @property
    def partition(self) -> _Ints:
        """The index of the job's partition, -1 for none (int64)."""
        return self._ints("partition")

    @property
    def qos(self) -> _Ints:
        """The index of the job's quality of service, -1 for none (int64)."""
        return self._ints("qos")

    @property
    def nice(self) -> _Ints:
        """The amount by which the user lowers the job's priority, 0 by default (int64)."""
        return self._ints("nice")

    @property
    def gpu_types(self) -> _Ints:
        """The GPU types that the job may use, as bits: bit 0 is type 0 (int64)."""
        return self._ints("gpu_types")

    @property
    def min_gpus(self) -> _Ints:
        """The minimum number of GPUs of an elastic job; the gang size of other jobs (int64)."""
        return self._ints("min_gpus")

    @property
    def max_gpus(self) -> _Ints:
        """The maximum number of GPUs of an elastic job; the gang size of other jobs (int64)."""
        return self._ints("max_gpus")

    @property
    def arrival_s(self) -> _Floats:
        """The time of arrival in seconds (float64)."""
        return self._floats("arrival_s")

    @property
    def attained_gpu_s(self) -> _Floats:
        """The GPU-seconds that the job has held so far, without overhead (float64)."""
        return self._floats("attained_gpu_s")

    @property
    def weight(self) -> _Floats:
        """The weight, 1 by default (float64)."""
        return self._floats("weight")

    @property
    def priority(self) -> _Floats:
        """The priority, 0 by default (float64)."""
        return self._floats("priority")

    @property
    def time_limit_s(self) -> _Floats:
        """The time limit that the user requested, in seconds; infinite without one (float64)."""
        return self._floats("time_limit_s")

    @property
    def memory_gb(self) -> _Floats:
        """The memory per GPU at full batch in GiB; 0 if unknown (float64)."""
        return self._floats("memory_gb")

    @property
    def deadline_s(self) -> _Floats:
        """The deadline in seconds; infinite without one (float64)."""
        return self._floats("deadline_s")

    @property
    def remaining_s(self) -> _Floats:
        """The remaining run time in seconds alone on the fastest GPU type (float64).

        Only policies with `knowledge = "remaining"` may read this column.
        """
        return self._floats("remaining_s")

    @property
    def work_remaining(self) -> _Floats:
        """The number of remaining iterations; needs `knowledge = "remaining"` (float64)."""
        return self._floats("work_remaining")

    @property
    def rates(self) -> _Floats:
        """The iterations/s alone and consolidated, by job and GPU type; 0 = unusable (float64)."""
        return self._floats("rates")


class WaitingJobs(Jobs):
    """The waiting jobs, in the order of arrival."""

    __slots__ = ()
    _name: ClassVar[str] = "waiting"

    def __len__(self) -> int:
        return self._core.waiting_count()

    @overload
    def __call__(self, column: _JobInts) -> _Ints: ...
    @overload
    def __call__(self, column: _JobFloats | Literal["rates"]) -> _Floats: ...
    def __call__(self, column: str) -> _Ints | _Floats:
        """Return a column by its name."""
        found: _Ints | _Floats = self._core.column(self._name, column)
        return found


class RunningJobs(Jobs):
    """The running jobs, ordered by index."""

    __slots__ = ()
    _name: ClassVar[str] = "running"

    @overload
    def __call__(self, column: _RunningInts) -> _Ints: ...
    @overload
    def __call__(self, column: _RunningFloats | Literal["rates"]) -> _Floats: ...
    def __call__(self, column: str) -> _Ints | _Floats:
        """Return a column by its name."""
        found: _Ints | _Floats = self._core.column(self._name, column)
        return found

    @property
    def sub_batch(self) -> _Ints:
        """The samples per GPU and pass; 0 is the full batch (int64)."""
        return self._ints("sub_batch")

    @property
    def gpu_type(self) -> _Ints:
        """The GPU type on which the job runs (int64)."""
        return self._ints("gpu_type")

    @property
    def start_s(self) -> _Floats:
        """The time of the job's last start or move, in seconds (float64)."""
        return self._floats("start_s")

    @property
    def rate(self) -> _Floats:
        """The job's progress in iterations/s, overhead excluded (float64)."""
        return self._floats("rate")

    @property
    def locality(self) -> _Floats:
        """The locality factor of the gang; 1 on one server (float64)."""
        return self._floats("locality")


class Servers(_Table):
    """The servers, in the order of the cluster."""

    __slots__ = ()
    _name: ClassVar[str] = "servers"

    def __len__(self) -> int:
        return len(self.gpus)

    @overload
    def __call__(self, column: _ServerInts) -> _Ints: ...
    @overload
    def __call__(self, column: Literal["free_mask"]) -> _Masks: ...
    @overload
    def __call__(self, column: Literal["up"]) -> _Bools: ...
    def __call__(self, column: str) -> _Ints | _Masks | _Bools:
        """Return a column by its name."""
        found: _Ints | _Masks | _Bools = self._core.column(self._name, column)
        return found

    @property
    def gpus(self) -> _Ints:
        """The number of GPUs (int64)."""
        return self._ints("gpus")

    @property
    def gpus_free(self) -> _Ints:
        """The number of free GPUs; 0 while the server is down (int64)."""
        return self._ints("gpus_free")

    @property
    def rack(self) -> _Ints:
        """The index of the server's rack (int64)."""
        return self._ints("rack")

    @property
    def gpu_type(self) -> _Ints:
        """The index of the server's GPU type (int64)."""
        return self._ints("gpu_type")

    @property
    def free_mask(self) -> _Masks:
        """The free slots as bits: bit 0 is slot 0 (uint64)."""
        return self("free_mask")

    @property
    def up(self) -> _Bools:
        """Return whether the server is up (bool)."""
        return self("up")


class Parts(_Table):
    """The parts of running jobs, ordered by job and server; an unforked job has one part."""

    __slots__ = ()
    _name: ClassVar[str] = "parts"

    def __len__(self) -> int:
        return len(self.job)

    @overload
    def __call__(self, column: _PartInts) -> _Ints: ...
    @overload
    def __call__(self, column: _PartFloats) -> _Floats: ...
    def __call__(self, column: str) -> _Ints | _Floats:
        """Return a column by its name."""
        found: _Ints | _Floats = self._core.column(self._name, column)
        return found

    @property
    def job(self) -> _Ints:
        """The index of the part's job (int64)."""
        return self._ints("job")

    @property
    def part(self) -> _Ints:
        """The number of the part; 0 unless the policy forks jobs (int64)."""
        return self._ints("part")

    @property
    def server(self) -> _Ints:
        """The index of the part's first server (int64)."""
        return self._ints("server")

    @property
    def gpus(self) -> _Ints:
        """The number of GPUs of the part (int64)."""
        return self._ints("gpus")

    @property
    def gpu_type(self) -> _Ints:
        """The index of the part's GPU type (int64)."""
        return self._ints("gpu_type")

    @property
    def sub_batch(self) -> _Ints:
        """The samples per GPU and pass; 0 is the full batch (int64)."""
        return self._ints("sub_batch")

    @property
    def rate(self) -> _Floats:
        """The current progress in iterations/s (float64)."""
        return self._floats("rate")

    @property
    def locality(self) -> _Floats:
        """The locality factor of the part (float64)."""
        return self._floats("locality")

    @property
    def xi(self) -> _Floats:
        """The current slowdown factor caused by co-runners; 1 without co-runners (float64)."""
        return self._floats("xi")

    @property
    def progress_start_s(self) -> _Floats:
        """The time at which the part's overhead ends, in seconds (float64)."""
        return self._floats("progress_start_s")


class Residents(_Table):
    """The jobs on each GPU, ordered by server and slot; a shared GPU has two rows."""

    __slots__ = ()
    _name: ClassVar[str] = "residents"

    def __len__(self) -> int:
        return len(self.job)

    def __call__(self, column: _ResidentInts) -> _Ints:
        """Return a column by its name."""
        return self._ints(column)

    @property
    def server(self) -> _Ints:
        """The index of the server (int64)."""
        return self._ints("server")

    @property
    def slot(self) -> _Ints:
        """The slot of the GPU on its server (int64)."""
        return self._ints("slot")

    @property
    def job(self) -> _Ints:
        """The index of the job on the GPU (int64)."""
        return self._ints("job")
