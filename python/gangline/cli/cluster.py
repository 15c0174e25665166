"""`gangline cluster`: shows clusters, checks their files, and converts node lists to TOML."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from gangline.cli import _console
from gangline.cli._inputs import Json, Lab, Settings, notes_of
from gangline.cli.commands import examples

if TYPE_CHECKING:
    from gangline.cluster.description import Cluster, GpuType

app = App(name="cluster", help="Show, check, convert and list clusters.")

_BLOCKS_SHOWN = 100
_STEPS_SHOWN = 12
_KIND = "cluster"
"""The kind of file, as it is named in the seal."""


@app.command(help_epilogue=examples("cluster show"))
def show(
    cluster: Lab,
    /,
    *,
    format: str | None = None,  # noqa: A002
    columns: str | None = None,
    settings: Settings = None,
    json: Json = False,
) -> int:
    """Show a cluster, and the cost of distance if it has a network.

    Parameters
    ----------
    cluster
        A TOML file, a list of servers, a preset, or 8x8xA100 (8 servers of 8).
    format
        Format of a node list; by default, it is detected from the first line.
    columns
        NATIVE=THEIRS,... for a table of servers with other names, such as gpu=model,gpus=cards.
    settings
        Facts missing from a node list, as KEY=VALUE, for instance gpus=8; repeatable.
    json
        Print one JSON document instead of a table.
    """
    found = _read(cluster, format, settings, columns)
    if json:
        _console.document(found.to_dict())
        return 0
    blocks = found.servers[:_BLOCKS_SHOWN]
    rows = [[block.count, block.gpu, block.gpus, block.place()] for block in blocks]
    _console.table(["servers", "GPU type", "GPUs each", "racks"], rows, title=repr(found))
    if len(found.servers) > len(blocks):
        _console.write(f"and {len(found.servers) - len(blocks):,} more blocks (--json has all)")
    kinds = [_kind(gpu_type) for gpu_type in found.gpu_types]
    _console.table(["GPU type", "memory, GiB", "speed", "price per hour"], kinds)
    steps = [[row.at_s, row.servers] for row in found.capacity or ()]
    if steps:
        _console.table(["from, s", "servers there"], steps[:_STEPS_SHOWN])
        if len(steps) > _STEPS_SHOWN:
            _console.write(f"and {len(steps) - _STEPS_SHOWN} more steps")
    for line in (*_failures(found), *notes_of(found)):
        _console.write(line)
    _show_network(found)
    return 0


def _kind(gpu_type: GpuType) -> list[object]:
    numbers = gpu_type.memory_gb, gpu_type.speed, gpu_type.price_per_hour
    return [gpu_type.name, *("–" if number is None else f"{number:g}" for number in numbers)]


def _failures(cluster: Cluster) -> list[str]:
    """Return a line on the failures of servers, if there are any."""
    failures = cluster.failures
    if failures is None:
        return []
    if failures.mtbf_hours is not None:
        up, down = failures.mtbf_hours, failures.mttr_hours
        return [f"failures: a server is up for {up:g} h and then down for {down:g} h on average"]
    rows = failures.table or ()
    servers = len({row.server for row in rows})
    return [f"failures: {len(rows):,} listed, on {servers:,} of the servers"]


def _show_network(cluster: Cluster) -> None:
    """Print a table of locality factors; each gang size has a column."""
    from gangline.cluster.network import locality_factors, shared_bw

    kept = locality_factors(cluster)
    if not kept:
        return
    sizes = sorted({row["gpus"] for row in kept})
    lines: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in kept:
        place = (row["gpu_type"], row["model"], row["tier"])
        lines.setdefault(place, {})[row["gpus"]] = row["locality"]
    cells = [
        [*place, *(f"{line[size]:.4f}" if size in line else "" for size in sizes)]
        for place, line in lines.items()
    ]
    _console.table(
        ["GPU type", "model", "tier", *(f"{size} GPUs" for size in sizes)],
        cells,
        title="Locality factor (share of its speed that a gang keeps), by model, tier and size",
    )
    shared = shared_bw(cluster)
    if shared is not None:
        _console.write(
            f"gangs that span racks share uplinks of {shared:,.0f} bytes/s; "
            "the table assumes that one gang uses them alone"
        )


@app.command(help_epilogue=examples("cluster validate"))
def validate(*files: str) -> int:
    """Check cluster files one after the other, and stop at the first mistake.

    Parameters
    ----------
    files
        TOML files or node lists of public traces.
    """
    from gangline.cluster.description import Cluster
    from gangline.errors import ClusterError

    if not files:
        raise ClusterError("cluster validate: expected at least one file, got none")
    for file in files:
        _console.write(f"{file}: {Cluster.from_file(file)!r}")
    return 0


@app.command(help_epilogue=examples("cluster convert"))
def convert(
    file: str,
    /,
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    format: str | None = None,  # noqa: A002
    columns: str | None = None,
    settings: Settings = None,
) -> int:
    """Write a node list or a preset as a TOML cluster file for editing.

    Parameters
    ----------
    file
        A list of servers, or the name of a preset.
    out
        File to write. An earlier file is replaced, unless it was edited.
    format
        Format of a node list; by default, it is detected from the first line.
    columns
        NATIVE=THEIRS,... for a table of servers with other names, such as gpu=model,gpus=cards.
    settings
        Facts missing from the list, as KEY=VALUE, for instance gpus=8; repeatable.
    """
    from gangline.errors import ClusterError
    from gangline.files.places import check_place, is_free, unsealed, whole

    if not is_free(out, _KIND):
        message = f"{out}: exists and is not an unchanged cluster of gangline; choose another name"
        raise ClusterError(message, path=str(out))
    check_place(out)
    found = _read(file, format, settings, columns)
    with whole(out, _KIND) as part:
        part.write_text(f"# {unsealed(_KIND)}\n{found.to_toml()}", encoding="utf-8")
    _console.say(f"{found!r} written to {out}")
    for line in notes_of(found):
        _console.say(line)
    return 0


@app.command(help_epilogue=examples("cluster presets"))
def presets(*, json: Json = False) -> int:
    """List the clusters that ship with gangline.

    Parameters
    ----------
    json
        Print one JSON document instead of a table.
    """
    from gangline.cluster.description import Cluster

    found = [Cluster.preset(name) for name in Cluster.presets()]
    if json:
        _console.document([cluster.to_dict() for cluster in found])
        return 0
    rows = [[c.name, c.servers_total, c.gpus_total, ", ".join(c.gpus_by_type())] for c in found]
    _console.table(["preset", "servers", "GPUs", "GPU types"], rows)
    return 0


def _read(
    place: str,
    format: str | None,  # noqa: A002
    settings: list[str] | None,
    columns: str | None,
) -> Cluster:
    from gangline.cluster.description import Cluster
    from gangline.policies.registry import parse_setting
    from gangline.runs.inputs import as_cluster

    options: dict[str, Any] = dict(parse_setting(text) for text in settings or [])
    if format is not None:
        options["format"] = format
    if columns is not None:
        options["columns"] = columns
    if not options:
        return as_cluster(place)
    return Cluster.from_file(place, **options)
