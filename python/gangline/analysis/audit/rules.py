"""Checks all rules, for both `gangline audit` and `gangline.testing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gangline.analysis.audit import hints, jobs_rules, run_rules, segment_rules
from gangline.analysis.audit.findings import Findings

if TYPE_CHECKING:
    from gangline.analysis.audit.world import World

__all__ = ["look"]


def look(world: World, first: int) -> Findings:
    """Check every rule for which the tables have the columns; keep the first findings of each."""
    findings = Findings(world.names, first)
    hints.on_tables(world, findings)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite times are findings themselves
        if world.held is not None:
            segment_rules.check(world, findings)
        if world.listed is not None:
            jobs_rules.check(world, findings)
        if world.run is not None:
            run_rules.check(world, world.run, findings)
    hints.on_findings(world, findings)
    return findings
