"""Finds the policy that resembles the log most, and measures how much it resembles the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangline._support.formatting import duration, listed, percent, plural
from gangline.errors import GanglineError, PolicyError
from gangline.studies.validate.layers import PREDICTION
from gangline.studies.validate.result import signed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    import numpy.typing as npt

    from gangline._support.builtin_values import Json
    from gangline.cluster.description import Cluster
    from gangline.studies.advise.contenders import Contender
    from gangline.studies.advise.parts import Parts
    from gangline.studies.validate.result import PolicyValidation
    from gangline.studies.validate.waits import Waits
    from gangline.trace.jobs.table import Trace

__all__ = ["Calibration", "Likeness", "calibrate", "is_mistake"]

# Our own choice of limits. In 93 of 100 synthetic logs with noise, the policy that produced the log
# meets both. If the waits of a log are shuffled, no policy meets both (docs/decisions.md).
_ALIKE_RANKS = 0.4
_ALIKE_FACTOR = 2.0
_RANK_DIGITS, _ERROR_DIGITS = 2, 3  # the precision of the table: 0.40 and +12.3 %
_RULE = (
    f"A policy resembles the log if its mean wait is within a factor of {_ALIKE_FACTOR:g} of that "
    f"in the log and its rank correlation is at least {_ALIKE_RANKS:.2f}. The distance only orders "
    "the policies."
)
_JOBS_MIN = 20  # our own choice: with fewer jobs, schedulers cannot be told apart
_FEW = 0.02  # our own choice: if a smaller share of jobs waits, the order of starts says little


@dataclass(frozen=True)
class Likeness:
    """The resemblance between the waits under one policy and those in a log.

    Attributes
    ----------
    policy : str
        Label of the policy.
    waits : Waits
        The comparison of simulated waits with observed ones.
    is_apart : bool
        Whether this policy is clearly farther from the log than the nearest policy, judged by the
        parts of the log.
    """

    policy: str
    waits: Waits
    is_apart: bool

    @property
    def resembles(self) -> bool:
        """Return whether the waits roughly match the observed ones in order and in length."""
        return not self.unlike

    @property
    def unlike(self) -> tuple[str, ...]:
        """Titles, as in the table, of the metrics that differ too much from those of the log.

        The metrics are rounded as in the table, so the table never contradicts the rule.
        """
        pair, rank = self.waits.wait_mean_s, self.waits.rank_correlation
        if pair.error is None:  # no job waited in the log
            is_near = pair.simulated == pair.observed
        else:
            ratio = 1.0 + round(pair.error, _ERROR_DIGITS)
            is_near = 1.0 / _ALIKE_FACTOR <= ratio <= _ALIKE_FACTOR
        # without a correlation, all simulated or all observed waits are equal; the means suffice
        is_alike = is_near if rank is None else round(rank, _RANK_DIGITS) >= _ALIKE_RANKS
        return ("mean wait",) * (not is_near) + ("rank corr.",) * (not is_alike)

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        return {
            "policy": self.policy,
            "resembles": self.resembles,
            "unlike": list(self.unlike),
            "is_apart": self.is_apart,
            **self.waits.to_dict(),
        }


@dataclass(frozen=True)
class Calibration:
    """The resemblance of each policy to a log, from the nearest policy to the farthest.

    Attributes
    ----------
    rows : tuple of Likeness
        One entry per policy, ordered by `Waits.distance`.
    why : str
        The reason why `rows` is empty; "" if it is not empty.
    notes : tuple of str
        Sentences that say what was left out.
    """

    rows: tuple[Likeness, ...]
    why: str
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Likeness | None:
        """The policy that is nearest to the log."""
        return self.rows[0] if self.rows else None

    @property
    def is_quiet(self) -> bool:
        """Return whether hardly any job in the log had to wait."""
        best = self.best
        return best is not None and best.waits.waiting < _FEW * best.waits.jobs

    @property
    def is_small(self) -> bool:
        """Return whether the log has too few jobs to tell schedulers apart."""
        best = self.best
        return best is not None and best.waits.jobs < _JOBS_MIN

    def base(self, plain: Collection[str]) -> str | None:
        """Return the nearest policy, or one in `plain` if the log does not distinguish several.

        `plain` contains the policies that do not need to know how long jobs run. Any site can use
        such a policy.
        """
        best = self.best
        if best is None:
            return None
        level = [one for one in self.rows if not one.is_apart or one is best]
        level = [one for one in level if one.resembles or not best.resembles]
        return next((one.policy for one in level if one.policy in plain), best.policy)

    def sentences(self) -> list[str]:
        """Say which policy the log resembles, and how certain that is."""
        best = self.best
        if best is None:
            return [f"No policy can be calibrated: {self.why}."]
        waits = best.waits
        numbers = (
            "its waits and its order of jobs differ from those of the log by a factor of "
            f"{waits.distance:.2f} on average (1 = no difference)"
        )
        if self.is_small:
            said = (
                f"The log has only {plural(waits.jobs, 'job')}, too few to tell schedulers "
                f"apart. `{best.policy}` comes closest to it: {numbers}."
            )
            return [said]
        if self.is_quiet:
            said = (
                f"Only {waits.waiting:,} of {plural(waits.jobs, 'job')} waited for longer than "
                f"{duration(waits.short_s)} ({percent(waits.waiting / waits.jobs)}), so the log "
                f"hardly distinguishes policies. `{best.policy}` comes closest to it: {numbers}."
            )
        elif best.resembles:
            said = f"`{best.policy}` comes closest to the log: {numbers}."
        else:
            alike = [f"`{one.policy}`" for one in self.rows if one.resembles]
            verb = "resembles" if len(alike) == 1 else "resemble"
            said = (
                f"`{best.policy}` comes closest to the log but does not resemble it: {numbers}. "
                f"{listed(alike)} {verb} it."
                if alike
                else f"No contender resembles the log. `{best.policy}` comes closest: {numbers}."
            )
            said += (
                " The results below show how the policies differ in the simulation, not how they "
                "differ from the scheduler that produced the log."
            )
        near = [f"`{one.policy}`" for one in self.rows[1:] if not one.is_apart]
        if not near:
            return [said]
        untold = f"The distances in parts of the log do not tell {listed(near)} from "
        return [said, f"{untold}`{best.policy}`."]

    def legend(self) -> str:
        """Return the rule behind the last column of the table; empty if there is no table."""
        return _RULE if self.rows else ""

    def titles(self) -> list[str]:
        """Return the titles of `cells`."""
        return [
            "policy",
            "mean wait",
            "in the log",
            "error",
            "rank corr.",
            "distance",
            "resembles it",
        ]

    def cells(self) -> list[list[str]]:
        """Return a row per policy."""
        return [
            [
                one.policy,
                duration(one.waits.wait_mean_s.simulated),
                duration(one.waits.wait_mean_s.observed),
                signed(one.waits.wait_mean_s.error),
                "–" if (rank := one.waits.rank_correlation) is None else f"{rank:.2f}",
                f"{one.waits.distance:.2f}",
                self._verdict(one),
            ]
            for one in self.rows
        ]

    def _verdict(self, one: Likeness) -> str:
        if self.is_small or self.is_quiet:
            return "–"
        return f"no: {listed(one.unlike)}" if one.unlike else "yes"

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        return {
            "policies": [one.to_dict() for one in self.rows],
            "why": self.why,
            "notes": list(self.notes),
        }


def calibrate(
    cluster: Cluster,
    trace: Trace,
    contenders: Sequence[Contender],
    parts: Parts,
    tolerance_s: float,
    options: dict[str, Any],
) -> Calibration:
    """Simulate each contender, and compare its waits with the observed ones.

    The comparison is the layer *prediction* of `gangline.validate`, with the run options of the
    advice.
    """
    import numpy as np

    if "observed_start_s" not in trace.columns or np.isnan(trace.numbers("observed_start_s")).all():
        return Calibration((), "the log has no observed starts")
    found: list[PolicyValidation] = []
    notes: list[str] = []
    for one in contenders:
        held = _held(cluster, trace, one, tolerance_s, options)
        if isinstance(held, str):
            notes.append(f"`{one.label}`: not calibrated: {held}")
        else:
            found.append(held)
            notes += held.notes
    known = [(one, one.layers[PREDICTION].waits) for one in found]
    near = sorted(
        ((one, waits) for one, waits in known if waits is not None),
        key=lambda pair: pair[1].distance,
    )
    if not near:
        why = "no job with an observed start finished in the simulation"
        return Calibration((), why, tuple(notes))
    first = near[0][0].losses[PREDICTION]
    rows = [
        Likeness(one.policy, waits, _is_apart(one.losses[PREDICTION], first, parts))
        for one, waits in near
    ]
    return Calibration(tuple(rows), "", tuple(dict.fromkeys(notes)))


def _held(
    cluster: Cluster, trace: Trace, one: Contender, tolerance_s: float, options: dict[str, Any]
) -> PolicyValidation | str:
    """Compare one policy with the log, or return the reason why it could not be run."""
    from gangline.policies.choice import ChosenPolicy
    from gangline.studies.validate import validate

    chosen = one.policy
    assert isinstance(chosen, ChosenPolicy)
    policy = chosen.own if chosen.own is not None else chosen.reference.build()
    try:
        return validate(cluster, trace, policy, tolerance_s=tolerance_s, **options)[one.label]
    except GanglineError as error:
        if is_mistake(error):
            raise
        return str(error)


def is_mistake(error: GanglineError) -> bool:
    """Return whether an error is about a parameter value that the policy cannot use here."""
    return isinstance(error, PolicyError) and bool(vars(error).get("expected"))


def _is_apart(losses: npt.NDArray[np.float64], best: npt.NDArray[np.float64], parts: Parts) -> bool:
    """Return whether a policy is clearly farther from the log than the nearest policy."""
    low = parts.mean(losses - best).low
    return low is not None and low > 0.0
