"""Computes the ratios between contenders, and their intervals over the seeds.

Each seed gives one ratio, between two runs on the same jobs. Means are geometric. The interval is a
bootstrap over the seeds with a fixed random seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangline._support import statistics
from gangline.studies.reproduce.reading import NEGLIGIBLE, reached
from gangline.studies.reproduce.study import Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline._support.builtin_values import Json
    from gangline.studies.reproduce.study import Factor, Study

__all__ = [
    "Ratio",
    "distinct",
    "factor_rows",
    "interval",
    "is_judged",
    "judge_factor",
    "paired",
    "pooled",
    "ratios",
    "shown",
    "with_totals",
]

Runs = dict[tuple[Setting, str, int], dict[str, Any]]


@dataclass(frozen=True)
class Ratio:
    """The factor by which a claim's hero is better than a rival; below 1, the hero is worse.

    Parameters
    ----------
    factor : Factor
        The claim.
    against : str
        The rival.
    logs : tuple of float
        Natural logarithms of the ratio, one per seed.
    setting : Setting, optional
        The world; None means the equally weighted mean over all worlds.
    """

    factor: Factor
    against: str
    logs: tuple[float, ...]
    setting: Setting | None = None

    @property
    def mean(self) -> float:
        """The geometric mean over the seeds."""
        from gangline import _core

        return _core.exp(sum(self.logs) / len(self.logs))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean; None if there are too few seeds."""
        return interval(self.logs)

    def to_dict(self) -> dict[str, Json]:
        """Return the fields as plain JSON values."""
        ends = self.interval
        place = self.setting
        return {
            "measure": self.factor.measure,
            "hero": self.factor.hero,
            "against": self.against,
            "world": None if place is None else place.title,
            "times_better": self.mean,
            "low": None if ends is None else ends[0],
            "high": None if ends is None else ends[1],
            "seeds": len(self.logs),
        }


def interval(logs: Sequence[float]) -> tuple[float, float] | None:
    """Return the bootstrap interval of the geometric mean; the random seed is fixed.

    Examples
    --------
    >>> interval([0.0] * 4) is None
    True
    >>> interval([0.5] * 10)
    (1.6487212707001282, 1.6487212707001282)
    """
    from gangline import _core

    ends = statistics.interval(logs, statistics.ANY)
    return None if ends is None else (_core.exp(ends[0]), _core.exp(ends[1]))


def ratios(study: Study, runs: Sequence[dict[str, Any]]) -> list[Ratio]:
    """Return a ratio for each claim, each world, and each rival that was run there.

    A world has no ratio if one of the two values is 0 for some seed, for example because no job
    waited.
    """
    known: Runs = {(_setting(run), run["policy"], run["seed"]): run for run in runs}
    worlds = list(dict.fromkeys(setting for setting, _, _ in known))
    found = []
    for factor in study.factors:
        for against in factor.against:
            for world in worlds:
                logs = _logs(known, factor, against, world)
                if logs:
                    found.append(Ratio(factor, against, logs, world))
    return found


def paired(factor: Factor, hero: dict[str, Any], other: dict[str, Any]) -> float | None:
    """Return the logarithm of the factor by which the hero is better; None if there is none."""
    from gangline import _core

    mine, theirs = hero[factor.measure], other[factor.measure]
    if not (mine > 0.0 and theirs > 0.0):
        return None
    log = _core.log(theirs) - _core.log(mine)
    return -log if factor.more else log


def _logs(known: Runs, factor: Factor, against: str, world: Setting) -> tuple[float, ...]:
    seeds = [seed for place, policy, seed in known if (place, policy) == (world, factor.hero)]
    logs = []
    for seed in seeds:
        other = known.get((world, against, seed))
        log = None if other is None else paired(factor, known[world, factor.hero, seed], other)
        if log is None:
            return ()
        logs.append(log)
    return tuple(logs)


def is_judged(ratio: Ratio) -> bool:
    """Return whether a claim applies to a world."""
    there = ratio.factor.clusters
    return ratio.setting is None or not there or ratio.setting.cluster in there


def pooled(found: Sequence[Ratio]) -> list[Ratio]:
    """Return one ratio per claim and rival: the equally weighted mean over the claim's worlds.

    All worlds use the same seeds, so the mean over worlds is computed first, for each seed.
    """
    groups: dict[tuple[Factor, str], list[Ratio]] = {}
    for ratio in filter(is_judged, found):
        groups.setdefault((ratio.factor, ratio.against), []).append(ratio)
    return [
        Ratio(
            group[0].factor,
            group[0].against,
            tuple(
                sum(logs) / len(group)
                for logs in zip(*(ratio.logs for ratio in group), strict=True)
            ),
        )
        for group in groups.values()
    ]


def with_totals(found: Sequence[Ratio]) -> list[tuple[str, Ratio]]:
    """Return the ratios keyed by world name, and the means over several worlds."""
    named = [(one.setting.title, one) for one in found if one.setting is not None]
    judged = {label for label, one in named if is_judged(one)}
    if len(judged) < 2:
        return named
    return named + [
        (
            f"all worlds on {' and '.join(one.factor.clusters)}"
            if one.factor.clusters
            else "all worlds",
            one,
        )
        for one in pooled(found)
    ]


def distinct(found: Sequence[Ratio]) -> list[tuple[Factor, ...]]:
    """Return the claims grouped by identical ratios, because each group needs only one table."""
    groups: dict[tuple[Any, ...], dict[Factor, None]] = {}
    for ratio in found:
        groups.setdefault(ratio.factor.numbers, {})[ratio.factor] = None
    return [tuple(group) for group in groups.values()]


def judge_factor(ratio: Ratio, doubt: str = "") -> str:
    """Return the verdict that the whole interval supports.

    The verdict is "holds" if the whole interval reaches the claimed gain, "holds in part" if the
    whole interval reaches half of it, and "the reverse holds" if the whole interval is a loss. It
    is "undecided" if the interval contains values below half of the claimed gain and also the full
    gain, and otherwise "does not hold". If nothing is claimed, the verdict is "better", "worse" or
    "no difference". A doubt about the run, or too few seeds for an interval, is returned in place
    of a verdict.
    """
    if doubt or ratio.interval is None:
        return doubt or "no interval: not conclusive"
    low, high = ratio.interval
    if ratio.factor.times is None:
        return "better" if low > 1.0 else "worse" if high < 1.0 else "no difference"
    if high < 1.0:
        return "the reverse holds"
    least, most = (ratio.factor.share(end) or 0.0 for end in (low, high))
    return reached(least) or ("undecided" if reached(most) == "holds" else "does not hold")


def shown(ratio: Ratio) -> str:
    """Return a ratio as tables show it, such as `1.21 (1.15 to 1.27)`."""
    ends = ratio.interval
    between = "" if ends is None else f" ({ends[0]:.2f} to {ends[1]:.2f})"
    return f"{ratio.mean:.2f}{between}"


def factor_rows(found: Sequence[Ratio], doubt: str = "") -> list[dict[str, Any]]:
    """Return one row per claim and rival, with the published and measured factor and a verdict."""
    rows = []
    for ratio in pooled(found):
        factor = ratio.factor
        mine = [
            one
            for one in found
            if (one.factor, one.against) == (factor, ratio.against) and is_judged(one)
        ]
        by_mean = sorted(mine, key=lambda one: one.mean)
        low, high = ratio.interval or (None, None)
        rows.append(
            {
                **ratio.to_dict(),
                "words": factor.words,
                "published": factor.published,
                "claimed": factor.times,
                "share": factor.share(ratio.mean),
                "share_low": None if low is None else factor.share(low),
                "share_high": None if high is None else factor.share(high),
                "worlds": len(mine),
                "least": by_mean[0].mean,
                "least_in": _title(by_mean[0]),
                "most": by_mean[-1].mean,
                "most_in": _title(by_mean[-1]),
                "better_in": sum(one.mean > 1.0 + NEGLIGIBLE for one in mine),
                "reached_in": _reached_in(factor, mine),
                "verdict": judge_factor(ratio, doubt),
            }
        )
    return rows


def _title(ratio: Ratio) -> str:
    return "" if ratio.setting is None else ratio.setting.title


def _reached_in(factor: Factor, mine: Sequence[Ratio]) -> int | None:
    """Return the number of worlds in which the mean reaches the claim."""
    if factor.times is None:
        return None
    return sum(reached(factor.share(one.mean) or 0.0) == "holds" for one in mine)


def _setting(run: dict[str, Any]) -> Setting:
    return Setting(run["cluster"], run["network"], run["workload"])
