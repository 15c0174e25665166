"""Carries a study out: every world, every contender, every seed; one row of means each."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline.errors import GanglineError, InfeasibleJobError
from gangline.reproduce.reading import Saving, readings, savings, sentences
from gangline.reproduce.study import Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from gangline.cluster import Cluster
    from gangline.policies.parameters import PolicyBase
    from gangline.reproduce.study import Choice, Study
    from gangline.result import Result
    from gangline.run_options import RunOptions
    from gangline.simulate import Prepared, Progress
    from gangline.trace.table import Trace

__all__ = ["MEASURES", "Reproduction", "carry_out"]

KIND = "reproduction"
_HOUR_S = 3600.0
# Key of a row, title of its column; seconds are shown as hours.
MEASURES = (
    ("makespan_s", "makespan h"),
    ("jct_mean_s", "JCT mean h"),
    ("jct_p95_s", "p95 h"),
    ("jct_p99_s", "p99 h"),
    ("queue_mean_s", "queue h"),
    ("wait_mean_s", "wait h"),
    ("comm_mean_s", "comm. h"),
    ("useful_utilization", "useful util."),
    ("preemptions", "preempt."),
    ("migrations", "moves"),
)


class Reproduction:
    """The numbers of a study and what they say of its claims.

    Attributes
    ----------
    study : Study
        What was carried out.
    choice : Choice
        Which part of it.
    options : dict
        Run options of all runs.
    runs : list of dict
        One row per run: cluster, network, workload, policy, seed, and the measures; seconds.
    """

    def __init__(self, study: Study, choice: Choice, options: Mapping[str, Any]) -> None:
        self.study = study
        self.choice = choice
        self.options = dict(options)
        self.runs: list[dict[str, Any]] = []

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per world and contender: means over the seeds."""
        groups: dict[tuple[Setting, str], list[dict[str, Any]]] = {}
        for run in self.runs:
            groups.setdefault((_setting(run), run["policy"]), []).append(run)
        rows = []
        for (setting, policy), runs in groups.items():
            row: dict[str, Any] = {**asdict(setting), "policy": policy, "seeds": len(runs)}
            for key, _ in MEASURES:
                row[key] = sum(run[key] for run in runs) / len(runs)
            rows.append(row)
        return rows

    @property
    def missing(self) -> list[str]:
        """Contenders of the study whose policies this version does not have."""
        return self.study.available()[1]

    def tables(self) -> list[tuple[str, list[str], list[list[Any]]]]:
        """Return title, column titles and cells of each world, then of the savings and claims."""
        rows = self.rows
        found = []
        for setting in self.choice.settings():
            own = [row for row in rows if _setting(row) == setting]
            cells = [
                [row["policy"], *(_shown(key, row[key]) for key, _ in MEASURES)] for row in own
            ]
            found.append((self._title(setting), ["policy", *(t for _, t in MEASURES)], cells))
        saved = savings(self.study, rows)
        if saved:
            found.append(self._savings(saved))
        judged = readings(self.study, saved)
        if judged:
            found.append(self._claims(judged))
        return found

    def _savings(self, saved: Sequence[Saving]) -> tuple[str, list[str], list[list[Any]]]:
        """One line per network and rival: best and mean saving of each measure, and how often."""
        by_rival: dict[tuple[str, str], dict[str, Saving]] = {}
        for saving in saved:
            by_rival.setdefault((saving.network, saving.against), {})[saving.measure] = saving
        cells = []
        for (network, against), of_rival in by_rival.items():
            line: list[Any] = [network, against]
            for claim in self.study.claims:
                one = of_rival.get(claim.measure)
                if one is None:
                    line += [None, None, None]
                else:
                    counts = f"{one.better} of {len(one.shares)}"
                    line += [_percent(one.best), _percent(one.mean), counts]
            cells.append(line)
        titles = ["network", "against"]
        for claim in self.study.claims:
            titles += [f"{claim.words}: best %", "mean %", "lower in"]
        return f"What {self.study.hero} saves, in per cent of what the other needs", titles, cells

    def _claims(self, judged: Sequence[dict[str, Any]]) -> tuple[str, list[str], list[list[Any]]]:
        fair = self.study.fair
        titles = ["claim", "published %", "rivals best %", f"{fair} best %", f"{fair} mean %"]
        cells = [
            [
                f"{row['words']} lower by up to",
                _percent(row["claimed"]),
                None if row["rivals_best"] is None else _percent(row["rivals_best"]),
                _percent(row["fair_best"]),
                _percent(row["fair_mean"]),
                row["verdict"],
            ]
            for row in judged
        ]
        title = f"The claims of {self.study.source}, on {self.study.home}"
        return title, [*titles, f"against {fair} it"], cells

    def sentences(self) -> list[str]:
        """Return what the numbers say, and what a reader has to know of them."""
        lines = sentences(self.study, savings(self.study, self.rows))
        told = [c for c in self.choice.policies if _is_told(self.study.contender(c).policy)]
        if told:
            names = ", ".join(told)
            lines.append(f"Told how long jobs run, which {self.study.hero} is not: {names}.")
        if self.missing:
            lines.append(f"Not in this version: {', '.join(self.missing)}.")
        return [*lines, *self.study.remarks]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; nothing in it depends on the clock."""
        from gangline import _core

        rows = self.rows
        saved = savings(self.study, rows)
        return {
            "gangline": _core.__version__,
            "study": self.study.name,
            "title": self.study.title,
            "source": self.study.source,
            "clusters": list(self.choice.clusters),
            "networks": list(self.choice.networks),
            "workloads": {w: self.study.workloads[w] for w in self.choice.workloads},
            "policies": {
                name: {"policy": c.policy, "params": dict(c.params)}
                for name in self.choice.policies
                for c in [self.study.contender(name)]
            },
            "seeds": list(self.choice.seeds),
            "options": self.options,
            "missing": self.missing,
            "rows": rows,
            "runs": self.runs,
            "savings": [saving.to_dict() for saving in saved],
            "claims": readings(self.study, saved),
            "reading": self.sentences(),
        }

    def save(self, path: str | PathLike[str]) -> Path:
        """Write `to_dict` as JSON; the file appears whole or not at all.

        Raises
        ------
        FileExistsError
            If the file is there and is not an earlier reproduction.
        OSError
            If it cannot be written.
        """
        from pathlib import Path

        from gangline._result_folder import write_sealed

        write_sealed(Path(path), KIND, self.to_dict())
        return Path(path)

    def __repr__(self) -> str:
        worlds = len(self.choice.settings())
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
) -> Reproduction:
    """Run the worlds of a choice, one after the other.

    Parameters
    ----------
    study, choice : Study, Choice
        What to run; the choice is complete and checked.
    options : mapping
        Run options of all runs.
    folder : Path, optional
        Where each run is saved as soon as it is done, by world and seed.
    report : callable, optional
        Gets (simulated seconds, jobs done, jobs of all runs).
    """
    from gangline.comparison import check_out, run_name
    from gangline.policies.registry import make
    from gangline.simulate import Prepared, make_options

    made = Reproduction(study, choice, options)
    drawn = _drawn(study, choice)
    # All worlds and contenders before the first run: a mistake in the last one costs nothing.
    clusters = {s: study.cluster(s.cluster, s.network) for s in choice.settings()}
    if options.get("on_infeasible", "error") == "error":
        for setting, cluster in clusters.items():
            _check_room(setting, cluster, [drawn[setting.workload, seed] for seed in choice.seeds])
    contenders = [study.contender(name) for name in choice.policies]
    policies = {one.name: make(one.policy, one.params) for one in contenders}
    worlds = [
        _World(
            setting,
            Prepared(cluster, drawn[setting.workload, seed]),
            make_options({**options, "seed": seed}),
        )
        for setting, cluster in clusters.items()
        for seed in choice.seeds
    ]
    for world in worlds:
        _check_contenders(world, policies)
        if folder is not None:
            names = [run_name(policy.label(), world.options.seed) for policy in policies.values()]
            check_out(folder / world.folder, names)
    jobs = sum(len(world.prepared.trace) for world in worlds)
    progress = _Total(report, jobs * len(policies))
    for world in worlds:
        _one_world(made, world, policies, folder=folder, progress=progress)
    return made


class _World(NamedTuple):
    """A setting with a workload drawn, in the form of the core; the seed is in the options."""

    setting: Setting
    prepared: Prepared
    options: RunOptions

    @property
    def folder(self) -> str:
        """Name of its folder on disk."""
        return f"{self.setting.folder}-s{self.options.seed}"


def _check_room(setting: Setting, cluster: Cluster, traces: Sequence[Trace]) -> None:
    """Refuse a cluster that is smaller than a gang of its workload."""
    most = max(int(trace.numbers("gpus").max()) for trace in traces)
    room = max(cluster.gpus_by_type().values())
    if most > room:
        message = (
            f"jobs of {setting.workload} that ask for up to {most} GPUs can never run here: "
            f"{setting.cluster} has {room} of one type; choose larger `clusters`"
        )
        raise InfeasibleJobError(message, reason="too many GPUs")


def _check_contenders(world: _World, policies: Mapping[str, PolicyBase]) -> None:
    """Refuse a contender that would not start in a world."""
    for name, policy in policies.items():
        try:
            world.prepared.check(policy, world.options)
        except GanglineError as error:
            error.add_note(f"contender {name} in {world.setting.title}; nothing was run")
            raise


def _one_world(
    made: Reproduction,
    world: _World,
    policies: Mapping[str, PolicyBase],
    *,
    folder: Path | None,
    progress: _Total,
) -> None:
    """Run every contender on one workload, as a comparison of its own."""
    from gangline.comparison import Comparison, run_name

    setting, prepared, options = world
    comparison = Comparison(cluster=prepared.cluster, trace=prepared.trace)
    place = None if folder is None else folder / world.folder
    for name, policy in policies.items():
        result = prepared.run(policy, options, progress=progress.of_run())
        made.runs.append(_row(setting, name, options.seed, result))
        comparison.add(result, keep=False)
        if place is not None:
            result.save(place / run_name(result.policy, result.seed))
        progress.end_run(len(prepared.trace))
    if place is not None:
        comparison.save(place)


def _drawn(study: Study, choice: Choice) -> dict[tuple[str, int], Trace]:
    from gangline.trace import read_trace

    return {
        (name, seed): read_trace(study.workloads[name].format(seed=seed))
        for name in choice.workloads
        for seed in choice.seeds
    }


def _row(setting: Setting, name: str, seed: int, result: Result) -> dict[str, Any]:
    import pyarrow.compute as pc

    row: dict[str, Any] = {**asdict(setting), "policy": name, "seed": seed}
    row["jobs"] = result.summary["jobs"]
    row["finished"] = result.summary["finished"]
    known = {**result.summary, "comm_mean_s": pc.mean(result.jobs["comm_s"]).as_py()}
    row |= {key: known[key] for key, _ in MEASURES}
    row["log_hash"] = result.log_hash
    return row


class _Total:
    """One count of jobs over all runs, from the counts of each."""

    def __init__(self, report: Progress | None, jobs: int) -> None:
        self._report = report
        self._jobs = jobs
        self._before = 0

    def of_run(self) -> Callable[[float, int, int], None] | bool:
        """Return what one run reports to."""
        report = self._report
        if report is None:
            return False
        before = self._before
        return lambda now_s, done, _: report(now_s, before + done, self._jobs)

    def end_run(self, jobs: int) -> None:
        """Count the jobs of a run that is over."""
        self._before += jobs
        if self._report is not None:
            self._report(0.0, self._before, self._jobs)


def _is_told(policy: str) -> bool:
    """Whether a policy knows how much work is left."""
    from gangline import _core
    from gangline.policies.registry import find

    name = find(policy).name
    return any(e["name"] == name and e["knowledge"] == "remaining" for e in _core.registry())


def _setting(row: dict[str, Any]) -> Setting:
    return Setting(row["cluster"], row["network"], row["workload"])


def _shown(key: str, value: float) -> float:
    # sums of floats leave 1e-15 where nobody waited
    return round(value / _HOUR_S, 9) if key.endswith("_s") else value


def _percent(share: float) -> int:
    return round(100.0 * share)
