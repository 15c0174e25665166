"""Fits observed run times with rate factors, a cost per start, and noise.

A job that held its gang for `run` seconds is modelled as

    run = factor of its model and size x duration in the trace + start_s + restart_s x restarts

with log-normal noise of median 1 in the first term. The costs may differ between models. The fit
begins with Huber's regression ("Robust estimation of a location parameter", 1964), in which both
sides are divided by the duration, because a few short jobs took several times as long as their
durations. It then fits the logarithm of the first term in the same way, step by step
(Gauss-Newton). The intervals allow for errors of unequal size, and for jobs with high leverage,
such as short ones (HC3 of MacKinnon and White, "Some heteroskedasticity-consistent covariance
matrix estimators with improved finite sample properties", 1985).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gangline._support.formatting import plural
from gangline.errors import TraceError
from gangline.studies.validate.observed import read_outcomes
from gangline.trace.jobs.table import Trace
from gangline.trace.read import as_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from gangline._support.builtin_values import Json
    from gangline.analysis.audit.inputs import TableLike
    from gangline.runs.inputs import TraceLike
    from gangline.studies.validate.observed import Floats

    Matrix = npt.NDArray[np.float64]

__all__ = ["ALL", "Estimate", "RuntimeFit", "fit_runtime"]

ALL = "all models"
"""Name of the factor for jobs without a model, and for kinds with few jobs."""

_HUBER = 1.345  # Huber's constant: 95 % of the efficiency of least squares if errors are normal
_MAD = 1.4826022185056018  # normal distribution: standard deviation / median absolute deviation
_STEPS = (
    200  # our own choice: the maximum number of reweighted fits, which end when nothing changes
)
_STILL = 1e-12  # a relative change of at most this ends the fit
_LEAST = 1e-3  # our own choice: fitted times are at least this fraction of the observed ones
# Relative standard error of a deviation computed with `_MAD`, times the square root of the number
# of jobs.
_MAD_ERROR = 1.1664
_NORMAL = 1.959963984540054  # the 0.975 quantile of the normal distribution, for 95 % intervals
_MOST_NOISE = 2.0  # the largest `job_noise` that a run accepts
_LEAST_JOBS = 5  # our own choice: fewer jobs would not determine the factor of a model
_ALIKE = 0.9  # our own choice: estimates with a higher correlation are not distinguished


@dataclass(frozen=True)
class Estimate:
    """A fitted number with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class RuntimeFit:
    """A fit of observed run times to the durations in a trace.

    Attributes
    ----------
    factors : dict of str to Estimate
        Run time divided by the duration in the trace, for each model and gang size, such as `bert,
        8 GPUs`. Kinds with few jobs are grouped by model, or as `all models`.
    start_s, restart_s : Estimate or None
        Time in seconds that the first start costs, and that each later start costs; None if it
        cannot be estimated.
    start_by_model, restart_by_model : dict of str to Estimate
        The costs for each model, if they were fitted by model; `start_s` and `restart_s` then
        belong to the models with few jobs.
    noise : Estimate
        Sigma of the log-normal noise in run times without the costs of starts, estimated from the
        median absolute deviation. Its interval is valid only if the noise is log-normal.
    jobs : int
        Number of jobs that were fitted.
    alike : list of (str, str)
        Pairs of numbers that the jobs do not determine separately: raising one and lowering the
        other fits equally well.
    notes : list of str
        Sentences about jobs that were left out, and about numbers that could not be fitted.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.philly(jobs=40, seed=3, max_gpus=8)
    >>> happened = gl.simulate(lab, trace, "srtf").jobs
    >>> found = gl.fit_runtime(trace, happened)
    >>> found.jobs, round(found.factors["all models"].value, 6)
    (40, 1.0)
    """

    factors: dict[str, Estimate]
    start_s: Estimate | None
    restart_s: Estimate | None
    noise: Estimate
    jobs: int
    alike: list[tuple[str, str]]
    notes: list[str]
    start_by_model: dict[str, Estimate] = field(default_factory=dict)
    restart_by_model: dict[str, Estimate] = field(default_factory=dict)

    def apply(self, trace: TraceLike) -> Trace:
        """Return the jobs with their durations multiplied by their factors.

        The costs of starts are options of a run: `first_start_s` and `restart_s`.
        """
        jobs = as_trace(trace)
        factor = np.array(
            [
                next((self.factors[name].value for name in kinds if name in self.factors), 1.0)
                for kinds in _kinds(jobs)
            ]
        )
        durations = pa.array(jobs.numbers("duration_s") * factor, from_pandas=True)
        place = jobs.columns.index("duration_s")
        return Trace.from_arrow(jobs.table.set_column(place, "duration_s", durations))

    def options(self) -> dict[str, float]:
        """Return the costs of starts, at least 0, as options of `gangline.simulate`.

        Costs that were fitted for individual models are excluded. If there are such costs, the
        options cover only models with few jobs.
        """
        costs = {"first_start_s": self.start_s, "restart_s": self.restart_s}
        return {name: max(one.value, 0.0) for name, one in costs.items() if one is not None}

    def runtime(self) -> dict[str, Json]:
        """Return the noise and the start costs as a `[runtime]` table.

        Costs that were fitted by model have a row for each model.
        """
        costs = {
            "first_start_s": {ALL: self.start_s, **self.start_by_model},
            "restart_s": {ALL: self.restart_s, **self.restart_by_model},
        }
        rows: dict[str, dict[str, Json]] = {}
        for name, by_model in costs.items():
            for model, one in by_model.items():
                if one is not None:
                    row = rows.setdefault(model, {} if model == ALL else {"model": model})
                    row[name] = max(one.value, 0.0)
        noise = {"job_noise": min(self.noise.value, _MOST_NOISE)}
        return noise | ({"rows": list(rows.values())} if rows else {})

    def to_dict(self) -> dict[str, Json]:
        """Return plain values, as `gangline trace fit-runtime --json` prints them."""
        return {**asdict(self), "options": self.options()}

    def rows(self) -> list[list[str]]:
        """Return the name, the value and the interval of each fitted number."""
        found = [
            [f"factor: {name}", f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}"]
            for name, one in self.factors.items()
        ]
        for name, whole, by_model in (
            ("first start", self.start_s, self.start_by_model),
            ("restart", self.restart_s, self.restart_by_model),
        ):
            costs = {f"{name}: {model}, s": one for model, one in by_model.items()}
            if whole is not None:
                costs[f"{name}, s"] = whole
            found += [
                [words, f"{one.value:.1f}", f"{one.low:.1f} to {one.high:.1f}"]
                for words, one in costs.items()
            ]
        noise = self.noise
        spread = f"{noise.low:.3f} to {noise.high:.3f}"
        return [*found, ["noise, sigma", f"{noise.value:.3f}", spread]]


def fit_runtime(
    trace: TraceLike,
    observed: TableLike,
    *,
    columns: Mapping[str, str] | None = None,
    costs_by_model: bool = False,
) -> RuntimeFit:
    """Fit run times to durations: rate factors by model and gang size, and the costs of starts.

    Parameters
    ----------
    trace : as for `gangline.simulate`
        The jobs, with durations.
    observed : table or path
        The observed times, as for `gangline.validate`; run_s is required, and starts or preemptions
        are used if known.
    columns : mapping, optional
        Mapping from native names to names in the table.
    costs_by_model : bool
        Whether to fit start costs separately for each model with five or more jobs.

    Returns
    -------
    RuntimeFit

    Raises
    ------
    TraceError
        If a table is invalid, or if too few jobs have a run time and a duration: there must be more
        of them than numbers to fit.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.philly(jobs=200, seed=3, max_gpus=8)
    >>> happened = gl.simulate(lab, trace, "fifo", first_start_s=30.0)
    >>> round(gl.fit_runtime(trace, happened.jobs).start_s.value, 3)
    30.0
    """
    jobs = as_trace(trace)
    outcomes = read_outcomes(observed, jobs, columns)
    traced = jobs.numbers("duration_s") if "duration_s" in jobs.columns else np.empty(0)
    known = ~np.isnan(outcomes.run_s)
    known &= (traced > 0.0) & (outcomes.run_s > 0.0) if len(traced) else False
    restarts = outcomes.starts - 1.0
    notes = outcomes.notes()
    if not np.isnan(restarts).all():
        known &= ~np.isnan(restarts)
    kinds = [of for of, is_known in zip(_kinds(jobs), known, strict=True) if is_known]
    labels = np.array(_labels(kinds))
    duration, run, again = traced[known], outcomes.run_s[known], restarts[known]
    order = sorted(set(labels.tolist()), key=lambda name: (name == ALL, name))
    design = {f"factor: {name}": (labels == name).astype(np.float64) for name in order}
    payers = np.array(
        _labels([of[-2:] for of in kinds] if costs_by_model else [(ALL,)] * len(kinds))
    )
    models = sorted(set(payers.tolist()), key=lambda name: (name != ALL, name))
    for model in models:
        design[_cost("first start", model)] = (payers == model) / duration
    if len(again) and not np.isnan(again).any() and again.any():
        for model in models:
            if again[payers == model].any():
                design[_cost("restart", model)] = np.where(payers == model, again, 0.0) / duration
            else:
                notes.append(f"{_cost('restart', model)}: no such job was restarted")
    else:
        notes.append("no restart is known, so the cost of one cannot be fitted")
    if len(run) <= len(design):
        if np.isnan(outcomes.run_s).all():
            what = "no job has a run time; expected the seconds that it held GPUs in column `run_s`"
        else:
            have = f"{plural(len(run), 'job')} with a run time and a duration"
            what = f"{have}; expected more than the {plural(max(len(design), 1), 'number')} to fit"
        raise TraceError(f"{outcomes.path}: {what}", path=outcomes.path)
    return _fitted(design, run / duration, order, models, notes)


def _fitted(
    design: dict[str, Floats],
    ratio: Floats,
    order: list[str],
    models: list[str],
    notes: list[str],
) -> RuntimeFit:
    """Fit all columns except those that are linearly dependent on earlier columns."""
    names: list[str] = []
    for name in design:
        matrix = np.column_stack([design[one] for one in [*names, name]])
        scaled = matrix / np.linalg.norm(matrix, axis=0)
        if np.linalg.matrix_rank(scaled) == matrix.shape[1]:
            names.append(name)
        else:
            notes.append(f"{name}: cannot be separated from the other numbers; left out")
    matrix = np.column_stack([design[name] for name in names])
    size = np.linalg.norm(matrix, axis=0)  # durations differ by powers of ten
    scaled = matrix / size
    is_factor = np.array([name.startswith("factor") for name in names])
    values, scale, scaled, left = _log_normal(scaled, is_factor, ratio)
    inside = np.abs(left) <= _HUBER * scale
    bent = np.clip(left, -_HUBER * scale, _HUBER * scale)
    # The slope is 0 for outliers, so they have no weight. A number that only outliers determine
    # would then have no slope at all, so these outliers have the weights of the fit.
    is_far = ~(scaled[inside] != 0.0).any(axis=0)
    rough = ~inside & (scaled[:, is_far] != 0.0).any(axis=1)
    weight = inside.astype(np.float64)
    weight[rough] = _HUBER * scale / np.abs(left[rough])
    inverse = np.linalg.pinv((scaled.T * weight) @ scaled)
    notes += [
        f"{name}: its jobs differ so much that the interval is only approximate"
        for name, far in zip(names, is_far, strict=True)
        if far
    ]
    leverage = np.einsum("ij,jk,ik->i", scaled, np.linalg.inv(scaled.T @ scaled), scaled)
    bent = bent / np.maximum(1.0 - leverage, _STILL)
    spread = inverse @ (scaled.T * bent**2) @ scaled @ inverse
    error = np.sqrt(np.diag(spread)) / size
    found = {
        name: Estimate(float(v), float(v - _NORMAL * e), float(v + _NORMAL * e))
        for name, v, e in zip(names, values / size, error, strict=True)
    }

    notes += [
        f"{name}: the interval includes 0 or lies below it, so these jobs do not show such a cost"
        for name, one in found.items()
        if not name.startswith("factor") and one.low <= 0.0
    ]

    def by_model(words: str) -> dict[str, Estimate]:
        costs = {model: found.get(_cost(words, model)) for model in models if model != ALL}
        return {model: one for model, one in costs.items() if one is not None}

    return RuntimeFit(
        factors={name: found[f"factor: {name}"] for name in order if f"factor: {name}" in found},
        start_s=found.get("first start"),
        restart_s=found.get("restart"),
        start_by_model=by_model("first start"),
        restart_by_model=by_model("restart"),
        noise=_sigma(scale, len(ratio), len(names)),
        jobs=len(ratio),
        alike=_alike(names, np.asarray(np.linalg.inv(scaled.T @ scaled), dtype=np.float64)),
        notes=notes,
    )


def _cost(words: str, model: str) -> str:
    """Return the name of a model's start or restart cost."""
    return words if model == ALL else f"{words}: {model}"


def _sigma(scale: float, jobs: int, numbers: int) -> Estimate:
    """Return the noise's sigma from the scale of the residuals and the count of fitted numbers."""
    value = scale * (jobs / (jobs - numbers)) ** 0.5
    spread = float(np.exp(_NORMAL * _MAD_ERROR / jobs**0.5))
    return Estimate(value, value / spread, value * spread)


def _log_normal(
    matrix: Matrix, is_factor: npt.NDArray[np.bool_], ratio: Floats
) -> tuple[Floats, float, Matrix, Floats]:
    """Fit run times in which log-normal noise affects only the time with progress.

    Return the coefficients, the scale of the residuals, and the linear problem at the solution: its
    matrix and the residuals.
    """

    def straight(values: Floats) -> tuple[Matrix, Floats]:
        return matrix, ratio - matrix @ values

    def curved(values: Floats) -> tuple[Matrix, Floats]:
        told = np.maximum(matrix[:, is_factor] @ values[is_factor], _LEAST * ratio)
        whole = np.maximum(told + matrix[:, ~is_factor] @ values[~is_factor], _LEAST * ratio)
        return matrix / told[:, None], whole / told * np.log(ratio / whole)

    first = np.linalg.lstsq(matrix, ratio, rcond=None)[0]
    values, _ = _huber(straight, np.asarray(first, dtype=np.float64))
    values, scale = _huber(curved, values)
    return values, scale, *curved(values)


def _huber(
    linear: Callable[[Floats], tuple[Matrix, Floats]], values: Floats
) -> tuple[Floats, float]:
    """Return the coefficients of Huber's regression, and the scale of the residuals.

    `linear` returns the linear problem at given coefficients: its matrix and the residuals.
    """
    scale = 0.0
    for _ in range(_STEPS):
        matrix, left = linear(values)
        size = np.abs(left)
        scale = _MAD * float(np.median(size))
        if scale == 0.0:
            break
        roots = np.sqrt(_HUBER * scale / np.maximum(size, _HUBER * scale))
        step = np.linalg.lstsq(matrix * roots[:, None], left * roots, rcond=None)[0]
        values = values + step
        if np.abs(step).max() <= _STILL * np.abs(values).max():
            break
    return values, scale


def _alike(names: list[str], inverse: npt.NDArray[np.float64]) -> list[tuple[str, str]]:
    """Return the pairs of numbers whose estimates are highly correlated for these jobs."""
    spread = np.sqrt(np.diag(inverse))
    correlation = inverse / np.outer(spread, spread)
    return [
        (names[i], names[j])
        for i in range(len(names))
        for j in range(i + 1, len(names))
        if abs(correlation[i, j]) > _ALIKE
    ]


def _kinds(jobs: Trace) -> list[tuple[str, ...]]:
    """Return the descriptions of each job's kind, from the most specific to the most general."""
    if "model" not in jobs.columns:
        return [(ALL,)] * len(jobs)
    pairs = zip(jobs.column("model").to_pylist(), jobs.column("gpus").to_pylist(), strict=True)
    return [(f"{m}, {plural(g, 'GPU')}", m, ALL) if m else (ALL,) for m, g in pairs]


def _labels(kinds: list[tuple[str, ...]]) -> list[str]:
    """Return each job's most specific description that enough jobs share."""
    labels = [""] * len(kinds)
    for level in range(3):
        counts = Counter(of[level] for of, name in zip(kinds, labels, strict=True)
                         if not name and level < len(of))  # fmt: skip
        for at, of in enumerate(kinds):
            is_open = not labels[at] and level < len(of)
            if is_open and (counts[of[level]] >= _LEAST_JOBS or of[level] == ALL):
                labels[at] = of[level]
    return labels
