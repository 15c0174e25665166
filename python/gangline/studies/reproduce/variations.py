"""Computes how a study's ratios change when a single setting is changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gangline.studies.reproduce.ratios import Ratio, paired
from gangline.studies.reproduce.study import Contender, Variation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gangline.studies.reproduce.study import Choice, Factor, Setting, Study

__all__ = ["UNCHANGED", "Place", "contenders", "places", "varied_ratios"]

UNCHANGED = Variation("as in the study", "")


@dataclass(frozen=True)
class Place:
    """A variation, and the world that it varies."""

    variation: Variation
    setting: Setting

    @property
    def label(self) -> str:
        """The label in tables and figures."""
        return f"{self.variation.group} {self.variation.label}".rstrip()


def places(study: Study, choice: Choice) -> list[Place]:
    """Return all variations, unchanged first.

    There are none if the world that they vary is not selected, or no hero together with a rival.
    """
    chosen = study.settings(choice)
    home = next((setting for setting in study.varied if setting in chosen), None)
    if home is None or not study.variations or not contenders(study, choice, UNCHANGED):
        return []
    return [
        Place(
            one,
            replace(
                home, cluster=one.cluster or home.cluster, workload=one.workload or home.workload
            ),
        )
        for one in (UNCHANGED, *study.variations)
    ]


def contenders(study: Study, choice: Choice, variation: Variation) -> list[Contender]:
    """Return the heroes and rivals of all claims, with the changes that this variation makes.

    Parameters are changed for the heroes. They are also changed for a rival that has all of them,
    unless the study sets one of them for this rival.
    """
    heroes = {factor.hero for factor in study.factors}
    wanted = [*heroes, *(name for factor in study.factors for name in factor.against)]
    found = []
    for name in choice.policies:
        if name not in wanted:
            continue
        one = study.contender(name)
        if name in heroes or variation.params.keys() <= _left_alone(one):
            one = replace(one, params={**one.params, **variation.params})
        found.append(one)
    names = {one.name for one in found}
    pairs = any(f.hero in names and names & set(f.against) for f in study.factors)
    return found if pairs else []


def _left_alone(one: Contender) -> set[str]:
    """Return the parameters that neither a contender nor its preset sets to a different value."""
    from gangline.policies.registry import find, make

    default = find(one.policy)().params()
    return {key for key, value in make(one.policy, one.params).params().items()
            if default[key] == value}  # fmt: skip


def varied_ratios(
    study: Study, found: Sequence[Place], runs: Iterable[dict[str, Any]]
) -> list[tuple[Place, Ratio]]:
    """Return each claim's ratios for each variation, from runs with the key `variation`."""
    known: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for run in runs:
        known.setdefault((run["variation"], run["policy"]), {})[run["seed"]] = run
    rows = []
    for factor in study.factors:
        for against in factor.against:
            for place in found:
                logs = _logs(known, factor, against, place.label)
                if logs:
                    rows.append((place, Ratio(factor, against, logs, place.setting)))
    return rows


def _logs(
    known: dict[tuple[str, str], dict[int, dict[str, Any]]],
    factor: Factor,
    against: str,
    label: str,
) -> tuple[float, ...]:
    mine = known.get((label, factor.hero), {})
    theirs = known.get((label, against), {})
    logs = [paired(factor, run, theirs[seed]) for seed, run in mine.items() if seed in theirs]
    return tuple(log for log in logs if log is not None) if None not in logs else ()
