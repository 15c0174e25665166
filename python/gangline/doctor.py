"""Checks the installation, says how to install what is missing, and runs a self-check.

A broken library is a finding and must never make `examine` fail.

Examples
--------
>>> from gangline.doctor import examine
>>> [check.name for check in examine().checks][:2]
['core', 'fifo']
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import re
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Check", "Library", "Report", "examine"]

PACKAGE = "gangline"
# What each extra is for.
GIVES = {
    "batsim": "schedulers written for Batsim",
    "dask": "sweeps on a Dask cluster",
    "gantt": "Gantt charts",
    "plot": "figures for papers",
    "profile": "PyTorch networks for measuring a GPU",
    "testing": "property tests of policies",
    "rl": "environments for agents that learn to schedule",
}
# Packages whose modules have different names.
MODULES = {"pyzmq": "zmq"}
# Three jobs on one server with two GPUs, worked out by hand: (arrival, GPUs, duration).
WORLD = {"a": (0.0, 2, 10.0), "b": (1.0, 1, 4.0), "c": (2.0, 2, 1.0)}
EXPECTED = {
    # Job a ends at t = 10, and b at t = 14. Job c needs both GPUs, so it runs after b.
    "fifo": {"a": 10.0, "b": 14.0, "c": 15.0},
    # At t = 10, the shortest waiting job is c, so it runs before b and ends at t = 11.
    "sjf": {"a": 10.0, "b": 15.0, "c": 11.0},
    # At t = 1, b has less work left than a, and at t = 2, c has less than b. So c ends at t = 3, b
    # at t = 6, and a at t = 15.
    "srtf": {"a": 15.0, "b": 6.0, "c": 3.0},
}


@dataclass(frozen=True)
class Library:
    """A library that gangline or one of its extras uses.

    Attributes
    ----------
    name : str
        Name in the package index.
    version : str or None
        The version, or None if the library is not installed.
    extra : str
        The extra that needs the library; empty if gangline itself needs it.
    gives : str
        The purpose of the extra; empty if gangline itself needs the library.
    problem : str
        The reason why the library cannot be used; empty if it can be used.
    install : str
        The command that installs the library.
    """

    name: str
    version: str | None
    extra: str
    gives: str
    problem: str
    install: str

    @property
    def ok(self) -> bool:
        """Return whether the library can be used."""
        return not self.problem


@dataclass(frozen=True)
class Check:
    """A part of the self-check; `problem` is empty if the part passed."""

    name: str
    problem: str


@dataclass(frozen=True)
class Report:
    """The findings of `examine`.

    Attributes
    ----------
    versions : dict of str to str
        The versions of gangline, the core's build, Python and the platform.
    libraries : tuple of Library
        Libraries that gangline needs, followed by the libraries of its extras.
    checks : tuple of Check
        The parts of the self-check: loading the core, small runs and a linear program with known
        answers, and writing a temporary file.
    """

    versions: dict[str, str]
    libraries: tuple[Library, ...]
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Return whether all requirements (not extras) are met and the self-check passed."""
        needed = all(library.ok for library in self.libraries if not library.extra)
        return needed and not any(check.problem for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain values that `gangline doctor --json` prints."""
        return {
            "ok": self.ok,
            "versions": self.versions,
            "libraries": [asdict(library) for library in self.libraries],
            "checks": [asdict(check) for check in self.checks],
        }


def examine() -> Report:
    """Examine versions, libraries and extras, and run the self-check.

    Returns
    -------
    Report

    Examples
    --------
    >>> examine().ok
    True
    """
    versions = {
        "gangline": _version(PACKAGE) or "unknown",
        "core": _attempt(_core_build)[0] or "cannot be loaded",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "executable": sys.executable,
    }
    checks = [("core", _core_loads), *((name, _policy(name)) for name in EXPECTED)]
    checks += [("solver", _solver_answers), ("temporary files", _can_write)]
    return Report(
        versions=versions,
        libraries=tuple(_libraries()),
        checks=tuple(Check(name, _attempt(check)[1]) for name, check in checks),
    )


def _attempt(work: Callable[[], str]) -> tuple[str, str]:
    """Return the result of a task and its error, one of which is empty."""
    try:
        return work(), ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a broken library may raise anything
        words = " ".join(str(error).split())
        return "", f"{type(error).__name__}: {words}" if words else type(error).__name__


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _core_build() -> str:
    core = importlib.import_module("gangline._core")
    return f"{core.__version__}, {core.__profile__}"


def _core_loads() -> str:
    core = importlib.import_module("gangline._core")
    installed = _version(PACKAGE)
    if installed is not None and core.__version__ != installed:
        raise RuntimeError(
            f"the compiled core is {core.__version__}, the package {installed}; install it again"
        )
    return ""


def _libraries() -> Iterable[Library]:
    """Yield the libraries as the package's metadata lists them: those of extras come last."""
    try:
        lines = importlib.metadata.requires(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for line in lines:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        found = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", marker)
        extra = found.group(1) if found else ""
        yield _library(requirement, extra)


def _library(requirement: str, extra: str) -> Library:
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    wanted = f"{PACKAGE}[{extra}]" if extra else requirement
    module = MODULES.get(name, name.replace("-", "_"))
    version = _version(name)
    problem = "not installed"
    if version is not None:
        _, problem = _attempt(lambda: str(importlib.import_module(module)))
        if problem:
            problem = f"does not load: {problem}"
    again = " --force-reinstall" if version is not None and problem else ""
    gives = GIVES.get(extra, "")
    return Library(name, version, extra, gives, problem, f'pip install{again} "{wanted}"')


def _policy(name: str) -> Callable[[], str]:
    def check() -> str:
        import pyarrow as pa

        from gangline.runs.simulate import simulate

        columns = list(zip(*WORLD.values(), strict=True))
        names = ("arrival_s", "gpus", "duration_s")
        table = pa.table({"job_id": list(WORLD), **dict(zip(names, columns, strict=True))})
        cluster = {
            "gpu_types": [{"name": "GPU", "memory_gb": 16}],
            "servers": [{"count": 1, "gpu": "GPU", "gpus": 2}],
        }
        result = simulate(cluster, table, name, check_invariants=True)
        got = {row["job_id"]: row["finish_s"] for row in result.jobs.to_pylist()}
        if got != EXPECTED[name]:
            raise RuntimeError(f"jobs finish at {got}, expected {EXPECTED[name]}")
        return ""

    return check


def _solver_answers() -> str:
    """Maximise x + y subject to x + 2y <= 4 and 3x + y <= 6: x = 8/5, y = 6/5, x + y = 14/5."""
    highspy = importlib.import_module("highspy")
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)  # noqa: FBT003 - its signature
    model.setOptionValue("threads", 1)
    x, y = model.addVariable(lb=0.0), model.addVariable(lb=0.0)
    model.addConstr(x + 2.0 * y <= 4.0)
    model.addConstr(3.0 * x + y <= 6.0)
    model.maximize(x + y)
    best = float(model.getObjectiveValue())
    if abs(best - 2.8) > 1e-9:
        raise RuntimeError(f"the optimum is {best}, expected 2.8")
    return ""


def _can_write() -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "probe").write_text("gangline", encoding="utf-8")
    return ""
