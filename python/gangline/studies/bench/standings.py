"""Ranks policies by mean JCT within each class of knowledge, with intervals over seeds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gangline._support.statistics import Range, difference, estimate, range_of, ranks
from gangline.studies.bench.entries import CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline.studies.bench.suite import World

    Scores = Mapping[str, Mapping[tuple[World, int], float]]

__all__ = ["standings"]


def standings(
    scores: Scores,
    knowledge: Mapping[str, str],
    worlds: Sequence[World],
    seeds: Sequence[int],
    baseline: str,
) -> list[dict[str, Any]]:
    """Return a row for each policy with a complete set of runs, ordered by class and mean rank.

    Parameters
    ----------
    scores : mapping
        For each label, the mean JCT in seconds, keyed by world and seed; policies that lack a run
        are omitted.
    knowledge : mapping
        For each label, the class of knowledge of the policy.
    worlds, seeds : sequence
        The worlds and the seeds that are ranked.
    baseline : str
        Label of the baseline policy for the speedups.

    Returns
    -------
    list of dict
        policy, knowledge; place: 1 for the best policy, and for every policy that the seeds do not
        distinguish from it; rank, rank_low, rank_high: the rank averaged over worlds and seeds,
        and its 95 % interval; speedup, speedup_low, speedup_high: the baseline's mean JCT divided
        by the policy's, as a geometric mean over worlds, and its 95 % interval.
    """
    cells = [(world, seed) for world in worlds for seed in seeds]
    whole = {label: of for label, of in scores.items() if all(cell in of for cell in cells)}
    rows = []
    for name in CLASSES:
        mine = {label: whole[label] for label in whole if knowledge[label] == name}
        if mine:
            rows += _of_class(mine, whole.get(baseline), worlds, seeds, name)
    return rows


def _of_class(
    mine: Scores,
    base: Mapping[tuple[World, int], float] | None,
    worlds: Sequence[World],
    seeds: Sequence[int],
    name: str,
) -> list[dict[str, Any]]:
    by_seed = [
        ranks({label: [of[world, seed] for world in worlds] for label, of in mine.items()})
        for seed in seeds
    ]
    found = {label: [one[label] for one in by_seed] for label in mine}
    places = Range(1.0, float(len(mine)))
    means = {label: estimate(values, places) for label, values in found.items()}
    ordered = sorted(mine, key=lambda label: means[label].mean)
    best = found[ordered[0]]
    rows = []
    for label in ordered:
        rank = means[label]
        apart = difference(found[label], best, places)
        tied = apart.low is not None and not apart.is_clear
        before = sum(other.mean < rank.mean for other in means.values())
        place = 1 if tied else before + 1
        row = {"policy": label, "knowledge": name, "place": place}
        row |= {"rank": rank.mean, "rank_low": rank.low, "rank_high": rank.high}
        if base is not None:
            speedups = [_speedup(mine[label], base, worlds, seed) for seed in seeds]
            speed = estimate(speedups, range_of("speedup"))
            row |= {"speedup": speed.mean, "speedup_low": speed.low, "speedup_high": speed.high}
        rows.append(row)
    return rows


def _speedup(
    mine: Mapping[tuple[World, int], float],
    base: Mapping[tuple[World, int], float],
    worlds: Sequence[World],
    seed: int,
) -> float:
    logs = [math.log(base[world, seed] / mine[world, seed]) for world in worlds]
    return math.exp(math.fsum(logs) / len(logs))
