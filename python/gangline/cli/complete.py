"""Completes option values on Tab; errors are silent, because the user is still typing.

Each function gets the text typed so far and returns its possible completions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cyclopts.completion import CompletionContext

__all__ = [
    "cluster",
    "format_name",
    "models",
    "policies",
    "policy",
    "settings",
    "study",
    "synth",
    "trace",
]

_BUSIEST = 200  # our own choice: the maximum number of entries of a folder that are considered


def policy(context: CompletionContext) -> list[str]:  # noqa: ARG001 - the protocol of completers
    """Offer policies and presets."""
    from gangline.policies.own import installed
    from gangline.policies.registry import presets, registry

    return [*registry, *presets, *installed()]


def policies(context: CompletionContext) -> list[str]:
    """Offer the next policy for a comma-separated list, without policies already in the list."""
    return _next(context, policy(context))


def models(context: CompletionContext) -> list[str]:
    """Offer the next model for a comma-separated list, among those that can be measured."""
    from gangline.studies.profile.trainers import MODELS

    return _next(context, MODELS)


def _next(context: CompletionContext, names: Iterable[str]) -> list[str]:
    before, comma, _ = context.incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{name}" for name in names if name not in taken]


def cluster(context: CompletionContext) -> list[str]:
    """Offer presets and files."""
    from gangline.cluster.description import Cluster

    return [*Cluster.presets(), *_files(context.incomplete, (".toml", ".csv", ".json"))]


def trace(context: CompletionContext) -> list[str]:
    """Offer bundled traces, generators and files."""
    from gangline.files.source import bundled

    return [*bundled(), *(f"synth:{name}?" for name in synth(context)), *_files(context.incomplete)]


def synth(context: CompletionContext) -> list[str]:  # noqa: ARG001 - the protocol of completers
    """Offer the generators."""
    from gangline.trace.synth import SHAPES

    return list(SHAPES)


def format_name(context: CompletionContext) -> list[str]:  # noqa: ARG001
    """Offer the formats of traces."""
    from gangline.trace.formats import FORMATS

    return [one.name for one in FORMATS]


def study(context: CompletionContext) -> list[str]:  # noqa: ARG001
    """Offer the papers that can be reproduced."""
    from gangline.studies.reproduce import STUDIES

    return list(STUDIES)


def settings(context: CompletionContext) -> list[str]:
    """Offer the parameters of the typed policies, or the values of a parameter."""
    from gangline import _core

    chosen = _typed(context)
    entries = {entry["name"]: entry for entry in _core.registry()}
    offered: list[str] = []
    for name in chosen:
        prefix = f"{name}." if len(chosen) > 1 else ""
        for parameter in entries.get(name, {}).get("parameters", ()):
            key = f"{prefix}{parameter['name']}="
            offered += _values(key, parameter) if context.incomplete.startswith(key) else [key]
    return offered


def _values(key: str, parameter: dict[str, Any]) -> list[str]:
    if parameter["kind"] == "bool":
        return [f"{key}true", f"{key}false"]
    if parameter["kind"] == "choice":
        return [f"{key}{choice}" for choice in parameter["choices"]]
    return [key]


def _typed(context: CompletionContext) -> list[str]:
    """Return the policies on the line; a preset is replaced by its policy."""
    from gangline.policies.registry import presets

    for option in ("--policies", "--policy"):
        typed = context.get(option)
        if typed is not None and typed.provided:
            names = [name for word in typed.raw_tokens for name in word.split(",")]
            return [presets[name].name if name in presets else name for name in names]
    return []


def _files(typed: str, suffixes: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the files and folders whose names begin with the typed text."""
    folder, slash, start = typed.rpartition("/")
    place = Path(folder + slash or ".")
    try:
        found = sorted(place.iterdir())[:_BUSIEST]
    except OSError:
        return
    for path in found:
        is_hidden = path.name.startswith(".") and not start.startswith(".")
        if is_hidden or not path.name.startswith(start):
            continue
        if path.is_dir():
            yield f"{folder}{slash}{path.name}/"
        elif not suffixes or path.suffix in suffixes:
            yield f"{folder}{slash}{path.name}"
