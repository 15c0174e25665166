"""Defines the parts of a paper's evaluation: set-ups, contenders and claims.

A study is data. `gangline.reproduce.runs` carries it out, and `gangline.reproduce.reading` compares
its numbers with its claims. A new paper is a new module with a `STUDY`, listed in `STUDIES`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangline._support.statistics import LEAST_SEEDS
from gangline.errors import GanglineError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gangline._support.builtin_values import Json
    from gangline.cluster.description import Cluster

__all__ = ["Choice", "Claim", "Contender", "Factor", "Setting", "Study", "Variation"]


@dataclass(frozen=True)
class Contender:
    """A policy with its name in tables.

    Parameters
    ----------
    name : str
        Name in tables and in `--policies`.
    policy : str
        Name of a policy in the registry, or of a preset.
    params : mapping
        Parameters that differ from the policy's defaults.
    only : tuple of str
        Workloads on which the contender runs unless it is requested by name; empty = all. For
        contenders that take too long on other workloads.
    cluster : mapping
        Tables that the cluster of every world gets for this contender in addition to the usual
        ones, such as the models of elastic jobs.

    Examples
    --------
    >>> from gangline import reproduce
    >>> contender = reproduce.study("sjf-bsbf").contender("sjf-bsbf")
    >>> contender.name, contender.policy
    ('sjf-bsbf', 'sjf-bsbf')
    """

    name: str
    policy: str
    params: Mapping[str, Json] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    cluster: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """The saving that a paper claims for its policy, relative to the needs of others.

    Parameters
    ----------
    measure : str
        Key of the rows; less is better.
    words : str
        Name of the measure, such as "makespan".
    share : float
        The published number, such as 0.69 for "up to 69 % lower".

    Examples
    --------
    >>> from gangline import reproduce
    >>> claim = reproduce.study("dally").claims[0]
    >>> claim.words, claim.share
    ('makespan', 0.69)
    """

    measure: str
    words: str
    share: float


@dataclass(frozen=True)
class Factor:
    """The mean factor by which a paper claims its policy to be better.

    Parameters
    ----------
    measure : str
        Key of the rows.
    words : str
        Name of the measure, such as "makespan".
    times : float, optional
        The published number as a factor above 1: 1.2 for "1.2 times shorter", 2 for "50 % lower".
        None means that nothing is claimed, but the ratios are of interest.
    published : str
        The claim in words, with its baseline if the paper names one.
    hero : str
        The contender for which the claim is made.
    against : tuple of str
        Contenders with which it is compared, starting with the one that the paper names.
    more : bool
        Whether a larger value is better, as for utilisation.
    clusters : tuple of str
        The clusters on which the claim is judged; empty = all. Ratios are shown for all worlds.
    is_saving : bool
        Whether the paper states the gain as a saved share, as in "50 % shorter".

    Examples
    --------
    >>> from gangline import reproduce
    >>> factor = reproduce.study("hadar").factors[0]
    >>> factor.words, factor.times, factor.hero
    ('makespan', 1.2, 'hadar-ttd')
    """

    measure: str
    words: str
    times: float | None
    published: str
    hero: str
    against: tuple[str, ...]
    more: bool = False
    clusters: tuple[str, ...] = ()
    is_saving: bool = False

    def share(self, times_better: float) -> float | None:
        """Return the share of the claimed gain that a ratio reaches; None if nothing is claimed.

        A gain is the ratio minus 1, or the saved share 1 - 1 / ratio if the paper states that.

        Examples
        --------
        >>> claim = Factor("jct_mean_s", "mean JCT", 2.0, "twice as short", "a", ("b",))
        >>> claim.share(1.5)
        0.5
        """
        if self.times is None:
            return None
        if self.is_saving:
            return (1.0 - 1.0 / times_better) / (1.0 - 1.0 / self.times)
        return (times_better - 1.0) / (self.times - 1.0)

    @property
    def numbers(self) -> tuple[Json, ...]:
        """Return the key of the ratios; claims with the same key differ only in the factor."""
        return self.measure, self.hero, self.against, self.more, self.clusters


@dataclass(frozen=True)
class Variation:
    """A single changed setting, to see whether a result depends on it.

    Parameters
    ----------
    group, label : str
        The changed setting and its value, as in "round length" and "90 s".
    params : mapping
        Parameters of the heroes, and of any rival that has them all.
    options : mapping
        Run options of all contenders.
    cluster, workload : str
        Replaces the usual value; empty = the usual value.

    Examples
    --------
    >>> from gangline import reproduce
    >>> changed = reproduce.study("hadar").variations[0]
    >>> changed.group, changed.label, changed.params
    ('round', '90 s', {'round_s': 90.0})
    """

    group: str
    label: str
    params: Mapping[str, Json] = field(default_factory=dict)
    options: Mapping[str, Json] = field(default_factory=dict)
    cluster: str = ""
    workload: str = ""


@dataclass(frozen=True)
class Setting:
    """A world of a study: a cluster, a network and a workload.

    Examples
    --------
    >>> from gangline import reproduce
    >>> reproduce.study("dally").settings(reproduce.study("dally").quick)[0]
    Setting(cluster='4x4', network='dally-2024', workload='batch')
    """

    cluster: str
    network: str
    workload: str

    @property
    def folder(self) -> str:
        """Name of the world's folder on disk, without a seed."""
        # a cluster may be a file
        return "-".join(self._parts()).replace("/", "_")

    @property
    def title(self) -> str:
        """Name of the world in tables and messages."""
        # the name of the file of a cluster
        return ", ".join(part.rpartition("/")[2] for part in self._parts())

    def _parts(self) -> list[str]:
        return [part for part in (self.cluster, self.network, self.workload) if part]


@dataclass(frozen=True)
class Choice:
    """The part of a study that is run; an empty axis means all of it.

    Parameters
    ----------
    clusters, networks, workloads, policies : sequence of str
        Names of the study's axes; networks are empty for a paper without networks.
    seeds : sequence of int
        Seeds of the workloads; tables show means.
    named : bool
        Whether the policies were requested by name; each is then run in every world.
    quick : bool
        Whether this is the quick part of a study.

    Examples
    --------
    >>> from gangline import reproduce
    >>> part = reproduce.Choice(workloads=["batch"], seeds=[0])
    >>> part.networks, part.quick
    ((), False)
    """

    clusters: Sequence[str] = ()
    networks: Sequence[str] = ()
    workloads: Sequence[str] = ()
    policies: Sequence[str] = ()
    seeds: Sequence[int] = ()
    named: bool = False
    quick: bool = False

    def settings(self) -> list[Setting]:
        """Return every world, workloads innermost."""
        return [
            Setting(cluster, network, workload)
            for network in self.networks or ("",)
            for cluster in self.clusters
            for workload in self.workloads
        ]


@dataclass(frozen=True)
class Study:
    """A paper's evaluation.

    Parameters
    ----------
    name, title, source : str
        Name as in `gangline reproduce NAME`, a short description, and the paper.
    hero : str
        The contender that the paper proposes.
    contenders : tuple of Contender
        Contenders in the order of the tables.
    claims : tuple of Claim
        The claims of the paper for the hero.
    rivals : tuple of str
        Contenders like those with which the paper compares.
    fair : str
        The contender against which a claim has to hold: a rival without a handicap of the paper's
        rivals.
    ablation : str
        The hero without its main idea; empty if there is none.
    home : str
        The network of the paper, on which claims are judged.
    networks : tuple of str
        Networks to choose from.
    workloads : mapping of str to str
        Addresses of generators, with `{seed}` in place of the seed.
    cluster : callable
        Function from the names of a cluster and a network to the cluster; raises ClusterError.
    quick, full : Choice
        The parts of the study with `--quick` and without it.
    options : mapping
        Run options that all contenders share.
    variants : tuple of str
        Contenders that are the hero with other parameters, and therefore not its rivals.
    remarks : tuple of str
        Remarks that readers of the numbers need.
    factors : tuple of Factor
        The claims of the paper on averages, each against several rivals; intervals come from the
        seeds.
    measures : tuple of str
        Columns of the tables, as keys of `gangline.reproduce.runs.MEASURES`; empty = the default.
    classes : mapping of str to tuple of str
        Classes of jobs by their models, for columns with the mean JCT of each.
    meant_for : mapping of str to tuple of str
        Clusters of a workload; a workload that is not named is run on all clusters.
    variations : tuple of Variation
        Variations, one at a time, in the world that `varied` names.
    varied : tuple of Setting
        Worlds for variations, of which the first chosen one is used.
    elsewhere : tuple of (str, str)
        Claims that a simulation cannot judge, and where they are examined.

    Examples
    --------
    >>> from gangline import reproduce
    >>> study = reproduce.study("hadar")
    >>> study.hero, len(study.contenders), study.source
    ('hadar-ttd', 16, 'arXiv 2503.10918 and its conference version, abstracts')
    """

    name: str
    title: str
    source: str
    hero: str
    contenders: tuple[Contender, ...]
    claims: tuple[Claim, ...]
    rivals: tuple[str, ...]
    fair: str
    ablation: str
    home: str
    networks: tuple[str, ...]
    workloads: Mapping[str, str]
    cluster: Callable[[str, str], Cluster]
    quick: Choice
    full: Choice
    options: Mapping[str, Json] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    factors: tuple[Factor, ...] = ()
    measures: tuple[str, ...] = ()
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    meant_for: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variations: tuple[Variation, ...] = ()
    varied: tuple[Setting, ...] = ()
    elsewhere: tuple[tuple[str, str], ...] = ()

    def doubt(self, choice: Choice) -> str:
        """Return the reason why a choice gives no verdicts; empty if it does.

        A quick run never gives a verdict. Other runs need five seeds, or all seeds of a study that
        has fewer.
        """
        seeds = len(choice.seeds)
        if seeds < min(LEAST_SEEDS, len(self.full.seeds)):
            return f"{'one seed' if seeds == 1 else f'{seeds} seeds'}: not conclusive"
        return "quick run: not conclusive" if choice.quick else ""

    def settings(self, choice: Choice) -> list[Setting]:
        """Return the worlds of a choice: each workload on the clusters for which it is meant."""
        return [
            one
            for one in choice.settings()
            if one.cluster in self.meant_for.get(one.workload, (one.cluster,))
        ]

    def contenders_in(self, setting: Setting, choice: Choice) -> list[str]:
        """Return the names of the contenders that are run in a world."""
        return [
            name
            for name in choice.policies
            for one in [self.contender(name)]
            if choice.named or not one.only or setting.workload in one.only
        ]

    def available(self) -> tuple[list[Contender], list[str]]:
        """Return the contenders whose policies are registered, and the names of the others."""
        from gangline.policies.registry import presets, registry

        there = [c for c in self.contenders if c.policy in registry or c.policy in presets]
        return there, [c.name for c in self.contenders if c not in there]

    def contender(self, name: str) -> Contender:
        """Return a contender, or any policy of the registry by its name.

        Raises
        ------
        PolicyError
            If there is no such contender or policy.
        """
        from gangline.policies.registry import find, registry

        there, _ = self.available()
        for one in there:
            if one.name == name:
                return one
        try:
            find(name)
        except PolicyError as error:
            own = ", ".join(one.name for one in there if one.name not in registry)
            raise PolicyError(f"{error}; of this study: {own}", **vars(error)) from None
        return Contender(name, name)

    def choose(self, given: Choice, *, quick: bool) -> Choice:
        """Complete a choice from the quick or the full set, and check the names.

        Raises
        ------
        GanglineError
            If an axis has no such member; the error names the axis and its members.
        """
        base = self.quick if quick else self.full
        there, _ = self.available()
        chosen = Choice(
            clusters=given.clusters or base.clusters,
            networks=given.networks or base.networks,
            workloads=given.workloads or base.workloads,
            policies=given.policies or [c.name for c in there],
            seeds=given.seeds or base.seeds,
            named=bool(given.policies),
            quick=quick,
        )
        _check("networks", chosen.networks, self.networks)
        _check("workloads", chosen.workloads, list(self.workloads))
        for policy in chosen.policies:
            self.contender(policy)
        for name in ("clusters", "networks", "workloads", "policies", "seeds"):
            values = getattr(chosen, name)
            if len(set(values)) < len(values):
                raise GanglineError(f"--{name}: duplicate name in {', '.join(map(str, values))}")
        if not self.settings(chosen):
            places = ", ".join(
                dict.fromkeys(x for w in chosen.workloads for x in self.meant_for[w])
            )
            raise GanglineError(f"--clusters: these workloads are meant for {places}")
        return chosen


def _check(axis: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            there = ", ".join(known) or "none in this study"
            raise GanglineError(f"--{axis}: no `{name}`; known: {there}")
