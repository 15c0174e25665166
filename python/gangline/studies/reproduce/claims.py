"""Builds the tables of claims: published gain, measured gain, share reached, and verdict."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from gangline.studies.reproduce.reading import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Table", "claim_tables", "legend", "mix", "reach"]

_MOST = 10.0  # of larger shares, only the fact that they are larger is shown

Table = tuple[str, list[str], list[list[str | float | None]]]
"""Title, column titles and rows of a table."""


def legend(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences that explain the tables of claims."""
    lines = []
    if any("times_better" in row for row in rows):
        has_ends = any(row.get("low") is not None for row in rows)
        lines.append(
            "Times better: above 1, the policy in the title is better"
            + "; in parentheses the 95 % interval." * has_ends
            + "." * (not has_ends)
        )
    claimed = [row for row in rows if row["claimed"] is not None]
    fair = next((row["against"] for row in claimed if "best" in row and row["verdict"]), None)
    is_judged = not any((row["verdict"] or "").endswith("not conclusive") for row in claimed)
    if any("times_better" in row for row in claimed):
        lines.append("Share: how much of the claimed gain the mean reaches.")
        if is_judged:
            lines[-1] += (
                " The claim holds if the whole interval reaches the claimed gain, and in part if "
                "the whole interval reaches half of it."
            )
    if fair is not None:
        lines.append(
            'Share of an "up to" claim: how much of it the largest saving reaches. The fair '
            f"rival is {fair}."
        )
        if is_judged:
            lines[-1] += (
                " Against this rival, the claim holds if the largest saving reaches the claimed "
                "one, and in part if it reaches half of that; in both cases, the mean saving must "
                "be at least 1 %."
            )
    return lines


def claim_tables(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """Return one table per claim, built from the rows in `Reproduction.claims`."""
    found = []
    for _, group in groupby(rows, key=lambda row: (row["published"], row["hero"], row["measure"])):
        mine = list(group)
        found.append(_averages(mine) if "times_better" in mine[0] else _savings(mine))
    return found


def _averages(mine: Sequence[dict[str, Any]]) -> Table:
    """Return the table for a claim about an average: the ratio to each rival."""
    is_claimed = mine[0]["claimed"] is not None
    head = ["against", "times better"]
    if is_claimed:
        head.append("share")
    head += ["by world", "verdict" if is_claimed else "it is"]
    cells: list[list[str | float | None]] = []
    for row in mine:
        cell = f"{row['times_better']:.2f}"
        if row["low"] is not None:
            cell += f" ({row['low']:.2f}-{row['high']:.2f})"
        line: list[str | float | None] = [row["against"], cell]
        if is_claimed:
            line.append(reach(row["share"]))
        worlds = f"{row['least']:.2f}-{row['most']:.2f}" if row["worlds"] > 1 else None
        cells.append([*line, worlds, row["verdict"]])
    return f"{mine[0]['hero']}: {mine[0]['published']}", head, cells


def _savings(mine: Sequence[dict[str, Any]]) -> Table:
    """Return the table for a claim about the largest saving."""
    cells = [
        [
            row["against"],
            percent(row["best"]),
            reach(row["share"]),
            percent(row["mean"]),
            f"{row['better_in']} of {row['worlds']}",
            row["verdict"],
        ]
        for row in mine
    ]
    head = ["against", "largest", "share", "mean", "lower in", "verdict"]
    return f"{mine[0]['hero']}: {mine[0]['published']}", head, cells


def reach(share: float) -> str:
    """Return the share of the claimed gain that is reached, as a string; "none" for a loss."""
    if share >= _MOST:
        return f">{percent(_MOST)}"
    return percent(share) if share > 0.0 else "none"


def mix(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences about claims that are reached in some worlds but not in others.

    The mean for such a claim depends on the choice of worlds.
    """
    lines = []
    for _, group in groupby(rows, key=lambda row: (row["published"], row["hero"], row["measure"])):
        first = next(group)
        if not 0 < (first.get("reached_in") or 0) < first["worlds"]:
            continue
        lines.append(
            f"{first['published']}: whether this is reached depends on the mix of worlds. Against "
            f"{first['against']}, "
            f"{first['hero']} reaches it in {first['reached_in']} of {first['worlds']}, from "
            f"{first['least']:.2f} ({first['least_in']}) to {first['most']:.2f} "
            f"({first['most_in']})."
        )
    return lines
