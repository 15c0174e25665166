"""`gangline trace info`, `validate` and `formats`: show or check traces, and list formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline._support import formatting as words
from gangline.cli import _console
from gangline.cli._inputs import Flag, Jobs, Json, MaybeLab, TraceChoice, notes_of

if TYPE_CHECKING:
    from gangline.trace.jobs.table import Trace

_BAR = 32
_SPARK = 48
_STEPS = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400)
_NAMES = ("< 1 s", "< 10 s", "< 1 min", "< 10 min", "< 1 h", "< 6 h", "< 1 d", "< 7 d", "longer")
_SIZES_SHOWN = 12
_LEVELS = " ▁▂▃▄▅▆▇█"
_ALL_ERRORS = 1_000_000
_FIRST = ("origin", "licence", "citation", "epoch", "zone")


def info(
    trace: Jobs, /, *, cluster: MaybeLab = None, json: Json = False, raw: Flag = False,
    choice: TraceChoice | None = None,
) -> int:  # fmt: skip
    """Show the contents of a trace: counts, quantiles, histograms, provenance and notes.

    Parameters
    ----------
    trace
        A file or a generator.
    cluster
        Cluster for which to show the offered load: the trace's work relative to what the cluster's
        GPUs can do.
    json
        Print one JSON document instead of tables.
    raw
        Print every value in full, one per line, in the unit at the end of its key.
    choice
        Options for reading the trace.
    """
    from gangline.runs.inputs import as_cluster
    from gangline.runs.offered_load import by_partition, offered_load, unfinished

    found = (choice or TraceChoice()).read(trace)
    facts = found.info()
    lab = None if cluster is None else as_cluster(cluster)
    load = None if lab is None else offered_load(lab, found)
    if load is not None:
        facts["offered_load"] = load.to_dict()
    if json or raw:
        _console.data(facts, raw=raw)
        return 0
    _console.table(["", "value"], _summary(facts), title=found.path, is_formatted=True)
    if load is not None:
        said = (load.in_words(), by_partition(found), unfinished(found))
        _console.paragraphs(" ".join(filter(None, said)), "")
    _histograms(found)
    metadata = found.metadata
    others = sorted({*metadata} - {*_FIRST} - {*found.notes})
    for name in [*(key for key in _FIRST if key in metadata), *others]:
        _console.write(f"{name}: {metadata[name]}")
    _dropped(facts)
    if lab is not None:
        _console.write(*notes_of(lab))
    if "clamp_s" in metadata:
        clamp = words.duration(float(metadata["clamp_s"]))
        _console.write(
            f"warning: durations are capped at {clamp}; the 99th percentile, the maximum and "
            "any fit to the tail mean little"
        )
    return 0


def validate(
    traces: list[str], /, *, json: Json = False, quiet: Flag = False,
    choice: TraceChoice | None = None,
) -> int:  # fmt: skip
    """Read traces and list all mistakes in them; the exit code is 2 if there are any.

    Parameters
    ----------
    traces
        Files.
    json
        Print one JSON document instead of lines.
    quiet
        Print only what is wrong.
    choice
        Options for reading the traces.
    """
    from gangline.errors import TraceError

    reports: list[dict[str, Any]] = []
    for name in traces:
        try:
            found = (choice or TraceChoice()).read(name, max_errors=_ALL_ERRORS)
        except TraceError as error:
            reports.append({"trace": name, "errors": str(error).split("\n")})
        except OSError as error:
            reports.append({"trace": name, "errors": [f"{name}: {error.strerror or error}"]})
        else:
            reader = found.metadata["reader"]
            report = {"trace": name, "format": reader, "jobs": len(found), "notes": found.notes}
            reports.append({**report, "errors": []})
    if json:
        _console.document(reports)
    else:
        _say_reports(reports, quiet=quiet)
    return 2 if any(report["errors"] for report in reports) else 0


def formats(*, json: Json = False) -> int:
    """List the trace formats: how each is recognised, and whether it can be read and written.

    Parameters
    ----------
    json
        Print one JSON document instead of a table.
    """
    from gangline.trace.formats import FORMATS

    if json:
        _console.document(
            [
                {
                    "name": item.name,
                    "recognised": item.recognised,
                    "notes": item.notes,
                    "options": list(item.options),
                    "reads": bool(item.reader),
                    "writes": bool(item.writer),
                }
                for item in FORMATS
            ]
        )
        return 0
    rows = [
        [
            item.name,
            " ".join(word for word, able in (("r", item.reader), ("w", item.writer)) if able),
            item.recognised,
            item.notes + (f"; options: {', '.join(item.options)}" if item.options else ""),
        ]
        for item in FORMATS
    ]
    _console.table(["format", "", "recognised by", "notes"], rows)
    return 0


def _summary(facts: dict[str, Any]) -> list[list[str]]:
    """Return the rows of the table with formatted values."""
    rows = [
        ["jobs", words.count(facts["jobs"])],
        ["first to last arrival", words.duration(facts["span_s"])],
    ]
    if facts["gpu_hours"]:  # without a cluster, work in iterations has no GPU-hours
        rows.append(["GPU-hours", words.times(facts["gpu_hours"])])
    if "offered_load" in facts:
        load = facts["offered_load"]
        held = f"share of the work in the {load['largest_jobs']} largest jobs"
        rows += [
            ["offered load", words.times(load["load"])],
            [held, words.share(load["largest_share"])],
        ]
        if len(load["by_type"]) > 1:
            rows += [
                [f"offered load, {name}", words.times(one)] for name, one in load["by_type"].items()
            ]
    rows += [
        [name, words.count(facts[name])] for name in ("users", "vcs", "models") if facts.get(name)
    ]
    if facts.get("phases", {}).get("jobs"):
        rows += [
            ["jobs with phases", words.count(facts["phases"]["jobs"])],
            ["phases of a job, max", words.count(facts["phases"]["max"])],
        ]
    for name, word, form in (
        ("duration_s", "duration", words.duration),
        ("gpus", "GPUs", words.count),
    ):
        for point, value in facts.get(name, {}).items():
            rows.append([f"{word}, {point}", form(value)])
    return rows


def _say_reports(reports: list[dict[str, Any]], *, quiet: bool) -> None:
    for report in reports:
        if report["errors"]:
            for line in report["errors"]:
                _console.say(line)
        elif not quiet:
            counts = "".join(f", {name} {count:,}" for name, count in report["notes"].items())
            _console.write(
                f"{report['trace']}: {report['format']}, {report['jobs']:,} jobs{counts}: ok"
            )


def _dropped(facts: dict[str, Any]) -> None:
    from gangline.trace.jobs.notes import DROPPED, explain

    notes = facts["notes"]
    left_out = {name: count for name, count in notes.items() if name in DROPPED}
    total = facts["jobs"] + sum(left_out.values())
    rows = [
        [name, count, f"{count / total:.1%}", explain(name, facts["metadata"])]
        for name, count in left_out.items()
    ]
    if rows:
        _console.table(["left out", "records", "share", "why"], rows)
    for name, count in notes.items():
        if name not in left_out:
            _console.write(f"note: {name} {count:,}: {explain(name, facts['metadata'])}")


def _histograms(trace: Trace) -> None:
    import numpy as np

    if "duration_s" in trace.columns:
        durations = trace.numbers("duration_s")
        durations = durations[~np.isnan(durations)]
        counts = np.bincount(np.searchsorted(_STEPS, durations, "right"), minlength=len(_NAMES))
        _bars("duration", list(zip(_NAMES, counts.tolist(), strict=True)))
    sizes, counts = np.unique(trace.numbers("gpus"), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    chosen = sorted(order[:_SIZES_SHOWN].tolist())
    rows = [(str(sizes[i]), int(counts[i])) for i in chosen]
    rest = int(counts[order[_SIZES_SHOWN:]].sum())
    _bars("GPUs of a job", rows + ([("others", rest)] if rest else []))
    _arrivals(trace.numbers("arrival_s"))


def _arrivals(arrival: Any) -> None:
    import numpy as np

    span = float(arrival[-1] - arrival[0])
    counts = np.histogram(arrival, bins=_SPARK)[0] if span > 0 else np.asarray([len(arrival)])
    _console.write(f"arrivals, first to last ({words.duration(span)}, most {counts.max():,}):")
    _console.write(f"  {_spark(counts)}")
    hours = np.bincount(((arrival - arrival[0]) // 3600 % 24).astype(int), minlength=24)
    _console.write("arrivals by hour since the first:", f"  {_spark(hours)}", "")


def _spark(counts: Any) -> str:
    most = counts.max()
    # A count above 0 always gets a visible bar.
    return "".join(_LEVELS[max(round(8 * count / most), int(count > 0))] for count in counts)


def _bars(title: str, rows: list[tuple[str, int]]) -> None:
    most = max(count for _, count in rows)
    width = max(len(name) for name, _ in rows)
    _console.write(title)
    for name, count in rows:
        bar = "█" * round(_BAR * count / most) if most else ""
        bar = bar or ("▏" if count else "")
        _console.write(f"  {name:>{width}} {bar:<{_BAR}} {count:,}")
    _console.write("")
