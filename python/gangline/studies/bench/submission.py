"""Writes and checks a submitted row: a policy, its numbers, and the hashes of its events.

A row is a folder with `row.toml` and `runs.csv`. It also contains the policy's file, or names the
package that provides the policy, for `pip install`. `verify` runs it again.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gangline._support import toml
from gangline._support.formatting import listed, plural
from gangline.errors import GanglineError, OptionError, PolicyError
from gangline.files import listed_files
from gangline.files.shape import misfit
from gangline.policies.source import digest_of, importing, load_policy, source_of
from gangline.studies.bench import published
from gangline.studies.bench.entries import CLASSES, entries
from gangline.studies.bench.run import bench
from gangline.studies.bench.standings import standings
from gangline.studies.bench.suite import World, load_suite

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from gangline.policies.choice import PolicyLike
    from gangline.policies.source import Source
    from gangline.studies.bench.run import Bench
    from gangline.studies.bench.suite import Suite

    Cell = tuple[World, int]

__all__ = ["ROW", "Verified", "check_row", "verify", "write_row"]

ROW, RUNS = "row.toml", "runs.csv"
_COLUMNS = ("workload", "cluster", "load", "restart_s", "seed", "jct_mean_s", "log_hash")
_SPEEDUPS = ("speedup", "speedup_low", "speedup_high")
_DIGITS = 5  # significant digits of the numbers in a row, as in the published table
_SHOWN = 3  # the maximum number of differing runs that are listed


class _Row(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    about: str
    policy: str
    params: dict[str, Any] = {}
    files: dict[str, str]
    requirement: str = ""
    suite: int
    suite_sha256: str
    gangline: str
    knowledge: str
    runs: int
    speedup: float
    speedup_low: float
    speedup_high: float
    preemptions_per_job: float
    runs_sha256: str


class Verified(NamedTuple):
    """The outcome of verifying a row.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.bench.Verified("mine", runs=5, of=180, differences=[]).sentences()
    ['mine: confirmed: 5 of 180 runs are the same']
    """

    name: str
    runs: int
    """Number of runs in the row that were repeated."""
    of: int
    """Total number of runs in the row."""
    differences: list[str]

    def sentences(self) -> list[str]:
        """Say whether the row is confirmed."""
        if self.differences:
            return [f"{self.name}: not confirmed: {one}" for one in self.differences]
        return [f"{self.name}: confirmed: {self.runs} of {plural(self.of, 'run')} are the same"]


def check_row(policy: PolicyLike, folder: Path) -> None:
    """Raise an error, before the runs, if the policy's row could not be written after them.

    Raises
    ------
    PolicyError
        If the policy is not a Python policy, or if its class is not defined in a file.
    FileExistsError
        If a required path names a file that is not part of a row.
    """
    _, files = _code(policy)
    listed_files.check(folder, [ROW, RUNS, *(path.name for path in files)])


def write_row(done: Bench, policy: PolicyLike, folder: str | PathLike[str]) -> None:
    """Write the row of a Python policy that was run on the whole suite.

    Raises
    ------
    OptionError
        If only a part of the suite was run, or if a run failed.

    Examples
    --------
    >>> import gangline as gl
    >>> done = gl.bench.bench(["fifo"], quick=True, workers=1)
    >>> gl.bench.write_row(done, "fifo", "row")
    Traceback (most recent call last):
    ...
    gangline.errors.OptionError: row: expected the whole suite without failures, got a quick one
    """
    import shutil

    if done.is_quick or done.failed:
        got = "a quick one" if done.is_quick else f"{plural(len(done.failed), 'failed run')}"
        raise OptionError(f"row: expected the whole suite without failures, got {got}", field="row")
    (entry,) = entries([policy], 0.0)
    source, files = _code(policy)
    (row,) = [one for one in done.rows if one["policy"] == entry.label]
    names = [ROW, RUNS, *(path.name for path in files)]
    with listed_files.replacing(Path(folder), names) as part:
        text = _runs_text(done.scores[entry.label], done.log_hashes[entry.label])
        (part / RUNS).write_text(text, encoding="utf-8")
        for path in files:
            shutil.copyfile(path, part / path.name)
        reference = entry.reference
        data = {
            "about": _about(policy),
            "policy": reference.python,
            **({"params": reference.params} if reference.params else {}),
            **({"requirement": source.requirement} if source.requirement else {}),
            "suite": done.suite.version,
            "suite_sha256": done.suite.digest,
            "gangline": _version(),
            "knowledge": entry.knowledge,
            "runs": row["runs"],
            **{key: _rounded(row[key]) for key in (*_SPEEDUPS, "preemptions_per_job")},
            "runs_sha256": digest_of(part / RUNS),
            "files": source.files,
        }
        head = "# A row of gangline bench; `gangline bench --verify` runs it again.\n"
        (part / ROW).write_text(head + toml.dumps(data), encoding="utf-8")


def verify(
    path: str | PathLike[str], *, quick: bool = False, workers: int | None = None
) -> list[Verified]:
    """Repeat the runs of rows, and compare their files, runs and numbers.

    Parameters
    ----------
    path : path
        Folder of a row, or a folder that contains rows.
    quick : bool
        Whether to repeat only the runs of the quick part of the suite.
    workers : int, optional
        Maximum number of concurrent runs; by default, one per core.

    Raises
    ------
    OptionError
        If there is no row at the path.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.bench.verify(".", quick=True)
    Traceback (most recent call last):
    ...
    gangline.errors.OptionError: .: expected the folder of a row, with row.toml, or a folder of rows
    """
    path = Path(path)
    folder = path.parent if path.name == ROW else path
    rows = (
        [folder] if (folder / ROW).is_file() else sorted(p.parent for p in folder.glob(f"*/{ROW}"))
    )
    if not rows:
        message = f"{path}: expected the folder of a row, with {ROW}, or a folder of rows"
        raise OptionError(message, field="verify", value=str(path))
    return [_verified(one, quick=quick, workers=workers) for one in rows]


def _verified(folder: Path, *, quick: bool, workers: int | None) -> Verified:
    where = folder / ROW
    try:
        data = toml.loads(where.read_text("utf-8"))
    except ValueError as error:
        return Verified(folder.name, 0, 0, [f"{ROW}: {error}"])
    try:
        row = msgspec.convert(data, _Row)
    except msgspec.ValidationError:
        return Verified(folder.name, 0, 0, [f"{ROW}: {misfit(data, _Row)}"])
    try:
        suite = load_suite(row.suite)
        runs = _read_runs(folder / RUNS, row.runs_sha256)
        if row.suite_sha256 != suite.digest:
            raise OptionError(f"suite {row.suite} of this gangline has a different sha256")
        with importing(folder):
            policy = load_policy(row.policy, row.params, row.files, row.requirement, where)
            (entry,) = entries([policy], 0.0)
            done = bench([policy], suite=row.suite, quick=quick, workers=workers, progress=True)
    except (GanglineError, OSError, ValueError, KeyError) as error:
        return Verified(folder.name, 0, row.runs, [str(error).removeprefix(f"{where}: ")])
    label = entry.label
    cells = [(world, seed) for world in suite.worlds(quick=quick) for seed in suite.seeds]
    found = _numbers_that_differ(row, suite, entry.knowledge, label, runs)
    scores, hashes = done.scores.get(label, {}), done.log_hashes.get(label, {})
    now = {cell: (scores[cell], hashes[cell]) for cell in cells if cell in scores}
    other = [cell for cell in cells if runs.get(cell) != now.get(cell)]
    found += [_difference(cell, runs.get(cell), now.get(cell)) for cell in other[:_SHOWN]]
    if len(other) > _SHOWN:
        found.append(f"{len(other) - _SHOWN:,} more runs differ")
    if not quick and not other:
        (again,) = [one for one in done.rows if one["policy"] == label]
        stops = _rounded(again["preemptions_per_job"])
        if stops != row.preemptions_per_job:
            found.append(f"preemptions_per_job is {row.preemptions_per_job}, but {stops} now")
    if found and row.gangline != _version():
        found.append(f"it was run with gangline {row.gangline}, but now with {_version()}")
    return Verified(folder.name, len(now), row.runs, found)


def _numbers_that_differ(
    row: _Row, suite: Suite, knowledge: str, label: str, runs: Mapping[Cell, tuple[float, str]]
) -> list[str]:
    """Return the differences between the numbers in a row and those computed from its runs."""
    cells = [(world, seed) for world in suite.worlds() for seed in suite.seeds]
    if set(runs) != set(cells) or row.runs != len(cells):
        return [f"{RUNS}: expected the {len(cells)} runs of suite {row.suite}, got {len(runs)}"]
    found = []
    if row.knowledge != knowledge:
        known = listed(list(CLASSES))
        found.append(
            f"knowledge is {row.knowledge!r}, but {knowledge!r} according to its class ({known})"
        )
    base = published.read_jct(row.suite)[suite.baseline]
    scores = {label: {cell: jct_s for cell, (jct_s, _) in runs.items()}, suite.baseline: base}
    classes = {label: knowledge, suite.baseline: "nothing"}
    made = standings(scores, classes, suite.worlds(), suite.seeds, suite.baseline)
    (mine,) = [one for one in made if one["policy"] == label]
    for key in _SPEEDUPS:
        then, now = getattr(row, key), _rounded(mine[key])
        if then != now:
            found.append(f"{key} is {then}, but {now} according to {RUNS}")
    return found


def _difference(cell: Cell, then: tuple[float, str] | None, now: tuple[float, str] | None) -> str:
    world, seed = cell
    where = f"{world.workload}, {world.cluster}, load {world.load:g}, restart {world.restart_s:g} s"
    if then is None or now is None:
        return f"{where}, seed {seed}: {'not in the row' if then is None else 'failed now'}"
    if then[0] != now[0]:
        return f"{where}, seed {seed}: mean JCT {then[0]:.3f} s in the row, {now[0]:.3f} s now"
    return f"{where}, seed {seed}: different events (log_hash {then[1]} in the row, {now[1]} now)"


def _code(policy: PolicyLike) -> tuple[Source, list[Path]]:
    from gangline.policies.choice import resolve_policy

    own = resolve_policy(policy).own
    if own is None:
        message = "row: expected a policy in Python; built-in policies are already published"
        raise PolicyError(message, field="row")
    return source_of(type(own))


def _about(policy: PolicyLike) -> str:
    from gangline.policies.choice import resolve_policy

    own = resolve_policy(policy).own
    return (type(own).__doc__ or "").strip().partition("\n")[0]


def _runs_text(scores: Mapping[Cell, float], hashes: Mapping[Cell, str]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for (world, seed), jct_s in scores.items():
        keys = [*world[:2], f"{world.load:g}", f"{world.restart_s:g}", seed]
        writer.writerow([*keys, f"{jct_s:.3f}", hashes[world, seed]])
    return file.getvalue()


def _read_runs(path: Path, sha256: str) -> dict[Cell, tuple[float, str]]:
    if digest_of(path) != sha256:
        raise OptionError(f"{RUNS}: is not the file that {ROW} names: its sha256 differs")
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (
                World(one["workload"], one["cluster"], float(one["load"]), float(one["restart_s"])),
                int(one["seed"]),
            ): (float(one["jct_mean_s"]), one["log_hash"])
            for one in csv.DictReader(file)
        }


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _version() -> str:
    from gangline import _core

    return str(_core.__version__)
