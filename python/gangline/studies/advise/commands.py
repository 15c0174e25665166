"""Writes the commands that check the statements in the advice."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from gangline._support import toml
from gangline.analysis.report.command import CLUSTER_FILE, cluster_argument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.policies.choice import PolicyReference
    from gangline.studies.advise.facts import Facts

__all__ = ["LOG", "Typed", "cluster_file"]

LOG = "jobs.parquet"
"""Name of the log file in the folder of saved advice."""


def cluster_file(servers: int | str) -> str:
    """Return the name of a cluster's file in the folder of saved advice."""
    return f"servers-{servers}.toml"


def _changed(policy: PolicyReference) -> dict[str, Any]:
    """Return a policy's parameters whose values differ from the defaults."""
    from gangline.policies.parameters import PolicyBase

    built = policy.build()
    return built.changed() if isinstance(built, PolicyBase) else dict(policy.params)


class Typed:
    """Builds commands that use the files in the folder of saved advice."""

    def __init__(self, facts: Facts, folder: str) -> None:
        self._facts = facts
        self._folder = folder.rstrip("/")

    def load(self) -> str:
        """Return the command that shows the offered load."""
        lab = self._cluster(self._facts.servers)
        return shlex.join(["gangline", "trace", "info", self._file(LOG), "--cluster", lab])

    def calibration(self) -> str:
        """Return the command that compares the policies with the log."""
        rows = self._facts.calibration.rows
        if not rows:
            return self.load()
        return self._world("validate", self._facts.servers, [one.policy for one in rows])

    def compare(self, servers: int, labels: Sequence[str]) -> str:
        """Return the command that runs the given policies on a number of servers."""
        by = self._facts.user_column or "all"
        command = self._world("compare", servers, list(dict.fromkeys(labels)))
        return f"{command} --by {by}"

    def _world(self, verb: str, servers: int, labels: Sequence[str]) -> str:
        policies = {one.label: one.policy for one in self._facts.contenders}
        chosen = [policies[label].reference for label in labels]
        words = ["gangline", verb, "--trace", self._file(LOG), "--cluster", self._cluster(servers)]
        words += ["--policies", ",".join(one.python or one.name for one in chosen)]
        for one in chosen:
            for key, value in _changed(one).items():
                words += ["--set", f"{one.python or one.name}.{key}={toml.inline(value)}"]
        for name, value in self._facts.run_options.items():
            words += [f"--{name.replace('_', '-')}", f"{value:.15g}"]
        return shlex.join([*words, "--on-infeasible", "drop"])

    def _cluster(self, servers: int) -> str:
        """Return a short form such as 6x8xA100 if it describes the cluster, or else a file name."""
        found = cluster_argument(self._facts.clusters[servers].to_dict())
        return self._file(cluster_file(servers)) if found == CLUSTER_FILE else found

    def _file(self, name: str) -> str:
        return f"{self._folder}/{name}"
