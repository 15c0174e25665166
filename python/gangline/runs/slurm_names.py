"""Finds names in `slurm`'s tables that no job has; a typing error could disable a limit."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Any

from gangline._support.formatting import listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.policies.choice import ChosenPolicy
    from gangline.trace.jobs.schema import Column
    from gangline.trace.jobs.table import Trace

__all__ = ["unused"]

_DEFAULTS: Mapping[Column, str] = {
    "qos": "normal", "partition": "default", "account": "", "user": "default",
}  # fmt: skip
"""For each column, the name that jobs without a value get. The names of the parameters with tables
about a column begin with the name of the column."""


def unused(chosen: ChosenPolicy, trace: Trace) -> list[str]:
    """Return a sentence for each `slurm` table with names that no job and no other table has."""
    params: Mapping[str, Any] = chosen.params if chosen.policy == "slurm" else {}
    said = []
    for kind in _DEFAULTS:
        given = {name: params[name] for name in params if name.startswith(f"{kind}_")}
        tables = {name: dict.fromkeys(table) for name, table in given.items() if table}
        if not tables:
            continue
        known = set(_names(trace, kind))
        if kind == "qos":
            below = [name for names in (given.get("qos_preempt") or {}).values() for name in names]
            tables.get("qos_preempt", {}).update(dict.fromkeys(below))
        elif kind == "account":
            known.update((given.get("account_parents") or {}).values())  # parents need no jobs
        elif kind == "user":
            accounts = _names(trace, "account")
            known = set(map("/".join, zip(accounts, _names(trace, kind), strict=True)))
        counts = Counter(name for names in tables.values() for name in names)
        for table, names in tables.items():
            absent = [
                _with_nearest(one, known) for one in names if one not in known and counts[one] == 1
            ]
            if absent:
                what = "QOS" if kind == "qos" else kind
                said.append(f"slurm: `{table}` names the {what} {listed(absent)}, which no job has")
    return said


def _names(trace: Trace, kind: Column) -> list[str]:
    if kind not in trace.columns:
        return [_DEFAULTS[kind]] * len(trace)
    return [name or _DEFAULTS[kind] for name in trace.column(kind).to_pylist()]


def _with_nearest(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"`{name}`" + (f" (did you mean `{near[0]}`?)" if near else "")
