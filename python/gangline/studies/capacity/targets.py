"""Reads targets of a plan, such as `p95_wait < 1h`: a bound on a summary key or a quantile."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from gangline._support.formatting import QUANTITY, did_you_mean, seconds
from gangline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["Target", "parse", "quantile_of", "value_of"]

_FORM = re.compile(r"\s*([A-Za-z][\w. -]*?)\s*(<=|>=|=<|=>|≤|≥|<|>)\s*(\S.*?)\s*")
_QUANTILE = re.compile(r"(jct|queue|wait|slowdown|ftf)_p([1-9]\d?)(_s)?")
_RATIOS = ("slowdown", "ftf")
_MEASURES = ("jct", "queue", "wait", *_RATIOS)
_SHARES = ("utilization", "_fraction", "fragmentation")
_USUAL = "p95"  # our own choice: the statistic if a target names only the measure
_WORDS = {
    "average": "mean", "avg": "mean", "median": "p50", "waiting": "wait", "queueing": "queue",
    "queuing": "queue", "rho": "ftf", "utilisation": "utilization",
}  # fmt: skip
_BY_CLOCK = ("wall_s", "solver_s", "decision_p50_us", "decision_p99_us", "decision_max_us")
# Only some summaries have these keys, so the run in `_known_keys` does not show them.
_SOMETIMES = (
    "cost", "deadlines", "deadlines_met", "deadlines_dropped", "share_gpu_fraction", "xi_mean",
    "packing_gain", "shares_started", "shares_refused", "sub_batch_starts",
)  # fmt: skip
_QUOTE = "; quote it, because the shell interprets < and >"


class Target(NamedTuple):
    """An upper or lower bound on a metric of a run."""

    key: str
    is_most: bool
    bound: float
    is_strict: bool = False

    def keeps(self, value: float) -> bool:
        """Return whether a value is within the bound; NaN never is."""
        if value == self.bound:
            return not self.is_strict
        return value < self.bound if self.is_most else value > self.bound

    def __str__(self) -> str:
        sign = ("<" if self.is_most else ">") + "=" * (not self.is_strict)
        return f"{self.key} {sign} {self.bound:.12g}"


def parse(text: str) -> Target:
    """Read a target.

    Raises
    ------
    OptionError
        If the string does not have this form, if its key is unknown or depends on wall-clock time,
        or if the bound is not a number in a unit of the key.

    Examples
    --------
    >>> str(parse("queue_p95_s<=3600"))
    'queue_p95_s <= 3600'
    >>> str(parse("p95_wait < 1h")), str(parse("mean_jct<=1.5 d")), str(parse("wait<90min"))
    ('wait_p95_s < 3600', 'jct_mean_s <= 129600', 'wait_p95_s < 5400')
    >>> str(parse("gpu_utilization>=80%"))
    'gpu_utilization >= 0.8'
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise _wrong(text, f"KEY<BOUND or KEY>=BOUND, such as p95_wait<1h{_QUOTE}", text)
    typed, sign, bound = found.groups()
    key = _key(typed)
    if key in _BY_CLOCK:
        raise _wrong(text, "a key that does not depend on wall-clock time", key)
    if quantile_of(key) is None and key not in (known := _known_keys()):
        near = did_you_mean(typed, [*known, "queue_p95_s", "wait_p95_s"]).partition(" known:")[0]
        hint = f"{near} known: {', '.join(known)}, and PNN of {', '.join(_MEASURES)}: wait_p95"
        raise _wrong(text, "a key of the summary, or a quantile such as p95_wait", typed, hint)
    is_strict = sign in ("<", ">")
    return Target(key, sign[0] in "<≤" or sign == "=<", _bound(text, key, bound), is_strict)


def quantile_of(key: str) -> tuple[str, float] | None:
    """Return the jobs column and the level of a quantile key; None for other keys.

    Examples
    --------
    >>> quantile_of("queue_p95_s"), quantile_of("ftf_p50"), quantile_of("ftf_p50_s")
    (('queue_s', 0.95), ('ftf', 0.5), None)
    """
    found = _QUANTILE.fullmatch(key)
    if found is None:
        return None
    column, percent, unit = found.groups()
    if (unit is None) != (column in _RATIOS):
        return None
    return f"{column}{unit or ''}", int(percent) / 100.0


def value_of(jobs: pa.Table, key: str, window: tuple[float, float] | None = None) -> float:
    """Return a quantile over the jobs that have a value, by linear interpolation; NaN if none has.

    It is defined like the quantiles in the summary (docs/concepts/metrics.md). If the run counts
    only the arrivals in a window, the quantile covers only these jobs.
    """
    import numpy as np

    from gangline.runs.arrival_window import counted

    found = quantile_of(key)
    assert found is not None, key
    column, share = found
    values = jobs[column].to_numpy()[counted(jobs["arrival_s"].to_numpy(), window)]
    values = values[~np.isnan(values)]
    return float(np.quantile(values, share)) if len(values) else math.nan


def _key(typed: str) -> str:
    """Return the key that a user means: `p95_wait`, `mean jct` and `wait` are variants of keys.

    A metric without a statistic stands for the 95th percentile of the metric.
    """
    words = [_WORDS.get(word, word) for word in re.split(r"[_ .-]+", typed.lower()) if word]
    seconds = words[-1:] == ["s"] and len(words) > 1
    names = words[:-1] if seconds else words
    if names == ["utilization"]:
        return "gpu_utilization"
    if names == ["makespan"]:
        return "makespan_s"
    measure = next((word for word in names if word in _MEASURES), None)
    if measure is None or len(names) > 2:
        return "_".join(words)
    statistic = next((word for word in names if word != measure), _USUAL)
    is_ratio = measure in _RATIOS
    if is_ratio and seconds:
        return "_".join(words)
    return f"{measure}_{statistic}" + ("" if is_ratio else "_s")


def _bound(text: str, key: str, typed: str) -> float:
    """Read a number in the unit of the key: `3600`, `1h`, `1h30min`, `80%`."""
    is_share = any(word in key for word in _SHARES)
    one = QUANTITY.fullmatch(typed)
    if one is not None and math.isfinite(number := float(one["number"])):
        if not one["unit"]:
            return number
        if one["unit"] == "%" and is_share:
            return number / 100.0
    length_s = seconds(typed) if key.endswith("_s") else None
    if length_s is not None:
        return length_s
    expected = "a number after the sign"
    if key.endswith("_s"):
        expected += ", in seconds or with a unit, such as 90min, 1.5h or 2d"
    elif is_share:
        expected += ", such as 0.8 or 80%"
    raise _wrong(text, expected, typed)


@cache
def _known_keys() -> Sequence[str]:
    """Return all keys of summaries (always or sometimes present) except wall-clock keys."""
    from gangline.cluster.description import Cluster
    from gangline.runs.simulate import simulate

    one = Cluster.homogeneous(servers=1, gpus=1)
    made = simulate(one, "synth:uniform?jobs=1&seed=0&max_gpus=1", "fifo")
    return [*(key for key in made.summary if key not in _BY_CLOCK), *_SOMETIMES]


def _wrong(text: str, expected: str, got: object, hint: str = "") -> OptionError:
    message = f"keep: {text}: expected {expected}, got {got!r}{hint}"
    return OptionError(message, field="keep", value=got)
