"""Simulates policies in one world, and compares them with the observed times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gangline.analysis.report.digest import LENGTHS, length_codes, size_codes
from gangline.errors import GanglineError, TraceError
from gangline.runs.bar import Total
from gangline.runs.inputs import make_options
from gangline.runs.simulate import simulate
from gangline.studies.validate import layers
from gangline.studies.validate.agreement import agreement, departure
from gangline.studies.validate.result import PolicyValidation
from gangline.studies.validate.waits import Times, losses, waits

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.cluster.description import Cluster
    from gangline.policies.choice import ChosenPolicy
    from gangline.runs.inputs import Progress
    from gangline.runs.result import Result
    from gangline.studies.validate.agreement import Agreement
    from gangline.studies.validate.observed import Floats, Ints, Outcomes
    from gangline.trace.jobs.table import Trace

__all__ = ["Case"]


@dataclass(frozen=True)
class Case:
    """A cluster, a trace, and the options of the runs.

    Attributes
    ----------
    cluster : Cluster
        The cluster that the layer `prediction` simulates.
    trace : Trace
        The jobs.
    tolerance_s : float
        Starts that differ by at most this many seconds count as the same.
    options : dict
        Options of `gangline.simulate`.
    progress : bool, callable or Total
        As for `gangline.compare`.
    """

    cluster: Cluster
    trace: Trace
    tolerance_s: float
    options: dict[str, Any]
    progress: bool | Progress | Total = False

    @staticmethod
    def runs(policy: ChosenPolicy, outcomes: Outcomes) -> int:
        """Return how many times a policy is run: once per simulated layer."""
        run_s = layers.observed_runs(outcomes, policy)
        return 1 if layers.obstacle(policy, run_s) else 2

    def of(
        self, policy: ChosenPolicy, outcomes: Outcomes, peer: Outcomes | None
    ) -> PolicyValidation:
        """Simulate a policy in both layers; compare them, and the peer, with the observed times."""
        run_s = layers.observed_runs(outcomes, policy)
        found, missing = {}, {}
        reason = layers.obstacle(policy, run_s)
        if not reason:
            try:
                result = self._with_runs(policy, run_s)
                reason = layers.shares(result)
                found[layers.SCHEDULING] = layers.held(result, self.trace)
            except GanglineError as error:
                reason = str(error)
        if reason:
            found.pop(layers.SCHEDULING, None)
            missing[layers.SCHEDULING] = reason
        result = self._run(self.cluster, self.trace, policy, self.options)
        found[layers.PREDICTION] = layers.held(result, self.trace)
        if peer is not None:
            found[layers.PEER] = {
                "jct_s": peer.jct_s, "queue_s": peer.queue_s, "run_s": peer.run_s
            }  # fmt: skip
        return self._compare(policy, outcomes, peer, run_s, found, missing)

    def _with_runs(self, policy: ChosenPolicy, run_s: Floats) -> Result:
        given = layers.with_runs(self.trace, run_s)
        options = layers.bare_options(self.options)
        return self._run(layers.bare(self.cluster), given, policy, options)

    def _run(
        self, cluster: Cluster, trace: Trace, policy: ChosenPolicy, options: dict[str, Any]
    ) -> Result:
        own = policy.own
        name, params = (policy.reference.name, policy.params) if own is None else (own, None)
        report: Any = self.progress
        try:
            return simulate(cluster, trace, name, params=params, progress=report, **options)
        finally:
            if isinstance(self.progress, Total):
                self.progress.end_run()

    def _compare(
        self,
        policy: ChosenPolicy,
        outcomes: Outcomes,
        peer: Outcomes | None,
        run_s: Floats,
        found: dict[str, dict[str, Floats]],
        missing: dict[str, str],
    ) -> PolicyValidation:
        known = ~np.isnan(outcomes.jct_s) & self._counted()
        both = known.copy()
        for times in found.values():
            both &= ~np.isnan(times["jct_s"])
        if not both.any():
            message = f"{outcomes.path}: no job finished both in this table and in the simulation"
            raise TraceError(message, path=outcomes.path)
        kinds = _kinds(self.trace, both)
        agreements = {
            layer: self._agreement(outcomes, run_s, times, both, kinds)
            for layer, times in found.items()
        }
        notes = list(dict.fromkeys([*outcomes.notes(), *([] if peer is None else peer.notes())]))
        if left := int((known & ~both).sum()):
            notes.append(
                f"{left:,} jobs of the log did not finish in every simulation and are left out"
            )
        if layers.SCHEDULING in found and (unknown := int(np.isnan(run_s).sum())):
            notes.append(
                f"{unknown:,} jobs have no observed run time; they run as long as in the trace"
            )
        return PolicyValidation(
            policy=policy.label,
            layers=agreements,
            missing=missing,
            defects=dict(outcomes.defects),
            notes=notes,
            job_ids=self.trace.column("job_id").filter(pa.array(both)).to_pylist(),
            observed_jct_s=outcomes.jct_s[both],
            jct_s={layer: times["jct_s"][both] for layer, times in found.items()},
            losses={layer: self._losses(outcomes, times, both) for layer, times in found.items()},
        )

    def _losses(
        self, outcomes: Outcomes, times: dict[str, Floats], both: npt.NDArray[np.bool_]
    ) -> Floats:
        """Return each job's contribution to the distance; NaN if the job is not compared."""
        found = losses(self.trace.numbers("arrival_s"), outcomes.times, _times(times))
        return np.where(both, found, np.nan)

    def _counted(self) -> npt.NDArray[np.bool_]:
        """Return the jobs that arrive in the options' window; without a window, all jobs."""
        arrival = self.trace.numbers("arrival_s")
        window = make_options(self.options).count_arrivals
        if window is None:
            return np.ones(len(arrival), dtype=bool)
        inside: npt.NDArray[np.bool_] = (window[0] <= arrival) & (arrival < window[1])
        return inside

    def _agreement(
        self,
        outcomes: Outcomes,
        run_s: Floats,
        times: dict[str, Floats],
        both: npt.NDArray[np.bool_],
        kinds: dict[str, tuple[Ints, list[str]]],
    ) -> Agreement:
        arrival = self.trace.numbers("arrival_s")[both]
        gpus = self.trace.numbers("gpus")[both].astype(np.float64)
        simulated_start = arrival + times["queue_s"][both]
        observed_start = arrival + outcomes.queue_s[both]
        observed_start = np.where(np.isnan(simulated_start), np.nan, observed_start)
        simulated_run = gpus * times["run_s"][both]
        observed_run = np.where(np.isnan(simulated_run), np.nan, gpus * run_s[both])
        identifiers = self.trace.column("job_id").filter(pa.array(both)).to_pylist()
        first = departure(
            identifiers, arrival, gpus, observed_start, simulated_start, self.tolerance_s
        )
        return agreement(
            arrival,
            outcomes.jct_s[both],
            times["jct_s"][both],
            gpu_seconds=(observed_run, simulated_run),
            groups=kinds,
            first=first,
            starts_known=int((~np.isnan(observed_start)).sum()),
            waits=waits(
                arrival,
                Times(*(one[both] for one in outcomes.times)),
                Times(*(one[both] for one in _times(times))),
                self.tolerance_s,
            ),
        )


def _times(times: dict[str, Floats]) -> Times:
    return Times(times["queue_s"], times["jct_s"] - times["run_s"])


def _kinds(trace: Trace, both: npt.NDArray[np.bool_]) -> dict[str, tuple[Ints, list[str]]]:
    """Return the groups of jobs by size, length and model, as far as the trace has the columns."""
    found = {"size": size_codes(trace.numbers("gpus")[both])}
    if "duration_s" in trace.columns:
        durations = trace.numbers("duration_s")[both]
        codes = np.where(np.isnan(durations), -1, length_codes(durations))
        found["length"] = (codes, list(LENGTHS))
    if "model" in trace.columns:
        column = trace.column("model").filter(pa.array(both))
        names = [str(name) for name in column.dictionary.to_pylist()]
        order = sorted(range(len(names)), key=lambda i: names[i])
        places = np.argsort(order).astype(np.int64)
        codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        found["model"] = (
            np.where(codes < 0, -1, places[codes]), [names[i] for i in order]
        )  # fmt: skip
    return found
