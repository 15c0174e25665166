"""Writes the methods paragraph: policies, worlds and comparisons, with all their numbers."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline._support.formatting import listed, plural
from gangline._support.latex import escaped
from gangline.paper.worlds import UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.paper.run import Entrant, Paper
    from gangline.paper.worlds import PaperWorld

__all__ = ["methods_tex", "methods_txt", "versions_of_run"]

_SHOWN = 16  # digits of a hash in a sentence; repeat.toml contains all digits


@cache
def versions_of_run() -> dict[str, str]:
    """Return what can change the bytes of a kit's files: versions, and the hash of the core."""
    from gangline import _core
    from gangline.runs.spec import versions

    try:
        from importlib.metadata import version

        drawn = version("matplotlib")
    except ImportError:
        drawn = "none"
    core = hashlib.sha256(Path(str(_core.__file__)).read_bytes()).hexdigest()
    return {
        "gangline": _core.__version__, "core_sha256": core, **versions(), "matplotlib": drawn,
    }  # fmt: skip


def methods_txt(made: Paper) -> str:
    """Return the methods as plain text."""
    return "\n\n".join(_paragraphs(made)) + "\n"


def methods_tex(made: Paper) -> str:
    """Return the methods as LaTeX."""
    return "\n\n".join(escaped(one) for one in _paragraphs(made)) + "\n"


def _paragraphs(made: Paper) -> list[str]:
    known = versions_of_run()
    labels = [one.label for one in made.entrants]
    parts = ", ".join(f"{name} {known[name]}" for name in ("python", "numpy", "pyarrow", "highspy"))
    first = (
        f"We simulated {listed(labels)} with gangline {known['gangline']} (core sha256 "
        f"{known['core_sha256'][:_SHOWN]}..., {parts}). {' '.join(map(_policy, made.entrants))} "
        f"{_count(made)}"
    )
    worlds = [_world(made, one) for one in made.worlds]
    if made.is_quick:
        worlds.append("The workloads were made small for a first look, which is not conclusive.")
    return [
        first,
        " ".join(worlds),
        _statistics(made),
        *([" ".join(made.notes)] * bool(made.notes)),
    ]


def _policy(one: Entrant) -> str:
    params = _params(one.reference.params)
    if one.source is None:
        return f"{one.label} is a policy of gangline{params}."
    files = listed([f"{name} (sha256 {sha256[:_SHOWN]}...)"
                    for name, sha256 in one.source.files.items()])  # fmt: skip
    where = f" of {one.source.requirement}" if one.source.requirement else ""
    return f"{one.label} is the class {one.reference.python}{where}, in {files}{params}."


def _params(params: dict[str, Any]) -> str:
    if not params:
        return ", without parameters"
    return ", with " + ", ".join(f"{key} = {value}" for key, value in params.items())


def _count(made: Paper) -> str:
    seeds = listed([str(one) for one in made.seeds])
    return (
        f"In {plural(len(made.worlds), 'world')}, {plural(made.runs_count, 'run')} finished. In "
        f"each world, every policy scheduled {plural(len(made.seeds), 'draw')} of the jobs (seeds "
        f"{seeds}, which are also the seeds of the runs)."
    )


def _world(made: Paper, place: PaperWorld) -> str:
    cluster = place.cluster()
    address = place.address(0, quick=made.is_quick).replace("seed=0", "seed=S")
    kinds = ", ".join(f"{gpus} {'GPUs' if kind == 'GPU' else kind}"
                      for kind, gpus in cluster.gpus_by_type().items())  # fmt: skip
    rivals = [_rival(place, row.policy) for row in made.rows
              if row.world is place and row.change is UNCHANGED and not row.is_new]  # fmt: skip
    options = ", ".join(f"{key} = {value:g}" for key, value in place.options.items())
    changed = [one.label for one in place.changes_of(quick=made.is_quick)
               if any(row.world is place and row.change is one for row in made.rows)]  # fmt: skip
    return (
        f"World {place.name} ({place.origin(quick=made.is_quick)}): cluster {cluster.name} with "
        f"{kinds}, jobs {address} (traces sha256 "
        f"{made.traces[place.name][:_SHOWN]}...){', ' + options if options else ''}; metric: "
        f"{place.words}; rivals: "
        f"{listed(rivals)}{'; changed one at a time: ' + ', '.join(changed) if changed else ''}."
    )


def _rival(place: PaperWorld, name: str) -> str:
    for one in place.rivals:
        if one.name == name and one.params:
            params = ", ".join(f"{key} = {value}" for key, value in one.params.items())
            return f"{name} ({one.policy} with {params})"
    return name


def _statistics(made: Paper) -> str:
    counted = [one for one in made.pairs if one.interval is not None]
    text = (
        "Rivals have the default parameters of that version unless other values are named. A ratio "
        "is the metric under a rival divided by the metric under the new policy, on the same jobs "
        "for each seed; means of ratios are geometric. "
    )
    if not counted:
        return text + _too_few(made.seeds)
    return text + (
        "Intervals are 95 % BCa bootstrap intervals over the seeds (4,000 resamples, widened by "
        "Student's t); those of ratios are computed from the logarithms. If an interval contains "
        "1, the seeds cannot tell which policy is better. Each interval covers one comparison: if "
        f"no two policies differed, about {max(1, round(0.05 * len(counted))):,} of the "
        f"{len(counted):,} intervals here would exclude 1 by chance."
    )


def _too_few(seeds: Sequence[int]) -> str:
    return f"With {plural(len(seeds), 'seed')} there are no intervals: they need five or more."
