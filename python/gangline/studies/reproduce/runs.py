"""Carries out a study: one run, and one row of metrics, for every world, contender and seed."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gangline._support.formatting import listed
from gangline.errors import GanglineError, InfeasibleJobError
from gangline.runs.comparison import Comparison, check_out, run_name
from gangline.runs.execution import Run, Worlds
from gangline.runs.execution import carry_out as carry_out_runs
from gangline.runs.load import load_result
from gangline.runs.store import Store
from gangline.studies.reproduce import variations
from gangline.studies.reproduce.claims import claim_tables, legend, mix
from gangline.studies.reproduce.figures import Figure, figures
from gangline.studies.reproduce.ratios import (
    Ratio,
    distinct,
    factor_rows,
    ratios,
    shown,
    with_totals,
)
from gangline.studies.reproduce.reading import Saving, readings, savings, sentences
from gangline.studies.reproduce.study import Setting
from gangline.studies.reproduce.variations import Place, places, varied_ratios

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from gangline._support.builtin_values import Json
    from gangline.cluster.description import Cluster
    from gangline.runs.inputs import Progress
    from gangline.runs.options import CheckedOptions
    from gangline.runs.result import Result
    from gangline.studies.reproduce.claims import Table
    from gangline.studies.reproduce.study import Choice, Contender, Factor, Study
    from gangline.trace.reference import TraceReference

__all__ = ["MEASURES", "Reproduction", "carry_out"]

KIND = "reproduction"
_HOUR_S = 3600.0
# Keys of rows, and titles of their columns; seconds are shown as hours.
MEASURES = {
    "makespan_s": "makespan h",
    "jct_mean_s": "JCT mean h",
    "jct_p50_s": "p50 h",
    "jct_p95_s": "p95 h",
    "jct_p99_s": "p99 h",
    "queue_mean_s": "queue h",
    "wait_mean_s": "wait h",
    "comm_mean_s": "comm. h",
    "speed_mean": "JCT alone / JCT",
    "ftf_mean": "rho mean",
    "ftf_p99": "rho p99",
    "ftf_max": "rho max",
    "gpu_utilization": "GPU util.",
    "node_utilization": "node util.",
    "useful_utilization": "useful util.",
    "preemptions": "preempt.",
    "migrations": "moves",
}
_USUAL = (
    "makespan_s", "jct_mean_s", "jct_p95_s", "jct_p99_s", "queue_mean_s", "wait_mean_s",
    "comm_mean_s", "useful_utilization", "preemptions", "migrations",
)  # fmt: skip


class Reproduction:
    """The numbers of a study, and the verdicts on its claims.

    Attributes
    ----------
    study : Study
        The study that was carried out.
    choice : Choice
        The part of the study that was carried out.
    options : dict
        Run options, which all runs share.
    runs : list of dict
        One row per run: cluster, network, workload, policy, seed, and the metrics (times in
        seconds).
    varied : list of dict
        Rows of the same form for the runs with one changed setting; `variation` names the setting.

    Examples
    --------
    >>> from gangline import reproduce
    >>> found = reproduce.run(
    ...     "dally", clusters=["2x4"], workloads=["batch"], networks=["dally-2024"],
    ...     policies=["tiresias-oracle", "dally"], seeds=[0],
    ... )
    >>> len(found.runs), sorted(found.runs[0])[:3]
    (2, ['cluster', 'comm_mean_s', 'finished'])
    """

    def __init__(self, study: Study, choice: Choice, options: Mapping[str, object]) -> None:
        self.study = study
        self.choice = choice
        self.options = dict(options)
        self.runs: list[dict[str, Any]] = []
        self.varied: list[dict[str, Any]] = []

    @property
    def rows(self) -> list[dict[str, Json]]:
        """Means over the seeds, one row per world and contender."""
        groups: dict[tuple[Setting, str], list[dict[str, Any]]] = {}
        for run in self.runs:
            groups.setdefault((_setting(run), run["policy"]), []).append(run)
        rows = []
        for (setting, policy), runs in groups.items():
            row: dict[str, Any] = {**asdict(setting), "policy": policy, "seeds": len(runs)}
            for key in (*MEASURES, *map(_of_class, self.study.classes)):
                row[key] = _mean([run[key] for run in runs])
            rows.append(row)
        return rows

    @property
    def ratios(self) -> list[Ratio]:
        """The ratio between rival and hero for each claim, rival and world."""
        return ratios(self.study, self.runs)

    @property
    def varied_ratios(self) -> list[tuple[Place, Ratio]]:
        """The ratio between rival and hero for each claim, rival and changed setting."""
        found = places(self.study, self.choice)
        return varied_ratios(self.study, found, self.varied)

    @property
    def columns(self) -> dict[str, str]:
        """Key and title of each column in the tables of the worlds."""
        shown_keys = self.study.measures or _USUAL
        classes = {_of_class(name): f"JCT {name} h" for name in self.study.classes}
        return {**{key: MEASURES[key] for key in shown_keys}, **classes}

    @property
    def missing(self) -> list[str]:
        """Contenders in the study whose policies do not exist in this version."""
        return self.study.available()[1]

    @property
    def doubt(self) -> str:
        """The reason why there is no verdict; empty if there is a verdict."""
        return self.study.doubt(self.choice)

    @property
    def claims(self) -> list[dict[str, Json]]:
        """One row per claim and rival: published gain, measured gain, share reached, verdict."""
        saved = savings(self.study, self.rows)
        return [
            *readings(self.study, saved, self.doubt),
            *factor_rows(self.ratios, self.doubt),
        ]

    def claim_tables(self) -> list[Table]:
        """Return one table per claim or, in a study without claims, one per metric."""
        claims = self.claims
        judged = [row for row in claims if row["claimed"] is not None]
        return claim_tables(judged or claims)

    def tables(self) -> list[Table]:
        """Return tables of claims, worlds, ratios and savings: title, column titles and cells."""
        rows: list[dict[str, Any]] = self.rows
        columns = self.columns
        found = self.claim_tables()
        for setting in self.study.settings(self.choice):
            own = [row for row in rows if _setting(row) == setting]
            cells = [[row["policy"], *(_shown(key, row[key]) for key in columns)] for row in own]
            found.append((self._title(setting), ["policy", *columns.values()], cells))
        found += self._factors()
        saved = savings(self.study, rows)
        if saved:
            found.append(self._savings(saved))
        return found

    def _factors(self) -> list[Table]:
        """For each claim, return a table by world and rival, and one by variation and rival."""
        by_world = self.ratios
        found = []
        for factor, *_ in distinct(by_world):
            mine = with_totals([ratio for ratio in by_world if ratio.factor == factor])
            found += self._ratio_table(factor, "world", mine)
        varied = self.varied_ratios
        for factor, *_ in distinct([ratio for _, ratio in varied]):
            mine = [(place.label, ratio) for place, ratio in varied if ratio.factor == factor]
            found += self._ratio_table(factor, "changed alone", mine)
        return found

    def _ratio_table(
        self, factor: Factor, first: str, mine: Sequence[tuple[str, Ratio]]
    ) -> list[Table]:
        """Return a row per world or variation, and a column per rival; no table without rows."""
        against = [name for name in factor.against if any(r.against == name for _, r in mine)]
        cells: list[list[Any]] = []
        for label in dict.fromkeys(label for label, _ in mine):
            own = {ratio.against: shown(ratio) for name, ratio in mine if name == label}
            cells.append([label, *(own.get(name) for name in against)])
        over = "that of each rival" if factor.more else f"that of {factor.hero}"
        whose = factor.hero if factor.more else "each rival"
        title = f"{factor.words} of {whose} over {over}; above 1 {factor.hero} is better"
        if any(ratio.interval for _, ratio in mine):
            title += " (95 % interval)"
        if first != "world":
            (home, *_) = (ratio.setting for _, ratio in mine)
            title += f"; one setting changed, on {home.title if home else ''}"
        return [(title, [first, *against], cells)] if cells else []

    def figures(self) -> list[Figure]:
        """Return the figures of the page; there are none without claims about averages."""
        by_world = self.ratios
        return figures(by_world, self.varied_ratios)

    def _savings(self, saved: Sequence[Saving]) -> Table:
        """Return a row per network and rival: best and mean saving per metric, and a count."""
        by_rival: dict[tuple[str, str], dict[str, Saving]] = {}
        for saving in saved:
            by_rival.setdefault((saving.network, saving.against), {})[saving.measure] = saving
        cells = []
        names = ["network", "against"] if self.study.networks else ["against"]
        for rival, of_rival in by_rival.items():
            line: list[Any] = [*rival[-len(names) :]]
            for claim in self.study.claims:
                one = of_rival.get(claim.measure)
                if one is None:
                    line += [None, None, None]
                else:
                    counts = f"{one.better} of {len(one.shares)}"
                    line += [_percent(one.best), _percent(one.mean), counts]
            cells.append(line)
        titles = list(names)
        for claim in self.study.claims:
            titles += [f"{claim.words}: best %", "mean %", "lower in"]
        return (
            f"Savings of {self.study.hero}, in per cent of what the other policy needs",
            titles,
            cells,
        )

    def head(self) -> list[str]:
        """Say how much was run, and whether it suffices for verdicts."""
        worlds = len(self.study.settings(self.choice))
        seeds = len(self.choice.seeds)
        counts = f"{_count(worlds, 'world')}, {_count(seeds, 'seed')}"
        lines = [f"{self.study.title}. Source: {self.study.source}. {counts}."]
        if self.doubt:
            lines.append(
                f"{self.doubt[0].upper()}{self.doubt[1:]}. The full study may find the opposite: "
                f"run gangline reproduce {self.study.name} without --quick or --seeds."
            )
        return lines

    def sentences(self) -> list[str]:
        """Return notes that explain the numbers."""
        claims = self.claims
        lines = [*legend(claims), *sentences(self.study, savings(self.study, self.rows))]
        found = {ratio.factor for ratio in self.ratios}
        lines += [
            f"{one.published}: no verdict: it needs {one.hero} and {' or '.join(one.against)} "
            "in one world."
            for one in self.study.factors
            if one.times is not None and one not in found
        ]
        lines += mix(claims)
        lines += [f"{claim}. {where}" for claim, where in self.study.elsewhere]
        told = [c for c in self.choice.policies if _is_told(self.study.contender(c).policy)]
        if told and len(told) < len(self.choice.policies):
            known = f"{listed(told)} {'know' if len(told) > 1 else 'knows'} how long jobs run"
            hero = self.study.contender(self.study.hero)
            others = "the others do not" if _is_told(hero.policy) else f"{hero.name} does not"
            lines.append(f"{known}; {others}.")
        if self.missing:
            lines.append(f"Not in this version: {', '.join(self.missing)}.")
        return [*lines, *self.study.remarks]

    def to_dict(self) -> dict[str, Json]:
        """Return all numbers as plain values, none of which depends on wall-clock time."""
        from gangline import _core

        rows = self.rows
        saved = savings(self.study, rows)
        data: dict[str, Any] = {
            "gangline": _core.__version__,
            "study": self.study.name,
            "title": self.study.title,
            "source": self.study.source,
            "clusters": list(self.choice.clusters),
            "networks": list(self.choice.networks),
            "workloads": {w: self.study.workloads[w] for w in self.choice.workloads},
            "policies": {
                name: {"policy": c.policy, "params": dict(c.params)}
                | ({"cluster": dict(c.cluster)} if c.cluster else {})
                for name in self.choice.policies
                for c in [self.study.contender(name)]
            },
            "seeds": list(self.choice.seeds),
            "options": self.options,
            "missing": self.missing,
            "rows": rows,
            "runs": self.runs,
            "savings": [saving.to_dict() for saving in saved],
            "conclusive": not self.doubt,
            "claims": self.claims,
            "ratios": [ratio.to_dict() for ratio in self.ratios],
            "varied": self.varied,
            "varied_ratios": [
                {"variation": place.label, **ratio.to_dict()} for place, ratio in self.varied_ratios
            ],
            "reading": [*self.head(), *self.sentences()],
        }
        return data

    def save(self, path: str | PathLike[str]) -> Path:
        """Write `to_dict` as JSON; the file is either written completely or not at all.

        Raises
        ------
        FileExistsError
            If the file exists and does not contain a reproduction.
        OSError
            If the file cannot be written.
        """
        from gangline.files.json_files import write_sealed

        write_sealed(Path(path), KIND, self.to_dict())
        return Path(path)

    def __repr__(self) -> str:
        worlds = len(self.study.settings(self.choice))
        return f"Reproduction({self.study.name}: {worlds} worlds, {len(self.runs)} runs)"

    def _title(self, setting: Setting) -> str:
        seeds = len(self.choice.seeds)
        averaged = f", mean of {seeds} seeds" if seeds > 1 else ""
        return setting.title + averaged


def carry_out(
    study: Study,
    choice: Choice,
    options: Mapping[str, Any],
    *,
    folder: Path | None = None,
    report: Progress | None = None,
    workers: int = 1,
) -> Reproduction:
    """Run the selected worlds one after another, then the study's variations.

    Parameters
    ----------
    study, choice : Study, Choice
        The study, and the part of it to run, with defaults filled in and all names checked.
    options : mapping
        Run options, which all runs share.
    folder : Path, optional
        Folder in which each run is saved as soon as it ends. Runs are saved by world and seed, and
        variations by digest. A run that was already saved is not repeated.
    report : callable, optional
        Function called with simulated seconds, number of jobs done, and number of jobs in all runs.
    workers : int
        Maximum number of concurrent runs.
    """
    made = Reproduction(study, choice, options)
    here = Worlds()
    plain = _runs(_worlds(study, choice, options))
    varied = _runs(_varied(study, choice, options))
    # All worlds and contenders are checked before the first run, so a mistake costs nothing.
    if options.get("on_infeasible", "error") == "error":
        _check_room(plain, here)
    for run in (*plain, *varied):
        _check_start(run, here)
    if folder is not None:
        _check_out(folder, plain)
    # the first run of each digest, because a variation may repeat another run
    first: dict[str, int] = {}
    every = [*plain, *varied]
    same = [first.setdefault(run.spec.digest, i) for i, run in enumerate(every)]
    once = [every[i] for i in first.values()]
    store = None if folder is None else _Folders(folder, plain)
    progress = _Total(report, sum(len(here.trace(run.spec.trace)) for run in once))
    telling = progress.tell if report else False
    done = carry_out_runs(once, here, store, workers=workers, progress=telling, in_order=True)
    rows: list[dict[str, Any]] = []
    for world, outcomes in groupby(done, key=lambda one: _keys(one.run).world):
        comparison = Comparison(cluster=world.cluster, trace=here.trace(world.trace))
        for one in outcomes:
            result = one.get(store.load if store else None)
            rows.append(_row(study, one.run, result))
            progress.end_run(len(comparison.trace))
            comparison.add(result, keep=False)
        if folder is not None and not world.variation:
            comparison.save(folder / world.folder)
    known = dict(zip(first.values(), rows, strict=True))
    for run, i in zip(every, same, strict=True):
        world, name, _ = _keys(run)
        row = {**known[i], **asdict(world.setting), "policy": name}
        if world.variation:
            made.varied.append({"variation": world.variation, **row})
        else:
            made.runs.append(row)
    return made


class _World(NamedTuple):
    """A setting with a generated workload, and the policies that run in it."""

    setting: Setting
    cluster: Cluster
    own: Mapping[str, dict[str, Any]]  # for each contender, the keys of its cluster
    trace: TraceReference
    options: CheckedOptions
    contenders: Sequence[Contender]
    variation: str  # the label of the variation; empty if nothing is changed

    @property
    def folder(self) -> str:
        """Name of the world's folder on disk."""
        return f"{self.setting.folder}-s{self.options.seed}"


class _Keys(NamedTuple):
    """The keys of a run."""

    world: _World
    name: str  # of the contender
    label: str  # of its policy


class _Folders(Store):
    """The saved runs of a study: worlds in the layout of `compare --out`, variations by digest."""

    def __init__(self, folder: Path, plain: Sequence[Run]) -> None:
        super().__init__(folder)
        self.runs = folder / "varied"
        self._places = {run.spec.digest: folder / _place(run) for run in reversed(plain)}

    def place(self, digest: str) -> Path:
        """Return the folder for a result."""
        return self._places.get(digest) or super().place(digest)

    def load(self, digest: str) -> Result:
        """Return an existing result."""
        return load_result(self.place(digest))

    def add(self, digest: str, result: Result) -> None:
        """Save a result, replacing an earlier one."""
        result.save(self.place(digest))

    def _remove(self, folder: Path) -> None:
        """Keep existing files, because gangline might not have written them."""


def _worlds(study: Study, choice: Choice, options: Mapping[str, Any]) -> Iterator[_World]:
    """Yield each world with each seed."""
    for setting in study.settings(choice):
        contenders = [study.contender(name) for name in study.contenders_in(setting, choice)]
        yield from _drawn(study, choice, setting, contenders, options, "")


def _varied(study: Study, choice: Choice, options: Mapping[str, Any]) -> Iterator[_World]:
    """Yield the world of each variation with each seed."""
    for place in places(study, choice):
        contenders = variations.contenders(study, choice, place.variation)
        given = {**options, **place.variation.options}
        yield from _drawn(study, choice, place.setting, contenders, given, place.label)


def _drawn(
    study: Study,
    choice: Choice,
    setting: Setting,
    contenders: Sequence[Contender],
    options: Mapping[str, Any],
    variation: str,
) -> Iterator[_World]:
    from gangline.cluster.description import Cluster
    from gangline.runs.inputs import make_options
    from gangline.runs.spec import keys_of
    from gangline.trace.read import refer

    cluster = study.cluster(setting.cluster, setting.network)
    usual = keys_of(cluster)
    own = {
        one.name: keys_of(Cluster.from_dict({**cluster.to_dict(), **one.cluster}))
        if one.cluster
        else usual
        for one in contenders
    }
    for seed in choice.seeds:
        trace = refer(study.workloads[setting.workload].format(seed=seed))
        chosen = make_options({**options, "seed": seed})
        yield _World(setting, cluster, own, trace, chosen, contenders, variation)


def _runs(worlds: Iterable[_World]) -> list[Run]:
    """Return the runs of all contenders in the given worlds."""
    from gangline.policies.choice import resolve_policy
    from gangline.runs.spec import RunSpec

    found = []
    for world in worlds:
        for one in world.contenders:
            policy = resolve_policy(one.policy, one.params)
            spec = RunSpec.of(world.own[one.name], world.trace, policy.reference, world.options)
            found.append(Run(spec, keys=_Keys(world, one.name, policy.label)))
    return found


def _keys(run: Run) -> _Keys:
    return cast("_Keys", run.keys)


def _check_room(runs: Iterable[Run], here: Worlds) -> None:
    """Raise an error if a gang needs more GPUs than its cluster has of any one type."""
    for world, _ in groupby(runs, key=lambda run: _keys(run).world):
        most = int(here.trace(world.trace).numbers("gpus").max())
        room = max(world.cluster.gpus_by_type().values())
        if most > room:
            message = (
                f"jobs of {world.setting.workload} that ask for up to {most} GPUs can never run "
                f"here: {world.setting.cluster} has {room} of one type; choose larger `clusters`"
            )
            raise InfeasibleJobError(message, reason="too many GPUs")


def _check_start(run: Run, here: Worlds) -> None:
    """Raise an error if a contender's run could not start in its world."""
    try:
        here.check(run)
    except GanglineError as error:
        world, name, _ = _keys(run)
        error.add_note(f"contender {name} in {world.setting.title}; nothing was run")
        raise


def _check_out(folder: Path, runs: Iterable[Run]) -> None:
    """Raise an error before the runs start if they could not be saved in the folder."""
    for world, group in groupby(runs, key=lambda run: _keys(run).world):
        check_out(folder / world.folder, [_place(run).name for run in group])


def _place(run: Run) -> Path:
    """Return the folder of a run in one of the study's worlds."""
    world, _, label = _keys(run)
    return Path(world.folder, run_name(label, world.options.seed))


def _row(study: Study, run: Run, result: Result) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    world, name, _ = _keys(run)
    jobs = result.jobs
    row: dict[str, Any] = {**asdict(world.setting), "policy": name, "seed": world.options.seed}
    row["jobs"] = result.summary["jobs"]
    row["finished"] = result.summary["finished"]
    known = {
        **result.summary,
        "comm_mean_s": pc.mean(jobs["comm_s"]).as_py(),
        # the mean of hadar's utility `normalised` in this run; 0 for a job that did not finish
        "speed_mean": pc.mean(pc.divide(1.0, jobs["slowdown"]).fill_null(0.0)).as_py(),
    }
    row |= {key: known[key] for key in MEASURES}
    if study.classes:
        models = jobs["model"].cast("string")
        for title, names in study.classes.items():
            is_in = pc.is_in(models, value_set=pa.array(names))
            row[_of_class(title)] = pc.mean(jobs["jct_s"].filter(is_in)).as_py()
    row["log_hash"] = result.log_hash
    return row


def _of_class(name: str) -> str:
    """Return the key for the mean JCT of a job class."""
    return f"jct_{name}_s"


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values; for some seeds, a class may have no jobs."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


class _Total:
    """Counts the finished jobs of all runs, from the counts of the individual runs."""

    def __init__(self, report: Progress | None, jobs: int) -> None:
        self._report = report
        self._jobs = jobs
        self._before = 0

    def tell(self, now_s: float, done: int, _: int) -> None:
        """Add the jobs that the current run has finished so far."""
        if self._report is not None:
            self._report(now_s, self._before + done, self._jobs)

    def end_run(self, jobs: int) -> None:
        """Add the jobs of a finished run to the count."""
        self._before += jobs
        self.tell(0.0, 0, 0)


def _is_told(policy: str) -> bool:
    """Return whether a policy knows how much work jobs have left."""
    from gangline.policies.choice import resolve_policy

    return resolve_policy(policy).knowledge == "remaining"


def _setting(row: dict[str, Any]) -> Setting:
    return Setting(row["cluster"], row["network"], row["workload"])


def _shown(key: str, value: float | None) -> float | None:
    if value is None:
        return None
    # sums of floats leave 1e-15 where no job waited
    return round(value / _HOUR_S, 9) if key.endswith("_s") else value


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _percent(share: float) -> int:
    return round(100.0 * share)
