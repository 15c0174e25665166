"""Describes a run as a value: everything that determines its result, in a canonical form."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import platform
from functools import cache, cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from gangline._support.builtin_values import Json, finite, flaw
from gangline.errors import ResultError
from gangline.files.decode import wrong_shape
from gangline.files.json_files import check_seal, decode
from gangline.policies.choice import PolicyReference, resolve_policy
from gangline.policies.source import code_of
from gangline.runs.result_folder import KIND, SPEC
from gangline.trace.reference import TraceReference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.cluster.description import Cluster
    from gangline.policies.choice import PolicyLike
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.runs.options import CheckedOptions, RunOptions

__all__ = ["PolicyReference", "RunSpec", "cluster_of", "keys_of", "read_spec", "versions"]

_DIGITS = 32  # Our own choice: 128 bits of the SHA-256 are enough to distinguish runs.


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The specification of a run for `gangline.run`; equal specs give byte-identical results.

    The `spec.json` of every result contains a RunSpec; `RunSpec.load` reads it.

    Parameters
    ----------
    trace : TraceReference
        File or generator of the trace, reader options, and SHA-256 of the inputs.
    cluster : dict
        The keys of the cluster's TOML format, including the tables.
    policy : PolicyReference
        Name and all parameters of the policy.
    seed : int
        Seed of the run.
    options : dict
        Run options that differ from their defaults.
    gangline : str
        Version of gangline.
    versions : dict of str to str
        Versions of Python, numpy, pyarrow and highspy; for a policy written in Python, also its
        `module:Class`, and a hash of the code if the code is in a file.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> spec = gl.RunSpec.make(lab, "synth:philly?jobs=20&seed=1&max_gpus=8", "srtf")
    >>> gl.run(spec).summary["finished"]
    20
    >>> gl.RunSpec.from_dict(gl.run(spec).spec) == spec
    True
    """

    trace: TraceReference
    cluster: dict[str, Json]
    policy: PolicyReference
    seed: int
    options: dict[str, Json]
    gangline: str
    versions: dict[str, str]

    @classmethod
    def make(
        cls,
        cluster: ClusterLike,
        trace: TraceLike | TraceReference,
        policy: PolicyLike = "fifo",
        *,
        params: Mapping[str, object] | None = None,
        **options: Unpack[RunOptions],
    ) -> RunSpec:
        """Return the spec of the run that `gangline.simulate` would carry out for these arguments.

        A trace file is only hashed, and a `synth:` address is only parsed; a table in memory is
        read.
        """
        from gangline.runs.inputs import as_cluster, make_options, override, take_tables
        from gangline.trace.read import as_trace, refer

        if isinstance(trace, (str, PathLike)):
            trace = refer(trace)
        elif not isinstance(trace, TraceReference):
            trace = as_trace(trace).reference
        chosen, tables = resolve_policy(policy, params).reference, take_tables(options)
        lab = keys_of(override(as_cluster(cluster), tables))
        return cls.of(lab, trace, chosen, make_options(options))

    @classmethod
    def of(
        cls,
        cluster: dict[str, Json],
        trace: TraceReference,
        policy: PolicyReference,
        options: CheckedOptions,
    ) -> RunSpec:
        """Return the spec for parts that have already been checked.

        `cluster` is the result of `keys_of`, which specs may share. The spec records the current
        versions of gangline and of the libraries on which results depend.
        """
        from gangline import _core

        given = msgspec.to_builtins(options)
        given.pop("seed", None)
        return cls(
            trace=trace,
            cluster=cluster,
            policy=policy,
            seed=options.seed,
            options=given,
            gangline=_core.__version__,
            versions={**versions(), **code_of(policy.python)},
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, object], *, path: str | None = None) -> RunSpec:
        """Return the spec from the contents of a `spec.json`, without the keys that the run added.

        Raises
        ------
        ResultError
            If a key is missing or its value has the wrong type, as in results of earlier versions.
        """
        wrong = flaw({key: value for key, value in data.items() if key != "trace"})
        if wrong is not None:
            raise ResultError(f"{path}: {wrong}" if path else wrong, path=path)
        try:
            return msgspec.convert(dict(data), cls)
        except msgspec.ValidationError:
            made = wrong_shape(dict(data), cls, path)
            raise ResultError(str(made), path=path, key=made.key) from None
        except UnicodeEncodeError:  # only names of files may contain unpaired surrogates
            message = f"{path or 'spec'}: trace: expected text, got an unpaired surrogate"
            raise ResultError(message, path=path, key="trace") from None

    @classmethod
    def load(cls, path: str | PathLike[str]) -> RunSpec:
        """Read a `spec.json`, given its path or its result folder.

        Raises
        ------
        OSError
            If the file does not exist.
        ResultError
            If the file does not contain a spec.
        """
        data, file = read_spec(path)
        return cls.from_dict(data, path=str(file))

    def to_dict(self) -> dict[str, Json]:
        """Return the keys as plain values in the form of `spec.json`."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]

    def to_json(self) -> str:
        """Return the canonical text: sorted keys, no spaces, ASCII."""
        return _canonical(self.to_dict())

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits, which are equal if and only if the specs describe the same run.

        Only the content of a file matters; its path does not change the digest.
        """
        data = {**self.to_dict(), "trace": self.trace.identity}
        return hashlib.sha256(_canonical(data).encode()).hexdigest()[:_DIGITS]

    def with_digest(self, digest: str) -> RunSpec:
        """Set the spec's digest, which is already known, and return the spec."""
        self.__dict__["digest"] = digest
        return self

    def versions_then_and_now(self) -> dict[str, tuple[str, str]]:
        """Return the components whose versions differ from the spec's, with both versions."""
        from gangline import _core

        now = {"gangline": _core.__version__, **versions()}
        then = {"gangline": self.gangline, **self.versions}
        return {
            name: (then.get(name, "none"), now[name]) for name in now if then.get(name) != now[name]
        }

    def now(self, trace: TraceReference, policy: PolicyLike | None = None) -> RunSpec:
        """Return the spec of the same run with the current versions, on a trace with the same jobs.

        The method also fills in values that a spec written by hand may omit.
        """
        chosen = self.policy.resolve(policy).reference
        return self.of(keys_of(self.build_cluster()), trace, chosen, self.build_options())

    def with_segments(self) -> RunSpec:
        """Return the spec of the same run with the option `segments`."""
        return msgspec.structs.replace(self, options={**self.options, "segments": True})

    def build_cluster(self) -> Cluster:
        """Return the cluster."""
        return cluster_of({"cluster": self.cluster})

    def build_options(self) -> CheckedOptions:
        """Return the run options after checking them."""
        from gangline.runs.inputs import make_options

        return make_options({**self.options, "seed": self.seed})


def read_spec(path: str | PathLike[str]) -> tuple[dict[str, Any], Path]:
    """Return the content and the path of a `spec.json`, given its path or its result folder.

    Raises
    ------
    OSError
        If the file does not exist.
    ResultError
        If the file does not contain a JSON object, or if its seal is broken. A spec that a user
        wrote needs no seal, but the spec in a result folder does.
    """
    path = Path(path)
    file = path / SPEC if path.is_dir() else path
    content = file.read_bytes()
    expected = "expected JSON, as in the spec.json of a result folder"
    data = decode(file, content, expected)
    if file != path or "seal" in data:
        advice = f"to run it as an edited spec, remove its key `seal` and name the file {file}"
        check_seal(file, content, data, KIND, advice)
    return data, file


def keys_of(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster in the form that specs contain."""
    return finite(cluster.to_dict())  # type: ignore[no-any-return]


def cluster_of(spec: Mapping[str, Any]) -> Cluster:
    """Return the cluster that the contents of a `spec.json` describe."""
    from gangline.cluster.description import Cluster

    return Cluster.from_dict(_with_nan(spec["cluster"]))


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    import numpy as np
    import pyarrow as pa

    try:
        highspy = importlib.metadata.version("highspy")
    except importlib.metadata.PackageNotFoundError:
        highspy = "none"
    return (
        ("python", platform.python_version()),
        ("numpy", np.__version__),
        ("pyarrow", pa.__version__),
        ("highspy", highspy),
    )


def versions() -> dict[str, str]:
    """Return the versions of the libraries other than gangline on which results depend."""
    return dict(_versions())


def _canonical(data: object) -> str:
    try:
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a number is not finite, which is rare
        return _canonical(finite(data))


def _with_nan(value: Any) -> Any:
    """Return the cluster of a spec with NaN in place of null, because JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _with_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_nan(item) for item in value]
    return math.nan if value is None else value
