"""`gangline policies`: what there is, and what each takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gangline.cli import _console
from gangline.cli._inputs import Json  # noqa: TC001 - cyclopts reads the annotations
from gangline.policies.registry import find, registry

if TYPE_CHECKING:
    from collections.abc import Mapping


def policies(name: str | None = None, /, *, json: Json = False) -> int:
    """List the policies, or the parameters of one.

    Parameters
    ----------
    name
        A policy; without it all are listed.
    json
        Print one JSON document instead of a table.
    """
    from gangline import _core

    entries = {entry["name"]: entry for entry in _core.registry() if entry["name"] in registry}
    if name is not None:
        return _one(entries[find(name).name], json=json)
    listed = [entries[key] for key in registry if key in entries]
    if json:
        _console.document(listed)
        return 0
    rows = [[entry["name"], entry["knowledge"], entry["summary"]] for entry in listed]
    _console.table(["policy", "knows", "what it does"], rows)
    _console.say(
        "online: does not see how long jobs run; remaining: sees how long each job still runs"
    )
    _console.say("gangline policies NAME shows the parameters of one")
    return 0


def _one(entry: Mapping[str, Any], *, json: bool) -> int:
    if json:
        _console.document(entry)
        return 0
    rows = [
        [item["name"], _default(item["default"]), item["unit"], _meaning(item)]
        for item in entry["parameters"]
    ]
    title = f"{entry['name']}: {entry['summary']} ({entry['source']})"
    _console.table(["parameter", "default", "unit", "meaning"], rows, title=title)
    return 0


def _meaning(item: Mapping[str, Any]) -> str:
    doc = str(item["doc"])
    words = item.get("choices", [])
    told = set(re.findall(r"\w+", doc))
    return doc if told.issuperset(words) else f"{doc}: {', '.join(words)}"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_default, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "none" if value is None else str(value)
