"""Fits iteration times: seven parameters replace the measured placements of an application.

The model is that of Pollux (arXiv 2008.12260): a pass takes `a_c + b_c x samples`. A
synchronisation takes no time on one GPU, `a_r + b_r x (GPUs - 2)` on one server and `a_n + b_n x
(GPUs - 2)` on several; the overlap of the two is a p-norm with p = `gamma`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gangline.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from gangline.cluster.tables.pollux import PolluxProfile

    Floats = npt.NDArray[np.float64]

__all__ = ["StepFit", "fit_pollux"]

_LEAST = 1e-8
_GAMMA_MAX = 10.0
# initial values of gamma, because the sum of squares has more than one minimum
_STARTS = (1.2, 2.0, 4.0, 8.0)
_ROUNDS = 200


class StepFit(NamedTuple):
    """The fitted parameters for one application on one GPU type, in seconds except for `gamma`.

    Attributes
    ----------
    a_c, b_c : float
        Constant part of the time of a pass, and part per sample.
    a_n, b_n : float
        Constant part of the time of a synchronisation over several servers, and part per GPU beyond
        two; 0 if no such synchronisation was measured.
    a_r, b_r : float
        The same parts for a synchronisation within one server.
    gamma : float
        Overlap of a synchronisation with the pass before it, 1 (none) to 10.
    points : int
        Number of measured combinations of a placement and a batch size.
    error_median, error_p90, error_max : float
        Quantiles of ``abs(fitted / measured - 1)`` for the time of an iteration.

    Examples
    --------
    >>> import gangline as gl
    >>> from gangline.cluster.tables.pollux import Step
    >>> curve = {b: Step(0.1 + 0.01 * b, 0.0) for b in (8, 16, 32)}
    >>> fit = gl.tables.fit_pollux(gl.tables.PolluxProfile("mine", {"1": curve}, {}, {}))
    >>> round(fit.a_c, 6), round(fit.b_c, 6), fit.points
    (0.1, 0.01, 3)
    """

    a_c: float
    b_c: float
    a_n: float
    b_n: float
    a_r: float
    b_r: float
    gamma: float
    points: int
    error_median: float
    error_p90: float
    error_max: float

    def step_s(self, gpus: int, servers: int, samples: int, extra_passes: int = 0) -> float:
        """Return the time of an iteration in seconds.

        Parameters
        ----------
        gpus, servers : int
            Number of GPUs of the gang, and number of servers that it uses.
        samples : int
            Samples per GPU and pass.
        extra_passes : int
            Number of passes beyond the first, which enlarge the batch and do not synchronise.
        """
        import numpy as np

        at = _Points(*(np.asarray([float(value)]) for value in (gpus, servers, samples)))
        passes, step = _times(np.asarray(self[:7]), at)
        return float(extra_passes * passes[0] + step[0])


class _Points(NamedTuple):
    """The measured points; each array has shape (points,)."""

    gpus: Floats
    servers: Floats
    samples: Floats


def fit_pollux(profile: PolluxProfile) -> StepFit:
    """Fit the iteration times of an application to its measured placements.

    Parameters
    ----------
    profile : PolluxProfile
        The profile. Only its `placements` are used, that is, the times of iterations and
        synchronisations.

    Returns
    -------
    StepFit
        The parameters and the quantiles of the error. The fit minimises the squared errors of the
        logarithms of the iteration times and the pass times. A synchronisation that was not
        measured has the time 0.

    Raises
    ------
    TraceError
        If fewer than two batch sizes were measured, or if a time is not above 0.

    Notes
    -----
    The method is damped least squares, started from several initial values. On the same machine, a
    profile always gives the same numbers. The cost is O(points) per step, for a few hundred steps.

    Examples
    --------
    >>> from gangline.cluster.tables import PolluxProfile, fit_pollux
    >>> from gangline.cluster.tables.pollux import Step
    >>> curve = {b: Step(0.1 + 0.01 * b, 0.0) for b in (8, 16, 32)}
    >>> fit = fit_pollux(PolluxProfile("mine", {"1": curve}, {}, {}))
    >>> round(fit.a_c, 6), round(fit.b_c, 6), fit.points
    (0.1, 0.01, 3)
    """
    import numpy as np

    rows = [
        (sum(map(int, shape)), len(shape), samples, step.step_s, step.step_s - step.sync_s)
        for shape, curve in sorted(profile.placements.items())
        for samples, step in sorted(curve.items())
    ]
    if len({row[2] for row in rows}) < 2:
        place = f"{profile.path} {profile.application}"
        raise TraceError.at(place, None, "local_bsz", None, "at least two batch sizes to fit")
    for row in rows:
        if not row[3] > 0.0:
            place = f"{profile.path} {profile.application}"
            raise TraceError.at(place, None, "step_time", row[3], "a time above 0 to fit")
    gpus, servers, samples, steps, passes = np.asarray(rows, dtype=np.float64).T
    at = _Points(gpus, servers, samples)
    several, inside = servers > 1.0, (servers == 1.0) & (gpus > 1.0)
    is_free = np.ones(7, dtype=np.bool_)
    is_free[2:4] = several.any(), (several & (gpus > 2.0)).any()
    is_free[4:6] = inside.any(), (inside & (gpus > 2.0)).any()
    is_free[6] = (gpus > 1.0).any()
    # noise can make the time of a pass 0; only the iteration time of such a point is used
    known = passes > 0.0
    measured = np.log(np.concatenate([steps, passes[known]]))

    def errors(parameters: Floats) -> Floats:
        pass_s, step_s = _times(parameters, at)
        found: Floats = np.log(np.concatenate([step_s, pass_s[known]])) - measured
        return found

    first = _first_guess(at, steps, passes)
    tried = [
        _descend(errors, np.concatenate([first, [gamma]]), is_free)
        for gamma in (_STARTS if is_free[6] else (1.0,))
    ]
    best = min(tried, key=lambda one: float(np.square(errors(one)).sum()))
    off = np.abs(_times(best, at)[1] / steps - 1.0)
    a_c, b_c, a_n, b_n, a_r, b_r, gamma = best.tolist()
    median, p90 = np.quantile(off, [0.5, 0.9]).tolist()
    most = float(off.max())
    return StepFit(a_c, b_c, a_n, b_n, a_r, b_r, gamma, len(rows), median, p90, most)


def _times(parameters: Floats, at: _Points) -> tuple[Floats, Floats]:
    """Return the time in seconds of a pass, and of a single-pass iteration, at each point."""
    import numpy as np

    a_c, b_c, a_n, b_n, a_r, b_r, gamma = parameters
    passes = a_c + b_c * at.samples
    above = np.maximum(at.gpus - 2.0, 0.0)
    sync = np.where(at.servers > 1.0, a_n + b_n * above, a_r + b_r * above)
    sync = np.where(at.gpus > 1.0, sync, 0.0)
    longer, shorter = np.maximum(passes, sync), np.minimum(passes, sync)
    return passes, longer * (1.0 + (shorter / longer) ** gamma) ** (1.0 / gamma)


def _first_guess(at: _Points, steps: Floats, passes: Floats) -> Floats:
    """Return initial values for the six times, from straight lines fitted to the measurements."""
    import numpy as np

    def line(x: Floats, y: Floats) -> tuple[float, float]:
        if not len(x):
            return 0.0, 0.0
        design = np.stack([np.ones_like(x), x], axis=1)
        a, b = np.linalg.lstsq(design, y, rcond=None)[0]
        return max(float(a), 1e-4), max(float(b), 1e-6)

    more = np.maximum(steps - passes, 1e-4)
    above = np.maximum(at.gpus - 2.0, 0.0)
    several = at.servers > 1.0
    inside = ~several & (at.gpus > 1.0)
    return np.asarray(
        [
            *line(at.samples, passes),
            *line(above[several], more[several]),
            *line(above[inside], more[inside]),
        ]
    )


def _descend(errors: Callable[[Floats], Floats], start: Floats, is_free: Any) -> Floats:
    """Minimise the squared errors over the free parameters.

    The other parameters are fixed: the times at 0, and gamma at 1.
    """
    import numpy as np

    fixed = np.where(np.arange(7) == 6, 1.0, 0.0)
    free = np.flatnonzero(is_free)

    def parameters(point: Floats) -> Floats:
        """Return the times from their logarithms, and gamma from a logit.

        The logit is that of gamma's position between its bounds.
        """
        found = fixed.copy()
        values = np.exp(point)
        values = np.where(free == 6, 1.0 + (_GAMMA_MAX - 1.0) * values / (1.0 + values), values)
        found[free] = np.where(free == 6, values, np.maximum(values, _LEAST))
        return found

    values = start[free]
    part = (np.clip(values, 1.01, _GAMMA_MAX - 0.01) - 1.0) / (_GAMMA_MAX - 1.0)
    is_gamma = free == 6
    point = np.log(np.where(is_gamma, part / (1.0 - part), np.maximum(values, _LEAST)))
    damping, off = 1e-2, errors(parameters(point))
    for _ in range(_ROUNDS):
        slopes = np.stack(
            [
                (errors(parameters(point + step)) - errors(parameters(point - step))) / 2e-6
                for step in 1e-6 * np.eye(len(point))
            ],
            axis=1,
        )
        square, towards = slopes.T @ slopes, slopes.T @ off
        step = np.linalg.solve(square + damping * (np.eye(len(point)) + np.diag(np.diag(square))),
                               -towards)  # fmt: skip
        there = np.clip(point + np.clip(step, -2.0, 2.0), -40.0, 40.0)
        new = errors(parameters(there))
        gain = float(np.square(off).sum() - np.square(new).sum())
        if gain > 0.0:
            point, off, damping = there, new, max(damping / 4.0, 1e-12)
            if gain < 1e-14:
                break
        else:
            damping *= 4.0
            if damping > 1e12:
                break
    return parameters(point)
