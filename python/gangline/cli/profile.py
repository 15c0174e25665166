"""`gangline profile`: measures a GPU, and runs jobs on it as policies would start them."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from gangline.cli import _console, _inputs, complete
from gangline.cli._inputs import (
    Flag,
    Jobs,
    Json,
    MaybeLab,
    MaybeWhole,
    Names,
    Settings,
    TraceChoice,
    Whole,
)
from gangline.cli.commands import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.studies.profile import Profile

app = App(name="profile", help="Measure the GPU of this machine, and run jobs on it.")

_MATRIX_MOST = 12  # the maximum number of models whose slowdown factors fit into a table
_POLICIES = "fifo,sjf-ffs,sjf-bsbf"


@app.command(help_epilogue=examples("profile models"))
def models(*, json: Json = False) -> int:
    """List the models that `gangline profile measure` can train.

    Parameters
    ----------
    json
        Print one JSON document instead of a table.
    """
    from gangline.studies.profile import MODELS

    if json:
        _console.document([{"model": name, **one._asdict()} for name, one in MODELS.items()])
        return 0
    rows = [[name, one.batch, one.needs] for name, one in MODELS.items()]
    _console.table(["model", "full batch", "needs"], rows)
    return 0


@app.command(help_epilogue=examples("profile measure"))
def measure(
    models: Annotated[str | None, Parameter(completer=complete.models)] = None,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    device: Literal["auto", "cuda", "cpu"] = "auto",
    passes: str = "1,2,4",
    seconds: float = 0.5,
    repeats: Whole = 5,
    starts: Whole = 1,
    no_pairs: Flag = False,
    processes: MaybeWhole = None,
    gpu: str | None = None,
    timeout_s: Annotated[float, Parameter(name="--timeout-s")] = 300.0,
    json: Json = False,
) -> int:
    """Measure how fast models train on this machine's GPU, alone and in pairs.

    Parameters
    ----------
    models
        [NAME=]SOURCE[@BATCH], separated by commas; a SOURCE is a model of `gangline profile models`
        or module:function. The default is ten PyTorch networks on a GPU, and otherwise three numpy
        networks.
    out
        Folder for cluster.toml, the tables that it names, runtime.csv and profile.json.
    device
        Device for the training; auto uses a GPU if PyTorch finds one.
    passes
        Numbers of passes per iteration to measure, separated by commas.
    seconds
        Length of each measurement.
    repeats
        Number of measurements of each kind; five or more give confidence intervals.
    starts
        Number of starts of each model, each with a checkpoint and a restart.
    no_pairs
        Measure models only alone.
    processes
        Maximum number of processes in memory at once; 2 needs the least memory. The default is two
        processes of each model.
    gpu
        Name of the GPU type in the tables; by default, the name that the driver reports.
    timeout_s
        Longest wait for a process, in seconds.
    json
        Print the measurements as one JSON document instead of tables.
    """
    import msgspec

    from gangline.files import listed_files
    from gangline.studies.profile import measure as take
    from gangline.studies.profile.result import FILES

    listed_files.check(out, FILES)
    found = take(
        None if models is None else models.split(","),
        device=device,
        passes=_numbers(passes),
        seconds=seconds,
        repeats=repeats,
        starts=starts,
        pairs=not no_pairs,
        processes=processes,
        gpu=gpu,
        timeout_s=timeout_s,
        progress=_console.say,
        save=lambda found: found.write(out),
    )
    found.write(out)
    if json:
        _console.document(msgspec.to_builtins(found))
    else:
        _show(found)
    _console.say(f"saved {out}")
    return 0


@app.command(help_epilogue=examples("profile draw"))
def draw(
    folder: Path,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    count: Whole = 30,
    gap_s: Annotated[float, Parameter(name="--gap-s")] = 1.0,
    shortest_s: Annotated[float, Parameter(name="--shortest-s")] = 0.4,
    longest_s: Annotated[float, Parameter(name="--longest-s")] = 4.0,
    seed: Whole = 0,
) -> int:
    """Draw jobs of the measured models and write them as a trace.

    Parameters
    ----------
    folder
        Folder that `gangline profile measure` has written.
    out
        File to write: .parquet, .arrow or .csv.
    count
        Number of jobs; models take turns.
    gap_s
        Mean gap between arrivals, in seconds; gaps are exponentially distributed.
    shortest_s
        Shortest run time of a job alone, in seconds.
    longest_s
        Longest run time of a job alone, in seconds; run times are log-uniform between the two.
    seed
        The same seed gives the same jobs.
    """
    from gangline.studies.profile import Profile
    from gangline.studies.profile import draw as drawn
    from gangline.trace import write_trace

    trace = drawn(Profile.read(folder), count, gap_s=gap_s, shortest_s=shortest_s,
                  longest_s=longest_s, seed=seed)  # fmt: skip
    write_trace(trace, out)
    _console.say(f"{trace!r} written to {out}")
    return 0


@app.command(help_epilogue=examples("profile run"))
def run(
    folder: Path,
    /,
    *,
    trace: Jobs,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    policies: Names = _POLICIES,
    cluster: MaybeLab = None,
    settings: Settings = None,
    cold: Flag = False,
    first_start_s: Annotated[float, Parameter(name="--first-start-s")] = 0.0,
    tolerance_s: Annotated[float, Parameter(name="--tolerance-s")] = 1.0,
    timeout_s: Annotated[float, Parameter(name="--timeout-s")] = 300.0,
    json: Json = False,
    choice: TraceChoice | None = None,
) -> int:
    """Run the jobs of a trace on this machine's GPU, and compare their times with the prediction.

    A job starts once all the jobs that it waits for in the simulated run have finished.

    Parameters
    ----------
    folder
        Folder that `gangline profile measure` has written.
    trace
        Single-GPU jobs whose models are in the folder.
    out
        Folder for POLICY.csv with the observed times, as `gangline validate` reads them.
    policies
        Names, separated by commas, of policies that let each job run to its end.
    cluster
        One server with one GPU; by default, cluster.toml in the folder.
    settings
        POLICY.KEY=VALUE, or KEY=VALUE for every policy that has the key, or sharing.KEY=VALUE;
        repeatable.
    cold
        Start a job's process only when the job starts. By default, all processes are started before
        the first arrival, so starting a job costs nothing.
    first_start_s
        Time in seconds without progress after a start, for the prediction.
    tolerance_s
        Two starts of a job that differ by at most this many seconds count as the same.
    timeout_s
        Longest wait for a process, in seconds, in addition to 20 times the predicted run time.
    json
        Print one JSON document instead of tables.
    choice
        Options for reading the trace.
    """
    from gangline.files import listed_files
    from gangline.studies.profile import Profile, replay
    from gangline.studies.validate import validate

    chosen, sharing = _inputs.policies(policies, settings)
    lab = str(folder / "cluster.toml") if cluster is None else cluster
    jobs = (choice or TraceChoice()).read(trace)
    options: Any = {"first_start_s": first_start_s, "sharing": sharing}
    done = replay(Profile.read(folder), jobs, chosen, cluster=lab, cold=cold, timeout_s=timeout_s,
                  progress=_console.say, **options)  # fmt: skip
    files = {one.policy: f"{one.policy}.csv" for one in done}
    with listed_files.replacing(out, files.values()) as part:
        for one in done:
            one.write(part / files[one.policy])
    observed = {one.policy: one.observed for one in done}
    found = validate(lab, jobs, chosen, observed, tolerance_s=tolerance_s, **options)
    if json:
        _console.document(found.to_dict())
    else:
        _console.paragraphs(*found.sentences())
        _console.write("")
        for title, titles, cells in found.tables()[: len(found)]:
            _console.table(titles, cells, title=title, is_formatted=True)
    for name in files.values():
        _console.say(f"saved {out / name}")
    return 0


def _numbers(text: str) -> list[int]:
    """Read whole numbers separated by commas, such as `1,2,4`."""
    from gangline.errors import OptionError

    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        message = f"--passes: expected whole numbers separated by commas, got `{text}`"
        raise OptionError(message, field="--passes", value=text) from None


def _show(found: Profile) -> None:
    """Print tables of the rates, the costs of starts and the slowdown factors."""
    from gangline.studies.profile import median_interval

    rows: list[Sequence[object]] = []
    for name, batch, passes in dict.fromkeys((o.model, o.batch, o.passes) for o in found.alone):
        samples = found.samples(name, batch, passes)
        ends = median_interval(samples)
        between = "" if ends is None else f"{ends[0]:.4g} to {ends[1]:.4g}"
        rate = found.rate(name, batch, passes)
        rows.append([name, batch, passes, f"{rate:.4g}", between])
    titles = ["model", "batch", "passes", "iterations per s", "95 % interval"]
    gpu = f"{found.facts['gpu']}: medians of {found.facts['repeats']} windows or more"
    _console.table(titles, rows, title=gpu, numbers=(3, 4))
    costs = [
        [row["model"], *("–" if row[key] is None else f"{row[key]:.3f}" for key in _COSTS)]
        for row in found.runtime()
    ]
    if costs:
        heads = ["model", "first start, s", "restart, s", "stop, s", "checkpoint, s"]
        _console.table(heads, costs, is_formatted=True)
    names = [one.name for one in found.models]
    if found.pairs and len(names) <= _MATRIX_MOST:
        factors = [[one, *(_factor(found, one, other) for other in names)] for one in names]
        title = "Slowdown factor of the row's model with the column's model"
        _console.table(["", *names], factors, title=title, is_formatted=True)
    if found.pairs:
        _console.write("the rates without a co-runner, before and after the pairs, differ by "
                       f"at most {found.drift - 1:.0%}")  # fmt: skip


_COSTS = ("first_start_s", "restart_s", "stop_s", "checkpoint_s")


def _factor(found: Profile, one: str, other: str) -> str:
    factor = found.slowdown(one, other)
    return "–" if factor is None else f"{factor:.2f}"
