"""Reads capacity over time: the daily GPU counts of each virtual cluster in the Helios traces."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from gangline.cluster.node_lists.rows import gpu_types
from gangline.errors import ClusterError

if TYPE_CHECKING:
    from gangline.cluster.node_lists.options import FileOptions
    from gangline.cluster.node_lists.rows import Rows

__all__ = ["helios_daily"]

_DAY = "date"
_TOTAL = "total"


def helios_daily(rows: Rows, options: FileOptions) -> dict[str, Any]:
    """Read one row for each day: the number of GPUs in each virtual cluster, and the total.

    The file counts GPUs. Each server is assumed to have `options.gpus` GPUs. GPUs that do not fill
    a whole server are left out; a note gives the largest number of these GPUs on any day. A day's
    capacity applies from the start of the day; the first day's capacity also applies before that
    day. If the capacity changes, the servers with the highest numbers are added or removed.
    """
    column = options.vc.lower() if options.vc else _TOTAL
    if column not in rows.names:
        known = ", ".join(name for name in rows.names if name not in (_DAY, _TOTAL))
        raise rows.error(1, "vc", options.vc or "", f"one of {known}")
    notes = {"gpus_per_server_assumed": options.gpus, "gpus_left_out": 0, "total_differs": 0}
    days: list[tuple[date, int]] = []
    for line, row in rows:
        day = _day(rows, line, row[_DAY])
        if days and day <= days[-1][0]:
            raise rows.error(line, _DAY, row[_DAY], "a day after the previous one")
        # A column without a name is the row number, which some tools add when they rewrite a table.
        numbers = {
            name: rows.number(line, row, name) for name in rows.names if name not in (_DAY, "")
        }
        notes["total_differs"] += numbers.pop(_TOTAL) != sum(numbers.values())
        count = rows.number(line, row, column)
        notes["gpus_left_out"] = max(notes["gpus_left_out"], count % options.gpus)
        days.append((day, count // options.gpus))
    steps = _steps(days, _start(options, days[0][0]))
    most = max(servers for _, servers in steps)
    if most == 0:
        raise rows.error(1, column, "0", "a day with at least one server")
    gpu = options.gpu or "V100"
    memory_gb = options.memory_gb if options.memory_gb or options.gpu else 32.0
    kinds = gpu_types([gpu], memory_gb, notes)
    if not options.gpu and memory_gb:
        kinds[0]["memory_gb"] = memory_gb
    block = {"count": most, "gpu": gpu, "gpus": options.gpus}
    data: dict[str, Any] = {
        "name": f"helios-{options.vc}" if options.vc else "helios-daily",
        "gpu_types": kinds,
        "servers": [{**block, "rack": f"fill:{options.servers_per_rack}"}],
        "notes": notes,
    }
    if any(servers != most for _, servers in steps):
        data["capacity"] = [{"at_s": at_s, "servers": servers} for at_s, servers in steps]
    return data


def _steps(days: list[tuple[date, int]], start: datetime) -> list[tuple[float, int]]:
    """Return (seconds since the start, number of servers) at each change, beginning at 0."""
    steps = [(0.0, days[0][1])]
    for day, servers in days:
        at_s = (datetime.combine(day, datetime.min.time()) - start).total_seconds()
        if at_s <= 0.0:
            steps = [(0.0, servers)]
        elif servers != steps[-1][1]:
            steps.append((at_s, servers))
    return steps


def _day(rows: Rows, line: int, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise rows.error(line, _DAY, text, "a day YYYY-MM-DD") from None


def _start(options: FileOptions, first: date) -> datetime:
    if options.start is None:
        return datetime.combine(first, datetime.min.time())
    try:
        return datetime.fromisoformat(options.start).replace(tzinfo=None)
    except ValueError:
        raise ClusterError(
            f'start: expected a date or time such as "2020-04-01T08:00:00", got "{options.start}"',
            key="start",
            value=options.start,
        ) from None
