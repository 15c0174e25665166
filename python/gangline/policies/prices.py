"""Provides the prices of `hadar`, which rise with occupancy: `gl.Prices(view)`.

Examples
--------
>>> import gangline as gl
>>> class Bidding(gl.Policy):
...     '''Like `hadar` in the order of arrival, without backfilling; jobs are never stopped.'''
...
...     knowledge, mixes_types = "remaining", True
...
...     def decide(self, view, changes):
...         plan, prices = gl.Plan(view), gl.Prices(view, utility="inverse_jct")
...         for job in view.running.job.tolist():
...             prices.take({s: m.bit_count() for s, m in view.gpus_of(job).items()})
...         for job in view.waiting.job.tolist():
...             offer = prices.offer(job)
...             if offer is not None and offer.payoff > 0:
...                 prices.take(offer.gpus)
...                 plan.start(job, offer.gpus)
...         return plan
>>> cluster = gl.Cluster.preset("hadar-60")
>>> gl.simulate(cluster, "synth:hadar?jobs=40&seed=1", Bidding()).summary["finished"]
40
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from gangline.errors import PolicyError
from gangline.policies.protocol import _number, _places

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from gangline.policies.protocol import View

__all__ = ["Offer", "Prices"]


class Offer(NamedTuple):
    """An offer of GPUs to a job, with its cost and utility at the current prices.

    Attributes
    ----------
    gpus : dict of int
        Number of GPUs by server, in the form that `Plan.start` accepts.
    utility : float
        Utility of the job's completion time if the job runs on these GPUs until its end.
    cost : float
        Cost of the GPUs.
    payoff : float
        Utility minus cost.
    rate : float
        Iterations per second of the job alone on these GPUs.
    stays : bool
        Whether the job already runs on these GPUs and keeps them because no other GPUs are faster.
    """

    gpus: dict[int, int]
    utility: float
    cost: float
    payoff: float
    rate: float
    stays: bool


class Prices:
    """The prices of `hadar` at one decision, and an allocation built at these prices.

    At first, all GPUs of servers that are up are free, including the GPUs of running jobs, as at a
    round boundary of `hadar`. `take` and `give` allocate and return GPUs. The price of a GPU rises
    with the allocated share of its server. The documentation of `hadar` gives the formulas.

    From decision to decision, the core keeps the active jobs and the epoch of the prices, once for
    each set of parameters. The epoch depends on the decisions at which prices were requested. The
    prices equal those of `hadar` if the policy requests them whenever `hadar` computes them: at
    round boundaries with active jobs, unless the plan of `hadar` stays the same. `why` must not
    request prices.

    A fork of a `gl.Simulation` begins a new epoch. In a run without a policy, the view also begins
    a new epoch after a decision at which prices were not read.

    Parameters
    ----------
    view : View
        The view of this decision; its policy must declare `knowledge = "remaining"`.
    round_s : float
        Length of a round in seconds, which is the unit of the horizon.
    utility : str
        `normalised`, `effective_throughput`, `inverse_jct`, or `makespan`, whose prices are those
        of `normalised`. `ftf` raises a PolicyError: its value is fixed when a job arrives, which
        can be before prices are first requested.
    cost_horizon : str
        Rounds for which a job pays: `round` (one) or `remaining` (all its remaining rounds).
    umin_factor : float
        Factor by which the lowest price is multiplied.
    horizon_s : float, optional
        Latest completion time that is considered, in seconds from the oldest arrival; by default,
        it is estimated from the active jobs' work.
    spread_surcharge : float
        Surcharge for a gang on several servers, as a share of its cost.
    mix_types : bool
        Whether a gang may use several GPU types; the policy must declare `mixes_types = True`.
    pick : str
        Choice of server for a gang that fits on one server: `cheapest` or `best_fit` (fewest
        free GPUs).
    objective : str
        Criterion for a job's best offer: `max_payoff` or `min_cost`.
    rack_aware : bool
        Whether placements within one rack are considered as well.
    stay : bool
        Whether a running job keeps its GPUs if no other GPUs are faster.

    Examples
    --------
    >>> import gangline as gl, pyarrow as pa
    >>> class Look(gl.Policy):
    ...     knowledge, mixes_types = "remaining", True
    ...
    ...     def decide(self, view, changes):
    ...         plan, prices = gl.Plan(view), gl.Prices(view, round_s=100.0)
    ...         for job in view.waiting.job.tolist():
    ...             offer = prices.offer(job)
    ...             print(prices.per_server.round(4), offer.gpus, round(offer.payoff, 4))
    ...             prices.take(offer.gpus)
    ...             plan.start(job, offer.gpus)
    ...         return plan
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=2)
    >>> jobs = {"arrival_s": [0, 0], "gpus": [2, 1], "duration_s": [200, 100]}
    >>> _ = gl.simulate(lab, pa.table(jobs), Look())
    [0.002 0.002] {0: 2} 0.9961
    [1.    0.002] {1: 1} 0.998
    """

    __slots__ = ("_core",)

    def __init__(
        self,
        view: View,
        *,
        round_s: float = 360.0,
        utility: Literal[
            "normalised", "effective_throughput", "inverse_jct", "makespan"
        ] = "normalised",
        cost_horizon: Literal["round", "remaining"] = "round",
        umin_factor: float = 0.25,
        horizon_s: float | None = None,
        spread_surcharge: float = 0.1,
        mix_types: bool = True,
        pick: Literal["cheapest", "best_fit"] = "cheapest",
        objective: Literal["max_payoff", "min_cost"] = "max_payoff",
        rack_aware: bool = False,
        stay: bool = True,
    ) -> None:
        from gangline import _core

        self._core = _core.PriceList(
            view._core,
            {
                "round_s": round_s,
                "utility": utility,
                "cost_horizon": cost_horizon,
                "umin_factor": umin_factor,
                "horizon_s": horizon_s,
                "spread_surcharge": spread_surcharge,
                "mix_types": mix_types,
                "pick": pick,
                "objective": objective,
                "rack_aware": rack_aware,
                "stay": stay,
            },
        )

    @property
    def lowest(self) -> float:
        """The price of a GPU on an empty server (U_min); 0 without active jobs."""
        return self._core.bounds()[0]

    @property
    def highest(self) -> npt.NDArray[np.float64]:
        """U_max for each GPU type: the price of a GPU on a full server, if above U_min."""
        return self._core.bounds()[1]

    @property
    def per_server(self) -> npt.NDArray[np.float64]:
        """The price of the next GPU on each server; a full server has its highest price."""
        return self._core.prices()

    @property
    def free(self) -> npt.NDArray[np.int64]:
        """The number of free GPUs on each server; 0 while the server is down."""
        return self._core.free()

    def take(self, gpus: Mapping[int, int]) -> None:
        """Allocate GPUs: a mapping from server to a number of its free GPUs."""
        self._core.take(_places(gpus, None)[0])

    def give(self, gpus: Mapping[int, int]) -> None:
        """Return allocated GPUs."""
        self._core.give(_places(gpus, None)[0])

    def density(self, job: int) -> float:
        """Return the utility per GPU of a job that runs at its best rate from now until its end.

        With `order` set to `density`, `hadar` considers the job with the largest value first.
        """
        return self._core.density(_number(job, "job"))

    def offer(self, job: int, by: Literal["objective", "utility"] = "objective") -> Offer | None:
        """Return the best offer of free GPUs to a job, without allocating them.

        Parameters
        ----------
        job : int
            Index of a job that is waiting, or running as one gang.
        by : str
            `objective` applies the parameter `objective`. `utility` chooses the largest utility at
            any cost, as `hadar` does when it backfills.

        Returns
        -------
        Offer or None
            The offer; None if no gang of the job fits on the free GPUs. The payoff may be negative.
        """
        if by not in ("objective", "utility"):
            message = f"offer: by: expected objective or utility, got {by!r}"
            raise PolicyError(message, field="by", value=by)
        found = self._core.offer(_number(job, "job"), by == "utility")
        return None if found is None else Offer(dict(found[0]), *found[1:])
