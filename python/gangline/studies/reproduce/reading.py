"""Computes the verdicts on a study's claims from savings and counts.

No sentence is fixed in advance: every number and every verdict is computed from the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.studies.reproduce.study import Claim, Study

__all__ = ["Saving", "judge", "percent", "reached", "readings", "savings", "sentences"]

# A mean saving below this counts as no difference, because the seeds alone change it by as much.
NEGLIGIBLE = 0.01
# Shares are shown, and judged, in whole per cent.
ROUNDING = 0.005
HALF = 0.5  # our own choice: a claim holds in part from this share of the claimed gain on


@dataclass(frozen=True)
class Saving:
    """The hero's savings relative to one contender, in each world of one network.

    Parameters
    ----------
    network, against, measure : str
        The network, the contender and the metric of the comparison.
    shares : tuple of float
        The saved share in each world, 1 - hero / contender; negative if the hero needs more.
    """

    network: str
    against: str
    measure: str
    shares: tuple[float, ...]

    @property
    def best(self) -> float:
        """The largest share saved."""
        return max(self.shares)

    @property
    def mean(self) -> float:
        """The mean share saved over the worlds: 1 minus the geometric mean of hero / contender.

        In the geometric mean, a time that doubles in one world and halves in another cancels out.
        """
        from gangline import _core

        ratios = [1.0 - share for share in self.shares]
        if min(ratios) <= 0.0:
            return 1.0
        return 1.0 - _core.exp(sum(_core.log(ratio) for ratio in ratios) / len(ratios))

    @property
    def better(self) -> int:
        """The number of worlds in which the hero needs less."""
        return sum(share > 0.0 for share in self.shares)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {
            "network": self.network,
            "against": self.against,
            "measure": self.measure,
            "best": self.best,
            "mean": self.mean,
            "worst": min(self.shares),
            "better_in": self.better,
            "worlds": len(self.shares),
        }


def savings(study: Study, rows: Sequence[dict[str, Any]]) -> list[Saving]:
    """Return what the hero saves against each contender, by network and metric.

    A world in which the contender's value is 0 has no defined saving and is left out. For example,
    the time lost to communication is 0 on a network without distances.
    """
    found = []
    networks = list(dict.fromkeys(row["network"] for row in rows))
    others = [name for name in dict.fromkeys(row["policy"] for row in rows) if name != study.hero]
    value = {(_world(row), row["policy"]): row for row in rows}
    for network in networks:
        worlds = list(dict.fromkeys(_world(row) for row in rows if row["network"] == network))
        for other in others:
            for claim in study.claims:
                shares = tuple(
                    1.0 - value[world, study.hero][claim.measure] / needed
                    for world in worlds
                    if (world, study.hero) in value
                    and (world, other) in value
                    and (needed := value[world, other][claim.measure]) > 0.0
                )
                if shares:
                    found.append(Saving(network, other, claim.measure, shares))
    return found


def judge(claim: Claim, fair: Saving, doubt: str = "") -> str:
    """Return "holds", "holds in part" or "does not hold", based on the fair contender.

    The claim holds if the largest saving reaches the published number and the mean saving is at
    least 1 %. It holds in part if the largest saving reaches half of the published number and the
    mean saving is at least 1 %. A doubt replaces the verdict.
    """
    if doubt:
        return doubt
    if fair.mean < NEGLIGIBLE:
        return "does not hold"
    return reached(fair.best / claim.share) or "does not hold"


def reached(share: float) -> str:
    """Return "holds" or "holds in part" for the share of a gain that is reached; "" below half."""
    if share >= 1.0 - ROUNDING:
        return "holds"
    return "holds in part" if share >= HALF - ROUNDING else ""


def readings(study: Study, found: Sequence[Saving], doubt: str = "") -> list[dict[str, Any]]:
    """Return one row per claim and rival: the published and the measured number, and the verdict.

    The rows cover the rivals from the paper, which get no verdict, and then the fair contender.
    The result has no rows if the fair contender or the hero was not run on the paper's network.
    """
    home = {(s.against, s.measure): s for s in found if s.network == study.home}
    rows = []
    for claim in study.claims:
        fair = home.get((study.fair, claim.measure))
        if fair is None:
            continue
        own = {study.hero, study.fair, *study.variants}
        others = [s for s in home.values() if s.measure == claim.measure and s.against not in own]
        rows += [
            {
                "words": claim.words,
                "published": published(claim),
                "claimed": claim.share,
                "hero": study.hero,
                **saving.to_dict(),
                "share": saving.best / claim.share,
                "verdict": judge(claim, fair, doubt) if saving is fair else None,
            }
            for saving in (*others, fair)
        ]
    return rows


def published(claim: Claim) -> str:
    """Return the claim in words."""
    return f"{claim.words[0].upper()}{claim.words[1:]} up to {percent(claim.share)} lower"


def sentences(study: Study, found: Sequence[Saving]) -> list[str]:
    """Return sentences that compare the measured numbers with the claims."""
    lines = []
    if study.claims and not readings(study, found):
        lines.append(
            f"There is no verdict: it needs {study.hero} and "
            f"{study.fair}{' on ' + study.home if study.home else ''}."
        )
    for network in dict.fromkeys(s.network for s in found):
        for other, words in (
            (study.fair, "Against"),
            (study.ablation, "Its main idea, against"),
        ):
            own = [s for s in found if s.network == network and s.against == other]
            if not own or (network == study.home and other == study.fair):
                continue
            named = {claim.measure: claim.words for claim in study.claims}
            parts = [f"{named[s.measure]} {_on_average(s.mean)}" for s in own]
            lines.append(f"{words} {other} on {network or 'these worlds'}: {', '.join(parts)}.")
    return lines


def _world(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["cluster"], row["network"], row["workload"]


def percent(share: float) -> str:
    """Return a share as a whole percentage."""
    return f"{100.0 * share:.0f} %"


def _on_average(share: float) -> str:
    if abs(share) < ROUNDING:
        return "equal on average"
    return f"{percent(abs(share))} {'lower' if share > 0.0 else 'higher'} on average"
