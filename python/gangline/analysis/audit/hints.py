"""Writes an audit's notes: assumptions about the tables, and likely explanations of findings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangline.analysis.audit.findings import Findings
    from gangline.analysis.audit.world import World

__all__ = ["on_findings", "on_tables"]

_SHOWN = 5  # the maximum number of unknown words in a note


def on_tables(world: World, findings: Findings) -> None:
    """Add notes on unknown words and on clocks with different origins."""
    for name, found, taken in (
        (
            "status",
            world.status,
            "a job with such a status counts as finished if it has a finish time",
        ),
        ("end_reason", world.end_reason, "a row with such an end counts as the end of its job"),
    ):
        if found is not None and found.words:
            words = ", ".join(f"{word} {count:,}" for word, count in found.words.items())
            if len(found.words) > _SHOWN:
                most = list(found.words.items())[:_SHOWN]
                words = ", ".join(f"{word} {count:,}" for word, count in most)
                words += f" and {len(found.words) - _SHOWN} more"
            findings.note(
                f"{name}: unknown words: {words}; {taken}. "
                f"To count all rows as finished, leave the column out: `--columns {name}=`"
            )
    if world.clock_s:
        findings.note(
            f"all arrivals are {world.clock_s:.15g} s later than in the trace: the clock of the "
            "table has a different origin, to which the arrivals of the trace were shifted"
        )


def on_findings(world: World, findings: Findings) -> None:
    """Withdraw the rule `gang` if sizes are unknown; name the option that allows the excess."""
    if world.may_resize and world.trace is None:
        findings.withdraw("gang", "which jobs may change their size, and how far: a trace")
    if findings.excess > 1.0:
        share = math.ceil(findings.excess * world.max_share)
        elastic = "" if world.held is not None else " or gangs shrank while they ran"
        findings.note(
            f"more GPUs are held than exist, as if up to {share} jobs shared a GPU{elastic}; "
            f"if jobs share GPUs on purpose, set `--max-share {share}`"
        )
