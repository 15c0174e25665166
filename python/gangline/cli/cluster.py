"""`gangline cluster`: look at clusters and check their files."""

from __future__ import annotations

from cyclopts import App

from gangline.cli import _console
from gangline.cli._inputs import Json  # noqa: TC001 - cyclopts reads the annotations

app = App(name="cluster", help="Show, check and list clusters.")


@app.command
def show(cluster: str, /, *, json: Json = False) -> int:
    """Show a cluster.

    Parameters
    ----------
    cluster
        A TOML file or the name of a preset.
    json
        Print one JSON document instead of a table.
    """
    from gangline.simulate import as_cluster

    found = as_cluster(cluster)
    if json:
        _console.document(found.to_dict())
        return 0
    rows = [[block.count, block.gpu, block.gpus, str(block.rack)] for block in found.servers]
    _console.table(["servers", "GPU type", "GPUs each", "rack"], rows, title=repr(found))
    return 0


@app.command
def validate(*files: str) -> int:
    """Check cluster files; says where the first mistake is.

    Parameters
    ----------
    files
        TOML files.
    """
    from gangline.cluster import Cluster
    from gangline.errors import ClusterError

    if not files:
        raise ClusterError("cluster validate: expected at least one TOML file, got none")
    for file in files:
        _console.write(f"{file}: {Cluster.from_toml(file)!r}")
    return 0


@app.command
def presets(*, json: Json = False) -> int:
    """List the clusters that ship with gangline.

    Parameters
    ----------
    json
        Print one JSON document instead of a table.
    """
    from gangline.cluster import Cluster

    found = [Cluster.preset(name) for name in Cluster.presets()]
    if json:
        _console.document([cluster.to_dict() for cluster in found])
        return 0
    rows = [[c.name, c.servers_total, c.gpus_total, ", ".join(c.gpus_by_type())] for c in found]
    _console.table(["preset", "servers", "GPUs", "GPU types"], rows)
    return 0
