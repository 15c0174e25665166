"""What a run is made of: clusters, policies and options as users give them, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from gangline._builtin_values import to_builtins
from gangline.errors import ClusterError, OptionError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from gangline.cluster import Cluster
    from gangline.policies.parameters import PolicyBase
    from gangline.policies.protocol import Policy
    from gangline.run_options import RunOptions
    from gangline.trace.jobs.table import ArrowStream, Trace

    Progress: TypeAlias = Callable[[float, int, int], None]
    TraceLike: TypeAlias = Trace | ArrowStream | str | PathLike[str]
    ClusterLike: TypeAlias = Cluster | Mapping[str, Any] | str | PathLike[str]
    PolicyLike: TypeAlias = PolicyBase | Policy | str

__all__ = ["as_cluster", "make_options", "override", "resolve_policy"]


def make_options(values: Mapping[str, Any]) -> RunOptions:
    """Build and check run options from keyword arguments."""
    import msgspec

    from gangline._decode import from_validation_error
    from gangline.run_options import RunOptions

    known = RunOptions.__struct_fields__
    for name in values:
        if name not in known:
            raise OptionError(
                f"unknown run option `{name}`; known: {', '.join(known)}, sharing", field=name
            )
    values = to_builtins(values)
    try:
        options = msgspec.convert(values, RunOptions)
    except msgspec.ValidationError as error:
        made = from_validation_error(error, values, RunOptions, None)
        raise OptionError(f"run option {made}", field=made.key, value=made.value) from None
    options.check()
    return options


def as_cluster(value: ClusterLike) -> Cluster:
    """Accept a cluster, its keys, a TOML file, a node list or the name of a preset."""
    from collections.abc import Mapping
    from pathlib import Path

    from gangline.cluster import Cluster

    if isinstance(value, Cluster):
        return value
    if isinstance(value, str):
        if "/" in value or value.endswith(".toml") or Path(value.partition("::")[0]).is_file():
            return Cluster.from_file(value)
        return Cluster.preset(value)
    if hasattr(value, "__fspath__"):
        return Cluster.from_file(Path(value))
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        message = f"expected a Cluster, its keys, a file or the name of a preset, got {kind}"
        raise ClusterError(message, value=kind)
    return Cluster.from_dict(value)


def override(cluster: Cluster, sharing: Mapping[str, Any] | None) -> Cluster:
    """Return the cluster with some keys of its sharing table replaced."""
    from gangline.cluster import Cluster

    if not sharing:
        return cluster
    data = cluster.to_dict()
    data["sharing"] = {**data.get("sharing", {}), **sharing}
    return Cluster.from_dict(data)


def resolve_policy(
    policy: PolicyLike, params: Mapping[str, Any] | None
) -> tuple[str | Policy, str, dict[str, Any]]:
    """Return the registry name or the user's object, a label, and the parameters."""
    from gangline.policies.parameters import PolicyBase
    from gangline.policies.protocol import Policy, check_declaration
    from gangline.policies.registry import find, make, presets, registry

    if isinstance(policy, str):
        if policy not in registry and policy not in presets:
            from gangline import _core

            if policy in {entry["name"] for entry in _core.registry()}:
                return policy, policy, dict(params or {})  # a policy that only tests use
            find(policy)
        policy = make(policy, params)
    elif params:
        raise PolicyError(
            "`params` is only allowed with a policy name; set the parameters on the object",
            field="params",
        )
    if isinstance(policy, PolicyBase):
        return policy.name, policy.label(), policy.params()
    if isinstance(policy, Policy):
        check_declaration(policy)
        return policy, policy.label(), to_builtins(policy.params())
    kind = type(policy).__name__
    if isinstance(policy, type):
        kind = f"the class {policy.__name__}; pass an object of it: {policy.__name__}()"
    raise PolicyError(
        f"expected a policy name, a configuration or a gangline.Policy object, got {kind}",
        value=kind,
    )
