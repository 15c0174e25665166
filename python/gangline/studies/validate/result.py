"""Presents a validation's findings: as plain values, tables, sentences and a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from gangline._support.formatting import duration, plural
from gangline.studies.validate.agreement import MEASURES, pairs_alike
from gangline.studies.validate.layers import LAYERS, PREDICTION, SCHEDULING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike
    from pathlib import Path

    from gangline._support.builtin_values import Json
    from gangline.cluster.description import Cluster
    from gangline.studies.validate.agreement import Agreement, Departure
    from gangline.studies.validate.observed import Floats
    from gangline.trace.jobs.table import Trace

__all__ = ["PolicyValidation", "Validation", "signed"]

_KINDS = {"size": "GPUs per job", "length": "run time in the trace", "model": "model"}
_ROWS: Mapping[str, str] = {
    "abs_p50": "absolute error of a job: median",
    "abs_p90": "p90 of it",
    "abs_p99": "p99 of it",
    "p10": "signed error of a job: p10",
    "p50": "median of it",
    "p90": "p90 of it, signed",
}

_WAITS: Mapping[str, str] = {
    "queue_mean_s": "mean wait until the first start",
    "wait_mean_s": "mean time without GPUs",
}

Table = tuple[str, list[str], list[list[str | float | None]]]


class Order(TypedDict):
    """The policies' order in a layer: their labels, by increasing mean JCT."""

    observed: list[str]
    simulated: list[str]
    alike: int
    pairs: int


class PolicyValidation:
    """The errors of one policy's layers relative to the observed times.

    Attributes
    ----------
    policy : str
        Label of the policy.
    layers : dict of str to Agreement
        The layers that are available, among `scheduling`, `prediction` and `peer`.
    missing : dict of str to str
        The layers that are missing, each with the reason.
    defects : dict of str to int
        Number of times that each defect occurs in the table of observed times.
    notes : list of str
        Sentences that say what was left out.
    job_ids : list of str
        Ids of the jobs that are compared.
    observed_jct_s : float64 array
        Observed JCTs of these jobs.
    jct_s : dict of str to float64 array
        JCTs of these jobs, keyed by layer.
    losses : dict of str to float64 array
        For each layer, the contribution of each job in the trace to the logarithm of
        `Waits.distance`. The logarithm is the mean of the contributions. NaN for a job whose waits
        are not compared.
    """

    def __init__(
        self,
        *,
        policy: str,
        layers: dict[str, Agreement],
        missing: dict[str, str],
        defects: dict[str, int],
        notes: list[str],
        job_ids: list[str],
        observed_jct_s: Floats,
        jct_s: dict[str, Floats],
        losses: dict[str, Floats],
    ) -> None:
        self.policy = policy
        self.layers = layers
        self.missing = missing
        self.defects = defects
        self.notes = notes
        self.job_ids = job_ids
        self.observed_jct_s = observed_jct_s
        self.jct_s = jct_s
        self.losses = losses

    @property
    def shown(self) -> dict[str, Agreement]:
        """The layers to show: `scheduling` is left out if its numbers are those of `prediction`."""
        one, other = self.layers.get(SCHEDULING), self.layers.get(PREDICTION)
        return {
            name: agreement
            for name, agreement in self.layers.items()
            if name != SCHEDULING or one != other
        }

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        return {
            "policy": self.policy,
            "jobs": len(self.job_ids),
            "layers": {name: one.to_dict() for name, one in self.layers.items()},
            "missing": dict(self.missing),
            "defects": dict(self.defects),
            "notes": list(self.notes),
        }

    def table(self) -> Table:
        """Return a row for each metric: the observed value, and each layer's value and error."""
        titles = ["", "observed"]
        for layer in self.shown:
            titles += [LAYERS[layer], "error"]
        rows: list[list[Any]] = []
        for key, name in MEASURES.items():
            known = [one.measures[key] for one in self.shown.values() if key in one.measures]
            if not known:
                continue
            form = _gpu_time if key == "gpu_seconds" else duration
            row = [name, form(known[0].observed)]
            for one in self.shown.values():
                pair = one.measures.get(key)
                row += ["", ""] if pair is None else [form(pair.simulated), signed(pair.error)]
            rows.append(row)
        for key, name in _ROWS.items():
            form_of = _share if key.startswith("abs_") else signed
            errors = [form_of(one.errors.get(key)) for one in self.shown.values()]
            rows.append([name, "", *(cell for error in errors for cell in ("", error))])
        ranks = [one.rank_correlation for one in self.shown.values()]
        cells = ["–" if rank is None else f"{rank:.3f}" for rank in ranks]
        rows.append(["rank correlation of JCTs", "", *(c for cell in cells for c in (cell, ""))])
        rows += self._waits()
        return f"{self.policy}: {plural(len(self.job_ids), 'job')}", titles, rows

    def _waits(self) -> list[list[Any]]:
        """Return the rows about waits; there are none if no wait was observed."""
        found = [one.waits for one in self.shown.values()]
        known = next((one for one in found if one is not None), None)
        if known is None:
            return []
        rows: list[list[Any]] = []
        for key, name in _WAITS.items():
            row: list[Any] = [name, duration(getattr(known, key).observed)]
            for one in found:
                pair = None if one is None else getattr(one, key)
                row += ["", ""] if pair is None else [duration(pair.simulated), signed(pair.error)]
            rows.append(row)
        ranks = [None if one is None else one.rank_correlation for one in found]
        cells = ["–" if rank is None else f"{rank:.3f}" for rank in ranks]
        rows.append(["rank correlation of waits", "", *(c for cell in cells for c in (cell, ""))])
        apart = ["–" if one is None else f"{one.distance:.3f}" for one in found]
        rows.append(
            ["distance of waits and order (1: none)", "", *(c for a in apart for c in (a, ""))]
        )
        return rows

    def bias_tables(self) -> list[Table]:
        """Return the bias by size, length and model: the error of each group's mean JCT."""
        tables = []
        first = next(iter(self.shown.values()))
        for kind, groups in first.groups.items():
            if len(groups) < 2:
                continue
            titles = [_KINDS[kind], "jobs", "observed mean JCT"]
            for layer in self.shown:
                titles += [f"{LAYERS[layer]}: error of the mean", "median error of a job"]
            rows = []
            for i, group in enumerate(groups):
                row: list[Any] = [group.name, group.jobs, duration(group.observed_s)]
                for one in self.shown.values():
                    mine = one.groups[kind][i]
                    row += [signed(mine.error), signed(mine.median_error)]
                rows.append(row)
            tables.append((f"{self.policy}: bias by {kind}", titles, rows))
        return tables

    def sentences(self, tolerance_s: float) -> list[str]:
        """Return sentences that explain the numbers."""
        said = []
        for layer, one in self.shown.items():
            mean, last = one.measures["jct_mean_s"], one.measures["jct_p99_s"]
            said.append(
                f"{self.policy}, {LAYERS[layer]}: mean JCT {signed(mean.error)}, p99 "
                f"{signed(last.error)}, makespan {signed(one.measures['makespan_s'].error)}; "
                f"half of the jobs are off by at most {_share(one.errors.get('abs_p50'))}."
            )
        if len(self.shown) < len(self.layers):
            said.append(
                f"{self.policy}, {LAYERS[SCHEDULING]}: the numbers are the same as with the trace "
                "alone and are not repeated; all errors come from the schedule, not from the run "
                "times."
            )
        predicted = self.layers[PREDICTION].measures.get("gpu_seconds")
        if predicted is not None and predicted.error is not None:
            said.append(
                f"{self.policy}: simulated from the trace alone, the jobs hold GPUs for "
                f"{_gpu_time(predicted.simulated)}; they really held them for "
                f"{_gpu_time(predicted.observed)} ({signed(predicted.error)})."
            )
        said += [
            f"{self.policy}, {LAYERS[layer]}: not measured: {why}."
            for layer, why in self.missing.items()
        ]
        if not any(one.starts_known for one in self.shown.values()):
            said.append(f"{self.policy}: starts are not compared, because none was observed.")
            return said
        for layer, one in self.shown.items():
            words = _starts(one, tolerance_s)
            said.append(f"{self.policy}, {LAYERS[layer]}: {words}")
        return said


class Validation:
    """The errors of simulated runs, compared with the observed times.

    The object can be indexed with a policy's label, and it iterates over the policies.

    Attributes
    ----------
    policies : list of PolicyValidation
        The result for each policy, in the order in which the policies were given.
    trace : Trace
        The jobs.
    cluster : Cluster
        The cluster on which the jobs ran.
    tolerance_s : float
        Two starts of a job count as the same if they differ by at most this many seconds.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.philly(jobs=40, seed=3, max_gpus=8)
    >>> happened = gl.simulate(lab, trace, "srtf").jobs
    >>> found = gl.validate(lab, trace, "srtf", happened)
    >>> len(found), found["srtf"].layers["prediction"].measures["jct_p99_s"].error
    (1, 0.0)
    """

    def __init__(
        self,
        policies: list[PolicyValidation],
        trace: Trace,
        cluster: Cluster,
        tolerance_s: float,
    ) -> None:
        self.policies = policies
        self.trace = trace
        self.cluster = cluster
        self.tolerance_s = tolerance_s

    def __getitem__(self, policy: str) -> PolicyValidation:
        """Return the policy with this label."""
        for one in self.policies:
            if one.policy == policy:
                return one
        known = ", ".join(one.policy for one in self.policies)
        raise KeyError(f"{policy}: not among {known}")

    def __iter__(self) -> Iterator[PolicyValidation]:
        return iter(self.policies)

    def __len__(self) -> int:
        return len(self.policies)

    def order(self) -> dict[str, Order]:
        """For each layer, compare the policies' order by mean JCT with the observed order.

        Returns
        -------
        dict of str to dict
            For each layer that all policies have: `observed` and `simulated` are the labels,
            ordered by increasing mean JCT. Out of `pairs` pairs of policies, `alike` have the same
            order in both lists. Empty if there is only one policy, or one table for all policies.
        """
        found: dict[str, Order] = {}
        for layer in LAYERS if len(self.policies) > 1 else ():
            if not all(layer in one.layers for one in self.policies):
                continue
            means = [one.layers[layer].measures["jct_mean_s"] for one in self.policies]
            observed = [pair.observed for pair in means]
            simulated = [pair.simulated for pair in means]
            if len(set(observed)) == 1:
                continue  # one table for all policies has no order
            alike, pairs = pairs_alike(observed, simulated)
            found[layer] = {
                "observed": self._ranked(observed),
                "simulated": self._ranked(simulated),
                "alike": alike,
                "pairs": pairs,
            }
        return found

    def _ranked(self, means: list[float]) -> list[str]:
        labels = [one.policy for one in self.policies]
        return [labels[i] for i in sorted(range(len(labels)), key=lambda i: means[i])]

    def to_dict(self) -> dict[str, Json]:
        """Return plain values, as `gangline validate --json` prints them."""
        data: dict[str, Any] = {
            "cluster": self.cluster.name,
            "jobs": len(self.trace),
            "tolerance_s": self.tolerance_s,
            "policies": [one.to_dict() for one in self.policies],
            "order": self.order(),
        }
        return data

    def tables(self) -> list[Table]:
        """Return title, column titles and cells of each table; each policy's metrics come first."""
        bias = [table for one in self.policies for table in one.bias_tables()]
        return [*(one.table() for one in self.policies), *bias]

    def sentences(self) -> list[str]:
        """Return sentences that explain the numbers."""
        said = [line for one in self.policies for line in one.sentences(self.tolerance_s)]
        for layer, found in self.order().items():
            if not any(layer in one.shown for one in self.policies):
                continue
            said.append(
                f"Order by mean JCT, {LAYERS[layer]}: {' < '.join(found['simulated'])}; observed: "
                f"{' < '.join(found['observed'])} ({found['alike']} of {found['pairs']} pairs "
                "alike)."
            )
        return said

    def write(self, path: str | PathLike[str], *, command: str = "") -> Path:
        """Write one self-contained HTML page with all tables and figures.

        Raises
        ------
        ResultError
            If the existing file is not a page that gangline wrote.
        OSError
            If the file cannot be written.
        """
        from gangline.analysis import report
        from gangline.studies.validate.picture import pictures

        said = [*self.sentences(), *(note for one in self.policies for note in one.notes)]
        drawn = [
            (one.table()[0], *picture)
            for number, one in enumerate(self.policies)
            for picture in pictures(
                one.policy,
                number,
                one.observed_jct_s,
                {layer: one.jct_s[layer] for layer in one.shown},
            )
        ]
        title = "Simulated against observed"
        return report.write_tables(
            title, said, self.tables(), path, command=command, pictures=drawn
        )

    def __repr__(self) -> str:
        means = []
        for one in self.policies:
            errors = [
                f"{layer} {signed(of.measures['jct_mean_s'].error)}"
                for layer, of in one.layers.items()
            ]
            means.append(f"{one.policy}: {', '.join(errors)}")
        return f"Validation(error of the mean JCT: {'; '.join(means)})"

    def _repr_html_(self) -> str:
        from gangline._support.html import table

        parts = (table(titles, rows, caption=name) for name, titles, rows in self.tables())
        return "".join(parts)


def signed(error: float | None) -> str:
    """Return a relative error as a signed percentage.

    Examples
    --------
    >>> signed(-0.0101), signed(0.0), signed(None), signed(12.5), signed(-0.0001)
    ('-1.0 %', '0 %', '–', '+1250 %', '-0.0 %')
    """
    if error is None:
        return "–"
    if error == 0.0:
        return "0 %"
    return f"{100.0 * error:+.1f} %" if abs(error) < 10.0 else f"{100.0 * error:+.0f} %"


def _share(error: float | None) -> str:
    return signed(error).removeprefix("+")


def _gpu_time(seconds: float | None) -> str:
    """Return GPU time in GPU-hours, with three digits for short times.

    Examples
    --------
    >>> _gpu_time(570.0), _gpu_time(8.5e6), _gpu_time(None)
    ('0.158 GPU-h', '2,361 GPU-h', '–')
    """
    if seconds is None:
        return "–"
    hours = seconds / 3600.0
    return f"{hours:,.0f} GPU-h" if hours >= 100.0 else f"{hours:.3g} GPU-h"


def _starts(one: Agreement, tolerance_s: float) -> str:
    """Describe the first start that differs."""
    first: Departure | None = one.departure
    if not one.starts_known:
        return "starts are not compared, because no start was observed for the jobs compared here."
    near = duration(tolerance_s) if tolerance_s else "0 s"
    if first is None:
        return f"all {one.starts_known:,} starts are within {near}."
    apart = first.simulated_start_s - first.observed_start_s
    way = "later" if apart > 0.0 else "earlier"
    return (
        f"{first.differing:,} of {first.known:,} starts differ by more than {near} (median "
        f"difference: {duration(first.median_s)}); the first is that of job {first.job_id} "
        f"({plural(first.gpus, 'GPU')}, arrived at {first.arrival_s:,.6g} s), which really started "
        f"at {first.observed_start_s:,.6g} s, but in the simulation at "
        f"{first.simulated_start_s:,.6g} s, {duration(abs(apart))} {way}."
    )
