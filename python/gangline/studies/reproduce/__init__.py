"""Repeats papers' evaluations, with their set-ups and baselines, and judges each claim.

Examples
--------
>>> from gangline import reproduce
>>> done = reproduce.run(
...     "dally", clusters=["2x4"], workloads=["batch"], networks=["dally-2024"],
...     policies=["tiresias-oracle", "dally"],
... )
>>> [(row["policy"], row["seeds"]) for row in done.rows]
[('tiresias-oracle', 3), ('dally', 3)]
>>> [claim["claimed"] for claim in done.claims]
[0.69, 0.83, 0.98]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gangline._support.formatting import did_you_mean
from gangline.errors import GanglineError, PolicyError
from gangline.studies.reproduce.runs import KIND, Reproduction, carry_out
from gangline.studies.reproduce.study import (
    Choice,
    Claim,
    Contender,
    Factor,
    Setting,
    Study,
    Variation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from gangline.runs.inputs import Progress

__all__ = [
    "STUDIES",
    "Choice",
    "Claim",
    "Contender",
    "Factor",
    "Reproduction",
    "Setting",
    "Study",
    "Variation",
    "run",
    "study",
]

STUDIES = ("dally", "hadar", "hadare", "hadar-search", "sjf-bsbf")
"""The names of the studies; each study is a module of this package that defines `STUDY`."""


def study(name: str) -> Study:
    """Return the study that repeats the evaluation of a paper.

    Raises
    ------
    GanglineError
        If no study has this name.

    Examples
    --------
    >>> study("dally").fair
    'tiresias-oracle'
    """
    if name not in STUDIES:
        raise GanglineError(f"no study `{name}`{did_you_mean(name, STUDIES)}")
    module = importlib.import_module(f"gangline.studies.reproduce.{name.replace('-', '_')}")
    found: Study = module.STUDY
    return found


def run(
    name: str,
    *,
    quick: bool = False,
    seeds: Sequence[int] = (),
    out: str | PathLike[str] | None = None,
    progress: bool | Progress = False,
    restart_s: float | None = None,
    workers: int = 1,
    **axes: Sequence[str],
) -> Reproduction:
    """Run a paper's evaluation.

    Parameters
    ----------
    name : str
        Name of a study in `STUDIES`.
    quick : bool
        Whether to run only a small part, which takes less than a minute.
    seeds : sequence of int
        Seeds that draw the workloads; by default, those of the study.
    out : path, optional
        Folder for `reproduction.json`, and for one folder per world and seed in the format of
        `compare --out`. An interrupted study continues where it stopped.
    progress : bool or callable
        As for `gangline.simulate`; the bar counts the jobs of all runs.
    restart_s : float, optional
        Time in seconds without progress after a restart or move; by default, the study's value.
    workers : int
        Maximum number of concurrent runs; it does not affect the numbers.
    **axes
        `clusters`, `networks`, `workloads` and `policies`: names of the items to run; by default,
        the study's own selection.

    Returns
    -------
    Reproduction
        Rows, savings and claims; the same arguments always give the same values.

    Raises
    ------
    GanglineError
        If a name is unknown.

    Examples
    --------
    >>> from gangline import reproduce
    >>> found = reproduce.run(
    ...     "dally", clusters=["2x4"], workloads=["batch"], networks=["dally-2024"],
    ...     policies=["tiresias-oracle", "dally"], seeds=[0],
    ... )
    >>> [row["policy"] for row in found.rows]
    ['tiresias-oracle', 'dally']
    """
    from pathlib import Path

    from gangline.files.places import check_free
    from gangline.runs.bar import bar
    from gangline.runs.executors import check_workers
    from gangline.runs.inputs import make_options

    found = study(name)
    workers = check_workers(workers)
    unknown = [
        axis for axis in axes if axis not in ("clusters", "networks", "workloads", "policies")
    ]
    if unknown:
        raise PolicyError(f"unknown option `{unknown[0]}`", field=unknown[0])
    given: dict[str, Any] = {axis: tuple(values) for axis, values in axes.items()}
    choice = found.choose(Choice(**given, seeds=tuple(seeds)), quick=quick)
    options = dict(found.options)
    if restart_s is not None:
        options["restart_s"] = restart_s
    for seed in choice.seeds:
        make_options({**options, "seed": seed})
    folder = None if out is None else Path(out)
    if folder is not None:
        check_free(folder / "reproduction.json", KIND)
    with bar(progress, f"reproduce {name}") as report:
        made = carry_out(found, choice, options, folder=folder, report=report, workers=workers)
    if folder is not None:
        made.save(folder / "reproduction.json")
    return made
