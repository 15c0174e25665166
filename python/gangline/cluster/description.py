"""Describes clusters: GPU types, servers, racks, and the events that change them.

Examples
--------
>>> import gangline as gl
>>> cluster = gl.Cluster.preset("tiresias-60")
>>> cluster.gpus_total
16
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from gangline._support import toml
from gangline._support.builtin_values import flaw, to_builtins
from gangline._support.formatting import did_you_mean
from gangline._support.safe import safe
from gangline.cluster.checks import check, load_tables
from gangline.cluster.elastic_checks import load_elastic
from gangline.cluster.runtime import load_runtime
from gangline.cluster.schema import (
    CapacityRow,
    ClusterKeys,
    FailureRow,
    Failures,
    GpuType,
    InterferenceRow,
    ModelTraffic,
    Network,
    ServerBlock,
    Sharing,
    Throughput,
    ThroughputRow,
    TierLinks,
)
from gangline.cluster.sharing_checks import load_sharing
from gangline.errors import ClusterError
from gangline.files.decode import wrong_shape

if TYPE_CHECKING:
    from os import PathLike

    from gangline.cluster.schema import ClusterDict

__all__ = [
    "CapacityRow",
    "Cluster",
    "FailureRow",
    "Failures",
    "GpuType",
    "InterferenceRow",
    "ModelTraffic",
    "Network",
    "ServerBlock",
    "Sharing",
    "Throughput",
    "ThroughputRow",
    "TierLinks",
    "read_cluster",
]

_BLOCKS_SHOWN = 20  # the maximum number of blocks that a notebook shows
_HEAD_BYTES = 64 * 1024


class Cluster(ClusterKeys, frozen=True, kw_only=True):
    """An immutable GPU cluster; it is checked when it is created.

    Create a cluster with `Cluster.from_toml`, `Cluster.preset`, `Cluster.homogeneous` or
    `Cluster.from_dict`.

    Parameters
    ----------
    name : str
        Name of the cluster, as shown in results.
    gpu_types : tuple of GpuType
        GPU types; ties between types are broken in this order.
    servers : tuple of ServerBlock
        Blocks of servers; servers are numbered from 0 in this order.
    network, failures, throughput, sharing, runtime, elastic, iter_time : optional
        Optional tables with, in this order: locality factors; outages; rates; slowdown factors;
        run-time noise and start costs; models of elastic jobs; iteration times.
    capacity : tuple of CapacityRow, optional
        Number of servers over time; before the first row, all servers are up. Removing a server has
        the same effect as a failure. The servers with the highest numbers are removed first.
    notes : dict of str to int
        Counts of the assumptions that were made, and of the rows that were left out, when a node
        list was read.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4, gpu="A100")
    >>> lab
    Cluster('2x4 A100', 2 servers in 1 rack, 8 GPUs: 8 A100)
    >>> gl.Cluster.preset("pollux-64").gpu_types[0].name
    'T4'
    """

    @classmethod
    def from_toml(cls, path: str | Path) -> Cluster:
        """Read a cluster from a TOML file.

        Parameters
        ----------
        path : str or Path
            Path of the file. Paths in the file are relative to the folder that contains the file.

        Raises
        ------
        ClusterError
            If the text is not TOML, or if a key is unknown, missing or out of range; the message
            names the file and the key path.
        OSError
            If the file cannot be read.
        """
        path = Path(path)
        try:
            data = toml.loads(path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            message = f"{path}: byte {error.start}: expected UTF-8 text"
            raise ClusterError(message, path=str(path)) from None
        except ValueError as error:
            raise ClusterError(f"{path}: expected TOML: {error}", path=str(path)) from None
        return cls.from_dict(data, path=str(path))

    @classmethod
    def from_dict(cls, data: Mapping[str, object], *, path: str | None = None) -> Cluster:
        """Build a cluster from a mapping with the keys of the TOML format.

        Examples
        --------
        >>> lab = {
        ...     "gpu_types": [{"name": "V100", "memory_gb": 16}],
        ...     "servers": [{"count": 5, "gpu": "V100", "gpus": 4, "rack": "fill:2"}],
        ... }
        >>> Cluster.from_dict(lab)
        Cluster('cluster', 5 servers in 3 racks, 20 GPUs: 20 V100)
        """
        if not isinstance(data, Mapping):
            kind = type(data).__name__
            message = f"expected the keys of a cluster as a mapping, got {kind}"
            raise ClusterError(message, path=path, value=kind)
        wrong = flaw(data)
        if wrong is not None:
            raise ClusterError(f"{path}: {wrong}" if path else wrong, path=path)
        data = to_builtins(data)
        try:
            cluster = msgspec.convert(data, cls)
        except msgspec.ValidationError:
            raise wrong_shape(data, cls, path) from None
        cluster = load_elastic(load_runtime(load_sharing(cluster, path), path), path)
        check(cluster, path)
        return load_tables(cluster, path)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        format: str | None = None,  # noqa: A002
        **options: object,
    ) -> Cluster:
        """Read a cluster from a TOML file or from the node list of a public trace.

        Parameters
        ----------
        path : str or Path
            A TOML file, or a format that `gangline.read_cluster` knows.
        format, **options
            Arguments of `read_cluster`; not allowed with TOML.
        """
        if format is None and _is_toml(Path(path)):
            if options:
                raise ClusterError(f"{path}: a TOML file takes no options", key=next(iter(options)))
            return cls.from_toml(path)
        return read_cluster(path, format=format, **options)

    @classmethod
    def preset(cls, name: str) -> Cluster:
        """Return a cluster that ships with gangline; `Cluster.presets()` lists the names."""
        if name not in cls.presets():
            hint = did_you_mean(name, cls.presets(), "gangline cluster presets")
            raise ClusterError(f"no cluster preset `{name}`{hint}", key=name)
        return cls.from_toml(_preset_folder() / f"{name}.toml")

    @staticmethod
    def presets() -> list[str]:
        """Return the names of the clusters that ship with gangline.

        Examples
        --------
        >>> "venus" in Cluster.presets()
        True
        """
        return sorted(path.stem for path in _preset_folder().glob("*.toml"))

    @classmethod
    def homogeneous(
        cls,
        *,
        servers: int,
        gpus: int,
        gpu: str = "GPU",
        memory_gb: float = 16.0,
        servers_per_rack: int | None = None,
        name: str | None = None,
    ) -> Cluster:
        """Build a cluster of identical servers.

        Parameters
        ----------
        servers : int
            Number of servers, >= 1.
        gpus : int
            GPUs per server, 1 to 64.
        gpu : str
            Name of the GPU type.
        memory_gb : float
            Memory per GPU in GiB.
        servers_per_rack : int, optional
            Servers per rack; by default, all servers are in one rack.
        name : str, optional
            Name of the cluster; by default, it is derived from the numbers.

        Examples
        --------
        >>> Cluster.homogeneous(servers=64, gpus=8, gpu="V100", servers_per_rack=16)
        Cluster('64x8 V100', 64 servers in 4 racks, 512 GPUs: 512 V100)
        """
        servers, gpus = to_builtins(servers), to_builtins(gpus)
        block: dict[str, Any] = {"count": servers, "gpu": gpu, "gpus": gpus}
        if servers_per_rack is not None:
            block["rack"] = f"fill:{servers_per_rack}"
        return cls.from_dict(
            {
                "name": name or f"{servers}x{gpus} {gpu}",
                "gpu_types": [{"name": gpu, "memory_gb": memory_gb}],
                "servers": [block],
            }
        )

    def __hash__(self) -> int:
        # The other fields may contain mappings. Equal clusters have equal values in these three
        # fields.
        return hash((self.name, self.gpu_types, self.servers))

    def to_dict(self) -> ClusterDict:
        """Return the keys of the TOML format, which `Cluster.from_dict` reads."""
        data = {"name": self.name, **msgspec.to_builtins(self)}
        return cast("ClusterDict", data)  # a test compares its keys with those of the type

    def to_toml(self) -> str:
        """Return the cluster as TOML text."""
        return toml.dumps(self.to_dict())

    def __repr__(self) -> str:
        kinds = ", ".join(f"{count} {name}" for name, count in self.gpus_by_type().items())
        place = f"{_plural(self.servers_total, 'server')} in {_plural(self.racks_total, 'rack')}"
        gpus = _plural(self.gpus_total, "GPU")
        return safe(f"Cluster({self.name!r}, {place}, {gpus}: {kinds})")

    def _repr_html_(self) -> str:
        from gangline._support.html import table

        shown = self.servers[:_BLOCKS_SHOWN]
        rows: list[list[object]] = [[b.count, b.gpu, b.gpus, b.place()] for b in shown]
        if len(self.servers) > len(shown):
            rows.append([f"and {len(self.servers) - len(shown):,} more blocks", "", "", ""])
        return table(["servers", "GPU type", "GPUs each", "racks"], rows, caption=repr(self))


def read_cluster(
    path: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    **options: object,
) -> Cluster:
    r"""Read a cluster from a table, or from a node list of a public trace, Slurm or Kubernetes.

    Parameters
    ----------
    path : str or path
        A file, which may be compressed (`.gz`, `.xz`, `.zst`) or a member of an archive
        (`archive.tar.gz::member`).
    format : str, optional
        Name of the format; by default, it is detected from the first line.
    **options
        name, gpu, gpus, memory_gb, servers_per_rack, vc, start, columns, up_only: see
        `gangline.cluster.node_lists.options.FileOptions`.

    Returns
    -------
    Cluster
        Its `notes` count the assumptions and the rows that were left out.

    Raises
    ------
    ClusterError
        If the format of the file is unknown, or if a row is invalid; the error names the file, the
        line and the column.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> import gangline as gl
    >>> from pathlib import Path
    >>> text = "NodeName=n[1-4] CPUs=32 Gres=gpu:a100:4\n"
    >>> Path("nodes.conf").write_text(text)
    40
    >>> gl.read_cluster("nodes.conf")
    Cluster('nodes', 4 servers in 1 rack, 16 GPUs: 16 a100)
    """
    from gangline.cluster.node_lists.formats import read_keys

    keys, name = read_keys(path, format=format, **options)
    return Cluster.from_dict(keys, path=name)


def _is_toml(path: Path) -> bool:
    """Return whether a file is TOML, judging by its suffix and, if necessary, its first bytes."""
    if path.suffix == ".toml" or not path.is_file():
        return path.suffix == ".toml"
    from gangline.cluster.node_lists.exports import NODE_NAME, PARTITIONS

    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if NODE_NAME.search(head) or PARTITIONS.match(head):  # Slurm also writes equals signs
        return False
    lines = head.strip().splitlines()
    try:
        first = lines[0].decode("utf-8-sig") if lines else ""
    except UnicodeDecodeError:  # for example, a compressed list, which may contain any byte
        return False
    return first.startswith(("#", "[")) or "=" in first


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _preset_folder() -> Path:
    return Path(__file__).with_name("presets")
