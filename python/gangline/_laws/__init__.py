"""The laws of a run as functions of its tables; each returns what is wrong, or None."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline._laws import basic, sharing, waiting, work
from gangline._laws.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LAWS", "STRUCTURE", "Broken", "Tables"]

Broken = tuple[str, str]

LAWS: dict[str, Callable[[Tables], str | None]] = {
    "known-jobs": basic.known_jobs,
    "gpus-exist": basic.gpus_exist,
    "no-lost-job": basic.no_lost_job,
    "clock": basic.clock,
    "no-start-before-arrival": basic.no_start_before_arrival,
    "capacity": basic.capacity,
    "memory": sharing.memory,
    "gang-whole": basic.gang_whole,
    "parts-apart": basic.parts_apart,
    "finishes-once": basic.finishes_once,
    "gpu-seconds": basic.gpu_seconds,
    "run-time": basic.run_time,
    "rates": sharing.rates,
    "work-done": work.work_done,
    "co-runners": sharing.co_runners,
    "share-time": sharing.share_time,
    "types-allowed": basic.types_allowed,
    "down-is-down": basic.down_is_down,
    "work-conserving": waiting.work_conserving,
    "utilisation": basic.utilisation,
    "times-add-up": basic.times_add_up,
    "summary-agrees": basic.summary_agrees,
}
"""Law by name, in the order in which they are looked at."""

STRUCTURE = ("known-jobs", "gpus-exist")
"""Laws that come first: if one is broken, the others cannot be looked at."""
