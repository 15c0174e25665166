"""Draws what all generators can add: users, virtual clusters, noise, and models from a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from gangline.errors import TraceError
from gangline.files.shape import misfit

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

__all__ = ["Extras", "decode", "labels", "models_of"]

_T = TypeVar("_T")
_TABLES = (".json", ".csv", ".parquet", ".gz", ".xz", ".zst")


class Extras(msgspec.Struct, frozen=True, kw_only=True):
    """The additions that were drawn, in the order of the jobs.

    Attributes
    ----------
    columns : dict
        Arrow arrays `user` and `vc`, if requested.
    noise : float64 array, shape (jobs,), or None
        Factors by which the durations are multiplied.
    """

    columns: dict[str, Any]
    noise: npt.NDArray[np.float64] | None

    @classmethod
    def draw(cls, jobs: int, seed: int, users: int, vcs: int, noise: float) -> Extras:
        """Draw users and virtual clusters (Zipf with exponent 1.2), and log-normal noise."""
        from gangline import _core

        drawn = _core.synth_extras(
            {"jobs": jobs, "seed": seed, "users": users, "vcs": vcs, "noise": noise}
        )
        columns: dict[str, Any] = {
            name: labels(drawn[name], drawn[f"{name}_labels"])
            for name in ("user", "vc")
            if name in drawn
        }
        return cls(columns=columns, noise=drawn.get("noise"))


def labels(codes: Any, names: list[str]) -> Any:
    """Return a label column; -1 means no label, for example because no model has this gang size."""
    values = np.asarray(codes).astype(np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.array(values, mask=values < 0), pa.array(names, pa.string())
    )


def models_of(value: object) -> object:
    """Convert models for the core; a throughput table provides labels and gang sizes."""
    from gangline.cluster.tables import ThroughputTable, read_throughput

    if isinstance(value, str) and value.endswith(_TABLES):
        value = read_throughput(value)
    if isinstance(value, ThroughputTable):
        return {model: value.gang_sizes(model) for model in value.models}
    return value


def decode(kind: type[_T], name: str, parameters: Mapping[str, object]) -> _T:
    """Build the parameters of a generator from keywords or from the strings in an address.

    Raises
    ------
    TraceError
        If a parameter is unknown or has the wrong type; the message lists the known parameters.
    """
    fields = {item.name for item in msgspec.structs.fields(kind)}  # type: ignore[arg-type]
    for key in parameters:
        if key not in fields:
            raise TraceError(
                f"{name}: no parameter `{key}`; known: {', '.join(sorted(fields))}",
                path=name,
                column=key,
            )
    try:
        return msgspec.convert(dict(parameters), kind)
    except msgspec.ValidationError:
        found = misfit(dict(parameters), kind)
        if found is None:
            raise TraceError(f"{name}: the values do not fit together", path=name) from None
        got = "nothing" if found.is_missing else repr(found.value)
        message = f"{name}: {found.key}: expected {found.expected}, got {got}"
        raise TraceError(message, path=name, column=found.key) from None
