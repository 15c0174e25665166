"""Carries out the runs of a paper kit, and compares the policies on each seed."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gangline._support import statistics
from gangline._support.formatting import plural
from gangline.errors import OptionError, PolicyError
from gangline.paper.worlds import NAMES, UNCHANGED, Change, PaperWorld, world
from gangline.policies.source import source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from os import PathLike

    from gangline.policies.choice import ChosenPolicy, PolicyLike, PolicyReference
    from gangline.policies.source import Source
    from gangline.runs.execution import Worlds
    from gangline.runs.premises import Lack
    from gangline.runs.spec import RunSpec

    _Taking = tuple[str, ChosenPolicy, "Entrant | None"]

__all__ = ["SEEDS", "Entrant", "Pair", "Paper", "Row", "carry_out", "entrants"]

SEEDS = tuple(range(10))
QUICK_SEEDS = (0, 1)
WORK = "work"
"""Subfolder with the results of each run; an interrupted kit continues from it."""


class Entrant(NamedTuple):
    """A new policy that the kit examines."""

    label: str
    reference: PolicyReference
    source: Source | None
    """The origin of the policy's Python code; None for a built-in policy."""
    files: list[Path]
    """Source files that can be copied to another folder."""


class Row(NamedTuple):
    """A policy in a world that is unchanged or has one changed setting."""

    world: PaperWorld
    change: Change
    policy: str
    is_new: bool
    """Whether this is a new policy that the kit examines, and not a rival."""
    values: dict[int, float]
    """The headline metric, keyed by seed."""
    status: str
    """One of: finished, does not apply, failed."""
    reason: str

    @property
    def mean(self) -> statistics.Estimate | None:
        """The metric's mean over the seeds, and the confidence interval of the mean."""
        values = list(self.values.values())
        within = statistics.range_of(self.world.measure)
        return statistics.estimate(values, within) if values and not self.reason else None


class Pair(NamedTuple):
    """The comparison of a rival with a new policy: the ratio of their headline metrics."""

    world: PaperWorld
    change: Change
    policy: str
    rival: str
    times: float | None
    low: float | None
    high: float | None
    seeds: int
    verdict: str

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of `times`, or None if there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)


class Paper:
    """The results of a kit.

    Attributes
    ----------
    entrants : list of Entrant
        The new policies that the kit examines.
    worlds : list of PaperWorld
        The worlds in which the policies ran.
    seeds : list of int
        The seeds. Each seed generates the jobs of a world, and is also the seed of the runs on
        these jobs.
    is_quick : bool
        Whether the small variants of the workloads were used.
    rows : list of Row
        One row for each world, change and policy.
    runs : list of dict
        One row for each policy and seed: world, change, policy, seed, digest, measure, value,
        log_hash. If a change does not affect a policy, the run and its digest stay the same.
    notes : list of str
        Notes on policies whose mechanism had no opportunity to help in a world.
    traces : dict
        For each world, the SHA-256 of its unchanged traces for all seeds.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = gl.paper.run(["las"], worlds=["tiresias"], quick=True, out=folder, workers=1)
    >>> made.is_quick, made.seeds, len(made.runs)
    (True, [0, 1], 32)
    """

    def __init__(
        self,
        entrants: Sequence[Entrant],
        worlds: Sequence[PaperWorld],
        seeds: Sequence[int],
        *,
        quick: bool,
    ) -> None:
        self.entrants = list(entrants)
        self.worlds = list(worlds)
        self.seeds = list(seeds)
        self.is_quick = quick
        self.rows: list[Row] = []
        self.runs: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.traces: dict[str, str] = {}

    @property
    def runs_count(self) -> int:
        """Number of distinct runs that finished."""
        return len({run["digest"] for run in self.runs})

    @property
    def pairs(self) -> list[Pair]:
        """Each policy compared with each new policy in the same world, in the order of the rows."""
        return [pair for row in self.rows for pair in self.pairs_of(row)]

    def pairs_of(self, row: Row) -> list[Pair]:
        """Compare a policy with each new policy except itself."""
        same = [one for one in self.rows if one[:2] == row[:2] and one.is_new]
        return [_pair(row, one) for one in same if one.policy != row.policy]

    def __repr__(self) -> str:
        labels = ", ".join(one.label for one in self.entrants)
        size = f"{plural(len(self.worlds), 'world')}, {plural(self.runs_count, 'run')}"
        return f"Paper({labels}: {size})"


def carry_out(
    policies: Iterable[PolicyLike],
    *,
    worlds: Iterable[str] | None = None,
    quick: bool = False,
    seeds: Sequence[int] | None = None,
    out: str | PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool | Callable[[int, int, int], None] = False,
) -> Paper:
    """Run new policies against their rivals, in each rival's world and in a common one.

    Parameters
    ----------
    policies : iterable
        Names, `module:Class` strings, configurations, or instances of classes that are
        defined in files.
    worlds : iterable of str, optional
        Any of hadar, dally, sjf-bsbf, gavel, tiresias and common; by default, all.
    quick : bool
        Whether to run small workloads with two seeds for a first look, which gives no verdicts.
    seeds : sequence of int, optional
        Seeds; by default, 0 to 9.
    out : path, optional
        Folder of the kit. Its subfolder `work` keeps the results of the runs, so an interrupted kit
        continues from there. A Python policy is run again if its file has changed.
    workers : int, optional
        Maximum number of concurrent runs; by default, one per core.
    progress : bool or callable
        As for `gangline.sweep`.

    Returns
    -------
    Paper
        The results; equal arguments give equal results.

    Raises
    ------
    PolicyError
        If a policy is unknown, is listed twice, or its class is not defined in a file.
    OptionError
        If a world is unknown, or a seed is listed twice.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = gl.paper.run(["las"], worlds=["tiresias"], quick=True, out=folder, workers=1)
    >>> made
    Paper(las: 1 world, 32 runs)
    """
    from gangline.runs.execution import Worlds as Traces
    from gangline.studies.sweep.plan import Listed
    from gangline.studies.sweep.run import carry_out_all

    chosen = [world(name) for name in (NAMES if worlds is None else worlds)]
    given = list(seeds if seeds is not None else QUICK_SEEDS if quick else SEEDS)
    _refuse_repeated("worlds", [one.name for one in chosen])
    _refuse_repeated("seeds", given)
    made = Paper(entrants(policies), chosen, given, quick=quick)
    traces = Traces(4)
    cells = [cell for one in chosen for cell in _cells(made, one, traces)]
    with tempfile.TemporaryDirectory(prefix="gangline-paper-") as aside:
        folder = Path(aside if out is None else out) / WORK
        pairs = [(cell.keys(seed), spec) for cell in cells for seed, spec in cell.specs.items()]
        done: dict[str, dict[str, Any]] = {}
        failed: dict[str, dict[str, Any]] = {}
        if pairs:
            listed = Listed("paper", pairs, "summary")
            sweep = carry_out_all(listed, folder, workers=workers, progress=progress, worlds=traces)
            done = {row["digest"]: row for row in sweep.table.to_pylist()}
            failed = {row["digest"]: row for row in sweep.failed}
        _read(made, cells, done, failed, folder)
    return made


class _Cell(NamedTuple):
    """A policy in a world, with its runs; no runs if the world lacks data that the policy needs."""

    world: PaperWorld
    change: Change
    policy: str
    is_new: bool
    specs: dict[int, RunSpec]
    reason: str

    def keys(self, seed: int) -> dict[str, Any]:
        names = {"world": self.world.name, "change": self.change.label, "policy": self.policy}
        return {**names, "seed": seed}


def entrants(policies: Iterable[PolicyLike]) -> list[Entrant]:
    """Return the new policies, each with the source files of its class.

    Raises
    ------
    PolicyError
        If a policy is unknown, is listed twice, or its class is not defined in a file.
    """
    from gangline.policies.choice import resolve_policy

    found = []
    for one in policies:
        chosen = resolve_policy(one)
        source, files = (None, []) if chosen.own is None else source_of(type(chosen.own))
        found.append(Entrant(chosen.label, chosen.reference, source, files))
    if not found:
        raise OptionError("policies: expected at least one, got none", field="policies")
    _refuse_repeated("policies", [one.label for one in found])
    return found


def _refuse_repeated(field: str, given: Sequence[Any]) -> None:
    for one in given:
        if given.count(one) > 1:
            error = PolicyError if field == "policies" else OptionError
            raise error(f"{field}: duplicate `{one}`; name each once", field=field, value=one)
    if not given:
        raise OptionError(f"{field}: expected at least one, got none", field=field)


def _cells(made: Paper, place: PaperWorld, traces: Worlds) -> Iterator[_Cell]:
    """Yield each policy in the unchanged world, and then each policy in each changed world."""
    from gangline.runs.inputs import make_options
    from gangline.runs.premises import lacks, merged
    from gangline.runs.spec import RunSpec, keys_of

    hashes: list[str] = []
    idle: list[Lack] = []
    for change in (UNCHANGED, *place.changes_of(quick=made.is_quick)):
        cluster = place.cluster(change)
        keys = keys_of(cluster)
        drawn = {seed: place.draw(seed, change, quick=made.is_quick) for seed in made.seeds}
        if change is UNCHANGED:
            hashes += [traces.trace(one).sha256 for one in drawn.values()]
        options = {
            seed: make_options({**place.options, **change.options, "seed": seed, "timeline": "off"})
            for seed in made.seeds
        }
        for label, chosen, entrant in _affected(change, list(_taking_part(made, place, change))):
            lacking = lacks(cluster, traces.trace(drawn[made.seeds[0]]), [chosen])
            why = "; ".join(one.what for one in lacking if not one.mechanism)
            if change is UNCHANGED:
                idle += [one._replace(policies=(label,)) for one in lacking if one.mechanism]
            specs = {}
            for seed in made.seeds if not why else ():
                specs[seed] = RunSpec.of(keys, drawn[seed], chosen.reference, options[seed])
            yield _Cell(place, change, label, entrant is not None, specs, why)
    made.traces[place.name] = _joined(hashes)
    made.notes += [f"In the world {place.name}, {one.sentence().partition(';')[0]}."
                   for one in merged(idle)]  # fmt: skip


def _affected(change: Change, found: Sequence[_Taking]) -> list[_Taking]:
    """Omit rivals that a parameter change does not affect, unless the change affects a new policy.

    If the change affects no policy at all, no policy runs.
    """
    names = change.params.keys()
    touched = [one for one in found if names <= one[1].params.keys()]
    if not names or any(entrant for _, _, entrant in touched):
        return list(found)
    return [one for one in found if touched and (one in touched or one[2])]


def _taking_part(made: Paper, place: PaperWorld, change: Change) -> Iterator[_Taking]:
    """Yield the label and policy of every contender; with a change, only `heroes` run as rivals."""
    from gangline.policies.choice import resolve_policy

    known = {one.reference.text for one in made.entrants}
    labels = {one.label for one in made.entrants}
    for entrant in made.entrants:
        base = entrant.reference.resolve()
        yield entrant.label, _changed(base, change), entrant
    for rival in place.rivals:
        base = resolve_policy(rival.policy, dict(rival.params))
        if base.reference.text in known or (
            change is not UNCHANGED and rival.name not in place.heroes
        ):
            continue
        name = f"{rival.name} (rival)" if rival.name in labels else rival.name
        yield name, _changed(base, change), None


def _changed(chosen: ChosenPolicy, change: Change) -> ChosenPolicy:
    """Return a policy with the parameters of a change, if the policy has all of them."""
    from gangline.policies.choice import resolve_policy

    if not change.params or not change.params.keys() <= chosen.params.keys():
        return chosen
    given = {**chosen.params, **change.params}
    reference = msgspec.structs.replace(chosen.reference, params=given)
    return resolve_policy(reference.build())


def _joined(hashes: Sequence[str]) -> str:
    import hashlib

    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def _read(
    made: Paper,
    cells: Sequence[_Cell],
    done: dict[str, dict[str, Any]],
    failed: dict[str, dict[str, Any]],
    folder: Path,
) -> None:
    """Fill in the values of the rows from the results of the runs."""
    from gangline.runs.store import Store

    store = Store(folder, "summary")
    for cell in cells:
        values: dict[int, float] = {}
        errors = []
        for seed, spec in cell.specs.items():
            digest = spec.digest
            if digest in failed:
                errors.append(failed[digest])
                continue
            value = done[digest][cell.world.measure]
            values[seed] = value
            made.runs.append(
                {
                    **cell.keys(seed),
                    "digest": digest,
                    "measure": cell.world.measure,
                    "value": value,
                    "log_hash": store.log_hash(digest),
                }
            )
        status, reason = "finished", cell.reason
        if reason:
            status = "does not apply"
        elif errors:
            status, reason = _told(errors, len(cell.specs))
        made.rows.append(Row(*cell[:4], values, status, reason))


def _told(errors: Sequence[dict[str, Any]], runs: int) -> tuple[str, str]:
    """Return the status of a policy with failed runs, and the reason.

    If a Python policy raises a `PolicyError`, the policy does not apply to this world.
    """
    first = errors[0]
    message = str(first["message"]).splitlines()[0] if first["message"] else ""
    if len(errors) == runs and first["error"] == "PolicyError":
        return "does not apply", message
    count = "" if len(errors) == runs else f" in {len(errors)} of {plural(runs, 'seed')}"
    return "failed", f"{first['error']}{count}: {message}"


def _pair(rival: Row, mine: Row) -> Pair:
    names = rival.world, rival.change, mine.policy, rival.policy
    for row in (mine, rival):
        if row.status != "finished":
            return Pair(*names, None, None, None, 0, f"{row.policy} {row.status}")
    both = [seed for seed in mine.values if seed in rival.values]
    logs = [math.log(rival.values[seed] / mine.values[seed]) for seed in both
            if rival.values[seed] > 0.0 < mine.values[seed]]  # fmt: skip
    if len(logs) < len(both) or not both:
        return Pair(*names, None, None, None, len(both), "cannot tell: a value is 0")
    found = statistics.estimate(logs, statistics.ANY)
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return Pair(*names, math.exp(found.mean), low, high, len(both), _verdict(low, high, logs))


def _verdict(low: float | None, high: float | None, logs: Sequence[float]) -> str:
    """Return the verdict for a ratio's interval: above 1, the new policy is better."""
    if not any(logs):
        return "equal"
    if low is None or high is None:
        return f"cannot tell: {plural(len(logs), 'seed')}, but {statistics.LEAST_SEEDS} are needed"
    return "better" if low > 1.0 else "worse" if high < 1.0 else "cannot tell"
