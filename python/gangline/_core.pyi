"""Types of the compiled core, which is private: only gangline's own modules call it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from gangline.cluster.interference import Pairs
from gangline.cluster.iteration import Fit, Inflations
from gangline.cluster.runtime import Row
from gangline.lp.report import Report
from gangline.runs.estimates import History

_F64: TypeAlias = npt.NDArray[np.float64]
_I32: TypeAlias = npt.NDArray[np.int32]
_I64: TypeAlias = npt.NDArray[np.int64]
_U8: TypeAlias = npt.NDArray[np.uint8]
_U32: TypeAlias = npt.NDArray[np.uint32]
_U64: TypeAlias = npt.NDArray[np.uint64]
_Progress: TypeAlias = Callable[[float, int, int], None]

__version__: str
__profile__: str

@final
class Cluster:
    def __new__(
        cls,
        gpu_names: Sequence[str],
        gpu_memory_bytes: _U64,
        gpu_speed: _F64,
        gpu_price: _F64,
        server_type: _U32,
        server_gpus: _U32,
        server_rack: _U32,
    ) -> Cluster: ...

@final
class Elastic:
    def __new__(
        cls,
        row: _U32,
        fits: _F64,
        limits: _U32,
        phases: Sequence[Sequence[Sequence[float]]],
        batches: Sequence[Sequence[int]],
    ) -> Elastic: ...
    def mean_rates(self) -> _F64: ...

@final
class Jobs:
    # arrival_s, gpus, work; optional: ref_rate, allowed_types, memory_bytes, model, model_labels,
    # user, user_labels, batch_size, weight, deadline_s, time_limit_s, priority, nice, rate_class,
    # rate_table, copy_row, copy_table, elastic, duration_known, phase_class, phases; like user: vc,
    # account, partition, qos
    def __new__(cls, **columns: Any) -> Jobs: ...
    def __len__(self) -> int: ...
    def work(self) -> _F64: ...
    def allowed_types(self) -> _U64: ...
    def base_rates(self, cluster: Cluster) -> _F64: ...
    def copy_rates(self, cluster: Cluster, job: _U32, gpu_type: _U32, gpus: _U32) -> _F64: ...

_Shape: TypeAlias = tuple[int, int, int, int, int]

@final
class Network:
    def __new__(
        cls, cluster: Cluster, keys: Mapping[str, object], labels: Sequence[str]
    ) -> Network: ...
    @staticmethod
    def presets() -> list[str]: ...
    @staticmethod
    def models() -> list[str]: ...
    def is_free(self) -> bool: ...
    @staticmethod
    def fair_rates(
        capacity: float, links: int, flows: Sequence[tuple[float, Sequence[int]]]
    ) -> list[float]: ...
    def shared_bw(self) -> float | None: ...
    def load(
        self, gpu_type: int, model: int | None, gpus: int, shape: _Shape
    ) -> tuple[float, float] | None: ...
    def check_jobs(self, cluster: Cluster, jobs: Jobs) -> None: ...
    def at_tier(
        self, gpu_type: int, model: int | None, gpus: int, tier: int, batch_size: int = 0
    ) -> float: ...
    def at_shape(self, gpu_type: int, model: int | None, gpus: int, shape: _Shape) -> float: ...
    def raw(self, model: int | None, shape: _Shape) -> float | None: ...
    def check(self, sizes: Sequence[int]) -> list[tuple[str, int, int, int, float, float]]: ...

@final
class RunOutput:
    def jobs(self) -> dict[str, npt.NDArray[Any]]: ...
    def dropped(self) -> list[tuple[int, str]]: ...
    def segments(self) -> dict[str, npt.NDArray[Any]]: ...
    def causes(self) -> dict[str, Any]: ...
    def watched(
        self,
    ) -> tuple[list[tuple[float, int, bool]], list[tuple[int, int, int]], bool, float | None]: ...
    def timeline(self) -> dict[str, npt.NDArray[Any]]: ...
    def summary(self) -> dict[str, float | int]: ...
    def copy_gpus(self) -> str | int: ...
    def log_hash(self) -> str: ...
    def counters(self) -> dict[str, int]: ...
    def solver(self) -> Report | None: ...
    def outcome(self) -> str: ...

_Order: TypeAlias = tuple[int, int]
_Terms: TypeAlias = tuple[int | None, float | None, float | None, int | None]

@final
class PolicyView:
    """The data that a policy in Python sees through `gangline.policies.protocol.View`.

    The columns are those of `gangline.policies.tables`. `actions` are the actions of a plan;
    `place`, `restore` and `wake` add to them. An order is a pair: its number, and the number of the
    decision.
    """

    now_s: float
    now_ns: int
    knows_work: bool
    def waiting_count(self) -> int: ...
    def labels(self, of: str) -> list[str]: ...
    def column(self, table: str, name: str) -> npt.NDArray[Any]: ...
    def gpus_of(self, job: int, part: int | None = None) -> list[tuple[int, int]]: ...
    def best_batch(self, job: int, gpus: int, spans: bool) -> tuple[int, int, float] | None: ...
    def rate_on(self, job: int, gpus: Sequence[tuple[int, int]], alone: bool) -> float: ...
    def slowdown(self, job: int, beside: int, gpu_type: int) -> float | None: ...
    def place(
        self,
        list: list[tuple[Any, ...]],  # noqa: A002
        job: int,
        rule: str,
        params: Mapping[str, object] | None,
        types: Sequence[int] | None,
        gpus: int | None,
        terms: _Terms,
    ) -> bool: ...
    def unplaceable(
        self,
        list: list[tuple[Any, ...]],  # noqa: A002
        rule: str,
        params: Mapping[str, object] | None,
    ) -> list[int]: ...
    def window(
        self,
        list: list[tuple[Any, ...]],  # noqa: A002
        rule: str,
        params: Mapping[str, object] | None,
        estimate_error: float | None,
        jobs: _F64,
        cluster: _F64,
        ids: _I64,
        mask: npt.NDArray[np.int8],
    ) -> tuple[int, int, int, int, float, bool, int]: ...
    def restore(self, list: list[tuple[Any, ...]], job: int) -> bool: ...  # noqa: A002
    def free_masks(self, list: list[tuple[Any, ...]]) -> _U64: ...  # noqa: A002
    def sole_residents(
        self,
        list: list[tuple[Any, ...]],  # noqa: A002
        gpu_type: int,
    ) -> list[tuple[int, int, int]]: ...
    def pair(
        self,
        list: list[tuple[Any, ...]],  # noqa: A002
        job: int,
        resident: int,
        sub_batch: int,
    ) -> tuple[float, float, bool] | None: ...
    def order(
        self,
        measure: str,
        by_gpus: bool,
        limits: Sequence[float],
        lead: float,
        estimate_error: float,
    ) -> _Order: ...
    def walk(self, order: int, loan: int) -> OrderWalk: ...
    def first(self, order: int, loan: int) -> int | None: ...
    def running_in(self, order: int, loan: int) -> _I64: ...
    def behind(self, order: int, loan: int, job: int) -> _I64: ...
    def is_before(self, order: int, loan: int, job: int, other: int) -> bool: ...
    def admit(self, order: int, loan: int) -> list[tuple[int, int | None]]: ...
    def wake(
        self,
        list: list[tuple[Any, ...]],  # noqa: A002
        order: int,
        loan: int,
        tag: int,
    ) -> None: ...

@final
class OrderWalk:
    def __iter__(self) -> OrderWalk: ...
    def __next__(self) -> int: ...
    def skip_like(self, job: int) -> None: ...

_Offer: TypeAlias = tuple[list[tuple[int, int]], float, float, float, float, bool]

@final
class PriceList:
    def __new__(cls, view: PolicyView, given: Mapping[str, object]) -> PriceList: ...
    def bounds(self) -> tuple[float, _F64]: ...
    def prices(self) -> _F64: ...
    def free(self) -> _I64: ...
    def take(self, gpus: Sequence[tuple[int, int]]) -> None: ...
    def give(self, gpus: Sequence[tuple[int, int]]) -> None: ...
    def density(self, job: int) -> float: ...
    def offer(self, job: int, by_utility: bool) -> _Offer | None: ...

@final
class PolicyChanges:
    started: _I64
    preempted: _I64
    moved: _I64
    retimed: _I64
    arrived: _I64
    finished: _I64
    requeued: _I64
    parts_lost: list[tuple[int, int]]
    servers_up: _I64
    servers_down: _I64
    timers: list[tuple[int | None, int]]
    is_round: bool
    has_room: bool

@final
class RunOptions:
    def __new__(
        cls,
        cluster: Cluster,
        *,
        seed: int,
        restart_s: float | None,
        first_start_s: float | None,
        restart_by_model: _F64 | None,
        checkpoint_interval_s: float | None,
        on_infeasible: str,
        segments: bool,
        timeline: str | float,
        check_invariants: bool,
        skip_rounds: bool,
        until_s: float | None,
        max_events: int | None,
        count_arrivals: tuple[float, float] | None,
        max_share: int | None,
        interference: Pairs | None,
        gang_xi: str,
        memory_fixed_fraction: float,
        acc_cost: float,
        overhead_interferes: bool,
        network: Network | None,
        mean_times_s: tuple[float, float] | None,
        outages: Sequence[tuple[int, float, float]],
        inflations: Inflations | None,
        locality_fits: Sequence[Sequence[Fit | None]] | None,
        estimates: float | History | _F64 | None,
        runtime: tuple[Sequence[float], Sequence[Row]] | None,
        watch: Sequence[int],
    ) -> RunOptions: ...

# The actions of plans and of `Simulation.apply`. Fields at the end of a tuple may be left out:
# ("start" or "move", job, [(server, count or mask), ...], are_masks, sub_batch, overhead_s, quota,
# part, accum), ("keep", job, sub_batch, overhead_s, quota, part, accum), ("preempt", job, part),
# ("limit", job, iterations), ("release", job), ("restore", job), ("wake_at", time_s, tag),
# ("wake_at_ns", time_ns, tag), ("cancel", tag).
def simulate(
    cluster: Cluster,
    jobs: Jobs,
    policy: object,
    params: Mapping[str, object],
    options: RunOptions,
    progress: _Progress | None = None,
    names: object = None,
) -> RunOutput: ...
def check_start(
    cluster: Cluster,
    jobs: Jobs,
    policy: object,
    params: Mapping[str, object],
    options: RunOptions,
) -> None: ...
def check_policy(name: str, params: Mapping[str, object]) -> None: ...
def registry() -> list[dict[str, Any]]: ...
def synth(shape: str, params: Mapping[str, object]) -> dict[str, Any]: ...

@final
class Simulation:
    def __new__(
        cls,
        cluster: Cluster,
        jobs: Jobs,
        options: RunOptions,
        policy: object = None,
        params: Mapping[str, object] | None = None,
        names: object = None,
        **traits: object,
    ) -> Simulation: ...
    now_s: float
    now_ns: int
    is_due: bool
    trail: tuple[int, int, int]
    view: PolicyView
    def changes(self) -> PolicyChanges: ...
    def again(
        self,
        cluster: Cluster,
        jobs: Jobs,
        options: RunOptions,
        policy: object = None,
        names: object = None,
    ) -> Simulation: ...
    def fork(self, policy: object = None) -> Simulation: ...
    def advance(self, until_ns: int | None = None) -> Literal["decision", "time", "done"]: ...
    def decide(self) -> None: ...
    def apply(self, actions: Sequence[tuple[object, ...]], steady: bool = False) -> None: ...
    def inject_capacity(self, server: int, up: bool, at_ns: int) -> None: ...
    def waiting(self) -> _U32: ...
    def running(self) -> _U32: ...
    def snapshot(self) -> dict[str, Any]: ...
    def output(self, goes_on: bool = False) -> RunOutput: ...

def surely_distinct(offsets: npt.NDArray[np.int32], bytes: npt.NDArray[np.uint8]) -> bool: ...  # noqa: A002
def lp_solve(
    policy: str,
    columns: Mapping[str, _F64],
    given: Mapping[str, object],
    *,
    seed: int,
    prices: Sequence[float],
    reference: int | None,
    in_order: Sequence[bool],
    by_name: Sequence[int],
) -> dict[str, Any]: ...
def lp_award(
    gangs: Sequence[int],
    bids: Sequence[tuple[int, int, int, float]],
    rooms: Sequence[tuple[int, int, int]],
    own: Sequence[tuple[int, int, int]],
    *,
    choices_max: int,
) -> list[tuple[int, int]]: ...
def lp_even_loads(need: _F64, work: _F64, capacity: _F64) -> _F64 | None: ...
def synth_extras(params: Mapping[str, object]) -> dict[str, Any]: ...
def synth_uniforms(seed: int, purpose: str, jobs: int, counter: int) -> _F64: ...
def synth_exponentials(seed: int, purpose: str, jobs: int, counter: int) -> _F64: ...
def synth_log_normals(seed: int, purpose: str, jobs: int, counter: int, sigma: float) -> _F64: ...
def synth_parameters(shape: str) -> list[dict[str, Any]]: ...
def sharing_pair(
    new_s: float, resident_s: float, xi_new: float, xi_resident: float, inflation: float
) -> tuple[float, float, float, bool]: ...
def philox4x32(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]: ...
def pow(base: float, exponent: float) -> float: ...  # noqa: A001
def exp(x: float) -> float: ...
def log(x: float) -> float: ...
