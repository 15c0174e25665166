"""Handles the run option `estimates`: the values that policies get in place of durations."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from gangline.errors import OptionError, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from gangline.policies.choice import ChosenPolicy
    from gangline.trace.jobs.schema import Real
    from gangline.trace.jobs.table import Trace

__all__ = [
    "EXACT",
    "History",
    "absent",
    "check",
    "given_to",
    "label",
    "qualities",
    "to_core",
    "used_by",
]

EXACT = "exact"
_COLUMNS: dict[str, Real] = {"limit": "time_limit_s", "table": "estimate_s"}
_HISTORY = re.compile(r"user(?P<model>\+model)?:(?:last|(?:mean|p(?P<of>\d+))(?::(?P<last>\d+))?)")
_EXPECTED = (
    '"exact", "noise:SIGMA", "limit", "table", or a history: "user:last", "user:mean", '
    '"user:pN" with N from 1 to 100, with "user+model" in place of "user", and ":K" at the end '
    "for the K jobs that finished last"
)
_JOBS_MAX = 2**32


@dataclass(frozen=True)
class History:
    """Estimates from the durations of finished jobs; they are means if `percentile` is None."""

    by_model: bool
    percentile: int | None
    last: int | None
    default_s: float


def check(estimates: str, default_s: float) -> None:
    """Raise an OptionError for estimates that are not valid for any run."""
    if not 0.0 < default_s <= 4e9:
        message = f"run option estimate_default_s: expected seconds > 0, got {default_s!r}"
        raise OptionError(message, field="estimate_default_s", value=default_s)
    if estimates != EXACT and estimates not in _COLUMNS:
        _parse(estimates, default_s)


def label(chosen: ChosenPolicy, estimates: str) -> str:
    """Return the label of a policy in tables, with its estimates if there are any."""
    if estimates == EXACT or not chosen.reads_durations:
        return chosen.label
    head, bracket, rest = chosen.label.partition("(")
    return f"{head}({rest.removesuffix(')')}{', ' if bracket else ''}estimates={estimates})"


def absent(estimates: str, trace: Trace) -> str:
    """Name the label columns that a history needs but a trace lacks; "" if there are none."""
    found = _HISTORY.fullmatch(estimates)
    if found is None:
        return ""
    labels = ["user", "model"] if found["model"] else ["user"]
    lacking = [name for name in labels if name not in trace.columns]
    if not lacking:
        return ""
    return (
        f"no column {' and no column '.join(lacking)}: under estimates={estimates} all jobs count "
        f"as jobs of one {' and one '.join(lacking)}"
    )


def given_to(policy: Mapping[str, Any]) -> str:
    """Return the estimates that a spec sets for its policy; "" if there are none."""
    if estimates := policy.get("estimates"):
        return str(estimates)
    error = (policy.get("params") or {}).get("estimate_error")
    return f"noise:{error:g}" if error else ""


def qualities(given: str | Iterable[str]) -> list[str]:
    """Return the estimates of a comparison as a list; reject an empty list and duplicates."""
    from gangline.files.decode import repeated

    found = [given] if isinstance(given, str) else list(given)
    if not found:
        message = "estimates: expected at least one, got none"
        raise OptionError(message, field="estimates", value=found)
    twice = repeated(found)
    if twice is not None:
        raise OptionError(f"estimates: duplicate {twice}", field="estimates", value=twice)
    return found


def used_by(chosen: ChosenPolicy, given: Sequence[str]) -> Sequence[str]:
    """Return the estimates with which a policy runs: only the first if it reads no durations."""
    return given if chosen.reads_durations else given[:1]


def to_core(
    estimates: str, default_s: float, trace: Trace
) -> float | History | npt.NDArray[np.float64] | None:
    """Return the estimates for the core: the noise, the history, or the estimate of each job.

    Parameters
    ----------
    estimates : str
        The checked option.
    default_s : float
        Estimate in seconds for a job that has none.
    trace : Trace
        The jobs.

    Raises
    ------
    TraceError
        If the trace has no column with the estimates.
    """
    if estimates == EXACT:
        return None
    name = _COLUMNS.get(estimates)
    if name is None:
        return _parse(estimates, default_s)
    import numpy as np

    given = trace.numbers(name) if name in trace.columns else np.zeros(len(trace))
    is_known = given > 0.0  # false for a job without an estimate
    if len(trace) and not is_known.any():
        what = {"limit": "requested time limits", "table": "estimates"}[estimates]
        message = (
            f'estimates="{estimates}" reads the column {name} ({what}), which has no value in this '
            "trace; choose other estimates, or add the column"
        )
        raise TraceError(message, column=name)
    return np.where(is_known, given, default_s)


def _parse(estimates: str, default_s: float) -> float | History | None:
    kind, _, rest = estimates.partition(":")
    if kind == "noise":
        try:
            sigma = float(rest)
        except ValueError:
            _refuse(estimates)
        if not 0.0 <= sigma < math.inf:
            _refuse(estimates)
        return sigma or None
    found = _HISTORY.fullmatch(estimates)
    if found is None:
        _refuse(estimates)
    percentile = None if found["of"] is None else int(found["of"])
    last = None if found["last"] is None else int(found["last"])
    if estimates.endswith(":last"):
        last = 1
    if (percentile is not None and not 1 <= percentile <= 100) or (
        last is not None and not 1 <= last < _JOBS_MAX
    ):
        _refuse(estimates)
    return History(found["model"] is not None, percentile, last, default_s)


def _refuse(estimates: str) -> NoReturn:
    message = f"run option estimates: expected {_EXPECTED}; got {estimates!r}"
    raise OptionError(message, field="estimates", value=estimates)
