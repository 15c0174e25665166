"""`gangline policies`: lists the policies, and the parameters of each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gangline._support.builtin_values import to_builtins
from gangline.cli import _console
from gangline.cli._inputs import Json, MaybePolicy  # noqa: TC001 - cyclopts reads the annotations

if TYPE_CHECKING:
    from collections.abc import Mapping


def policies(name: MaybePolicy = None, /, *, json: Json = False) -> int:
    """List the policies and their presets, or the parameters of one policy.

    Parameters
    ----------
    name
        A policy or a preset; by default, all are listed.
    json
        Print one JSON document instead of a table.
    """
    from gangline import _core
    from gangline.policies.own import installed, is_own
    from gangline.policies.registry import find, registry

    entries = {entry["name"]: entry for entry in _core.registry() if entry["name"] in registry}
    if name is not None and name not in registry and is_own(name):
        return _own(name, json=json)
    if name is not None:
        return _one(entries[find(name).name], name, json=json)
    listed = [entries[key] for key in registry if key in entries]
    others = [_entry(key) for key in installed() if key not in registry]
    if json:
        _console.document([*listed, *others])
        return 0
    rows = [[entry["name"], _knows(entry), entry["summary"]] for entry in listed]
    _console.table(["policy", "knows", "what it does"], rows)
    _console.say(
        "online: does not know how long jobs run; remaining: knows how long each job still runs, "
        "or the estimates that --estimates gives instead"
    )
    presets = [
        [preset, entry["name"], _settings(values)]
        for entry in listed
        for preset, values in entry["presets"].items()
    ]
    _console.table(["preset", "of", "what it sets"], presets)
    if others:
        rows = [[one["name"], one["knowledge"], one["summary"]] for one in others]
        _console.table(["policy of a package", "knows", "what it does"], rows)
    _console.say("gangline policies NAME shows the parameters of a policy or a preset")
    return 0


def _entry(name: str) -> dict[str, Any]:
    """Return the listing of a policy in Python or, if its import fails, the reason."""
    from gangline.errors import PolicyError
    from gangline.policies.own import load, parameters

    try:
        kind = load(name)
    except PolicyError as error:
        return {"name": name, "knowledge": "", "summary": str(error), "parameters": []}
    parts = [
        {"name": key, "default": None if default is ... else to_builtins(default)}
        for key, default in parameters(kind).items()
    ]
    summary = (kind.__doc__ or "").strip().partition("\n")[0]
    python = f"{kind.__module__}:{kind.__qualname__}"
    declared = {"knowledge": kind.knowledge, "summary": summary, "python": python}
    return {"name": name, **declared, "parameters": parts}


def _knows(entry: Mapping[str, Any]) -> str:
    """Return what a policy knows, and the parameter with which it knows more."""
    asked = entry["durations_with"]
    return f"{entry['knowledge']}; remaining with {asked}" if asked else str(entry["knowledge"])


def _own(name: str, *, json: bool) -> int:
    from gangline.cli._inputs import find_modules_here
    from gangline.policies.own import load

    find_modules_here()
    load(name)  # the user asked for this policy, so a fault in it is an error
    entry = _entry(name)
    if json:
        _console.document(entry)
        return 0
    rows = [[item["name"], _default(item["default"])] for item in entry["parameters"]]
    title = f"{name}: {entry['summary']} ({entry['python']})"
    _console.table(["parameter", "default"], rows, title=title)
    return 0


def _one(entry: Mapping[str, Any], name: str, *, json: bool) -> int:
    if json:
        _console.document(entry)
        return 0
    of = entry["name"]
    title = f"{of}: {entry['summary']} ({entry['source']})"
    from gangline.policies.registry import make

    preset = make(name).params() if name != of else None
    if preset is not None:
        title = f"{name}: {of} with {_settings(entry['presets'][name])}"
    rows = []
    for item in entry["parameters"]:
        values = [] if preset is None else [_default(preset[item["name"]])]
        rows.append(
            [item["name"], *values, _default(item["default"]), item["unit"], _meaning(item)]
        )
    values = [] if preset is None else [name]
    default = "default" if preset is None else f"default of {of}"
    _console.table(["parameter", *values, default, "unit", "meaning"], rows, title=title)
    if preset is None and entry["presets"]:
        presets = [[one, _settings(values)] for one, values in entry["presets"].items()]
        _console.table(["preset", "what it sets"], presets)
    return 0


def _settings(values: Mapping[str, Any]) -> str:
    said = ", ".join(f"{key} = {_default(value)}" for key, value in values.items())
    return said or "nothing changed"


def _meaning(item: Mapping[str, Any]) -> str:
    doc = str(item["doc"])
    words = item.get("choices", [])
    told = set(re.findall(r"\w+", doc))
    return doc if told.issuperset(words) else f"{doc}: {', '.join(words)}"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_default, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "none" if value is None else str(value)
