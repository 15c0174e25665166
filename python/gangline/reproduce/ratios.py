"""How many times better one contender is than another, with intervals from the seeds.

A ratio is taken for each seed by itself, of two runs on the same jobs; means are geometric. The
interval is a bootstrap over the seeds with draws of its own, the same every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangline import statistics
from gangline.reproduce.reading import NEGLIGIBLE, ROUNDING
from gangline.reproduce.study import Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.reproduce.study import Factor, Study

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
    "said",
    "shown",
    "with_totals",
]

Runs = dict[tuple[Setting, str, int], dict[str, Any]]


@dataclass(frozen=True)
class Ratio:
    """How many times better the hero of a claim is than one rival; below 1 it is worse.

    Parameters
    ----------
    factor : Factor
        The claim.
    against : str
        The rival.
    logs : tuple of float
        Natural logarithm of the ratio, one per seed.
    setting : Setting, optional
        The world; None = over all worlds, each of the same weight.
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
        """The 95 % interval of the mean; None with too few seeds."""
        return interval(self.logs)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
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
    """Return the bootstrap interval of the geometric mean, the same every time.

    Examples
    --------
    >>> interval([0.0] * 4) is None
    True
    >>> interval([0.5] * 10)
    (1.6487212707001282, 1.6487212707001282)
    """
    from gangline import _core

    ends = statistics.interval(logs)
    return None if ends is None else (_core.exp(ends[0]), _core.exp(ends[1]))


def ratios(study: Study, runs: Sequence[dict[str, Any]]) -> list[Ratio]:
    """Return the ratios of every claim, world and rival that was run.

    A world where one of the two values is 0 in some seed (no job waited) has no ratio.
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
    """Return the logarithm of how many times better the hero's run is; None without a ratio."""
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
    """Tell whether a claim is about this world."""
    there = ratio.factor.clusters
    return ratio.setting is None or not there or ratio.setting.cluster in there


def pooled(found: Sequence[Ratio]) -> list[Ratio]:
    """Return one ratio per claim and rival over the worlds of the claim, each of the same weight.

    Worlds share their seeds, so the mean over worlds is taken seed by seed first.
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
    """Return the ratios by the names of their worlds, and those over all of several."""
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
    """Return the claims, those with the same ratios together: each set needs one table."""
    groups: dict[tuple[Any, ...], dict[Factor, None]] = {}
    for ratio in found:
        groups.setdefault(ratio.factor.numbers, {})[ratio.factor] = None
    return [tuple(group) for group in groups.values()]


def judge_factor(ratio: Ratio) -> str:
    """Return "holds", "holds in part", "does not hold" or "the reverse holds".

    It holds if the mean reaches the published factor, in part if the hero is better by less. Better
    means that the whole interval lies above 1; without an interval, a mean of at least 1 % above.
    Where nothing is claimed it is "better", "worse" or "no difference".
    """
    ends = ratio.interval or (ratio.mean / (1.0 + NEGLIGIBLE), ratio.mean * (1.0 + NEGLIGIBLE))
    claimed = ratio.factor.times
    if claimed is None:
        return "better" if ends[0] > 1.0 else "worse" if ends[1] < 1.0 else "no difference"
    if ends[1] < 1.0:
        return "the reverse holds"
    if ends[0] <= 1.0:
        return "does not hold"
    reached = ratio.mean >= claimed - ROUNDING
    return "holds" if reached else "holds in part"


def shown(ratio: Ratio) -> str:
    """Return a ratio as tables show it, such as `1.21 (1.15 to 1.27)`."""
    ends = ratio.interval
    between = "" if ends is None else f" ({ends[0]:.2f} to {ends[1]:.2f})"
    return f"{ratio.mean:.2f}{between}"


def factor_rows(found: Sequence[Ratio]) -> list[dict[str, Any]]:
    """Return one row per claim and rival: the published factor, what we measured, the verdict."""
    rows = []
    for ratio in pooled(found):
        mine = [
            one
            for one in found
            if (one.factor, one.against) == (ratio.factor, ratio.against) and is_judged(one)
        ]
        means = [one.mean for one in mine]
        rows.append(
            {
                **ratio.to_dict(),
                "words": ratio.factor.words,
                "published": ratio.factor.published,
                "claimed": ratio.factor.times,
                "worlds": len(mine),
                "least": min(means),
                "most": max(means),
                "better_in": sum(mean > 1.0 + NEGLIGIBLE for mean in means),
                "verdict": judge_factor(ratio),
            }
        )
    return rows


def said(study: Study, found: Sequence[Ratio]) -> list[str]:
    """Return what the ratios say of the claims, for people."""
    lines = []
    rows = factor_rows(found)
    for factor in study.factors:
        mine = [row for row in rows if _is_of(row, factor)]
        if not mine:
            rivals = " or ".join(factor.against)
            lines.append(
                f"{factor.published}: no verdict; it takes {factor.hero} and {rivals} in one world."
            )
            continue
        listed = "; ".join(map(_against, mine))
        between = ", with 95 % intervals" if any(row["low"] is not None for row in mine) else ""
        lines.append(f"{factor.published}. Measured with {factor.hero}{between}: {listed}.")
    return lines


def _is_of(row: dict[str, Any], factor: Factor) -> bool:
    return bool(
        (row["measure"], row["hero"], row["published"])
        == (factor.measure, factor.hero, factor.published)
    )


def _against(row: dict[str, Any]) -> str:
    between = "" if row["low"] is None else f" ({row['low']:.2f} to {row['high']:.2f})"
    return f"against {row['against']} {row['times_better']:.2f} times{between}, {row['verdict']}"


def _setting(run: dict[str, Any]) -> Setting:
    return Setting(run["cluster"], run["network"], run["workload"])
