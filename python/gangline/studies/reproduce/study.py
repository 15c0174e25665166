"""Defines the parts of a paper's evaluation: set-ups, contenders and claims.

A study is data. `gangline.reproduce.runs` carries out an evaluation, and
`gangline.reproduce.reading` compares its numbers with the paper's claims. To add a paper, write a
module that defines `STUDY`, and list it in `STUDIES`.
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
    """A policy in a study, and its name in tables.

    Parameters
    ----------
    name : str
        Name in tables and in `--policies`.
    policy : str
        Name of a built-in policy or of a preset.
    params : mapping
        Parameters whose values differ from the policy's defaults.
    only : tuple of str
        Workloads on which the contender runs; empty = all. This is meant for contenders that take
        too long on other workloads. A contender that is requested by name runs on every workload.
    cluster : mapping
        Tables that are added to the cluster of every world for this contender, such as the models
        of elastic jobs.

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
    """The saving that a paper claims for its policy, as a share of what other policies need.

    Parameters
    ----------
    measure : str
        Key of the metric in the rows; lower is better.
    words : str
        Name of the metric, such as "makespan".
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
    """The factor by which a paper claims its policy to be better on average.

    Parameters
    ----------
    measure : str
        Key of the metric in the rows of the results.
    words : str
        Name of the metric, such as "makespan".
    times : float, optional
        The published gain as a factor above 1: 1.2 for "1.2 times shorter", 2 for "50 % lower".
        None means that nothing is claimed and that only the ratios are of interest.
    published : str
        The claim in words, including its baseline if the paper names it.
    hero : str
        The contender for which the claim is made.
    against : tuple of str
        Contenders with which the hero is compared; the one that the paper names comes first.
    more : bool
        Whether a larger value is better, as it is for utilisation.
    clusters : tuple of str
        The clusters on which the verdict is based; empty = all. Ratios are shown for all worlds in
        any case.
    is_saving : bool
        Whether the paper states its gain as a saved share, as in "50 % shorter".

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

        A gain is the ratio minus 1, or the saved share 1 - 1 / ratio if the paper states a saved
        share.

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
        """Return the key of the ratios; claims with the same key differ only in what is claimed."""
        return self.measure, self.hero, self.against, self.more, self.clusters


@dataclass(frozen=True)
class Variation:
    """A single changed setting, which shows whether a result depends on it.

    Parameters
    ----------
    group, label : str
        The changed setting and its value, as in "round length" and "90 s".
    params : mapping
        Parameters for the heroes, and for every rival that has all of them.
    options : mapping
        Run options, which all contenders share.
    cluster, workload : str
        The cluster or workload to use; empty = that of the unchanged world.

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
        """Name of the world's folder on disk, without the seed."""
        # a cluster may be named by the path of a file
        return "-".join(self._parts()).replace("/", "_")

    @property
    def title(self) -> str:
        """Name of the world in tables and messages."""
        # only the last part of a path
        return ", ".join(part.rpartition("/")[2] for part in self._parts())

    def _parts(self) -> list[str]:
        return [part for part in (self.cluster, self.network, self.workload) if part]


@dataclass(frozen=True)
class Choice:
    """The part of a study that is run; an empty axis means everything on that axis.

    Parameters
    ----------
    clusters, networks, workloads, policies : sequence of str
        Names from the study's axes; a paper without networks has no network names.
    seeds : sequence of int
        Seeds that draw the workloads; tables show means over them.
    named : bool
        Whether the policies were requested by name; if so, each policy is run in every world.
    quick : bool
        Whether this is the quick part of the study.

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
        """Return every world, with the workload as the innermost loop."""
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
        The contender proposed by the paper.
    contenders : tuple of Contender
        Contenders, in the order of the tables.
    claims : tuple of Claim
        The savings that the paper claims for the hero.
    rivals : tuple of str
        Contenders that resemble those in the paper's comparison.
    fair : str
        The contender against which a claim must hold: a rival that does not have the handicap of
        the paper's rivals.
    ablation : str
        The hero without its main idea; empty if there is no such contender.
    home : str
        The paper's network, on which claims are judged.
    networks : tuple of str
        Names of the networks that can be chosen.
    workloads : mapping of str to str
        Addresses of generators, in which `{seed}` stands for the seed.
    cluster : callable
        Function that builds a cluster from the names of a cluster and a network; it raises
        ClusterError.
    quick, full : Choice
        The parts of the study that are run with `--quick`, and without it.
    options : mapping
        Run options that all contenders share.
    variants : tuple of str
        Contenders that are the hero with other parameters, and therefore not rivals.
    remarks : tuple of str
        Remarks that readers need to understand the numbers.
    factors : tuple of Factor
        The paper's claims about averages, each compared with several rivals; intervals come from
        the seeds.
    measures : tuple of str
        Columns of the tables, as keys of `gangline.reproduce.runs.MEASURES`; empty = the default.
    classes : mapping of str to tuple of str
        Classes of jobs, each defined by its models; each class gets a column with its mean JCT.
    meant_for : mapping of str to tuple of str
        Clusters on which a workload runs; a workload that is not listed here runs on all clusters.
    variations : tuple of Variation
        Variations of the world in `varied`; only one setting is varied at a time.
    varied : tuple of Setting
        Candidate worlds for the variations; the first one that is selected is used.
    elsewhere : tuple of (str, str)
        Claims that a simulation cannot judge, each with the place where it is examined.

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
        """Return the reason why a selection gives no verdicts; empty if it gives verdicts.

        A quick run never gives a verdict. Any other run needs five seeds, or all seeds if the study
        has fewer.
        """
        seeds = len(choice.seeds)
        if seeds < min(LEAST_SEEDS, len(self.full.seeds)):
            return f"{'one seed' if seeds == 1 else f'{seeds} seeds'}: not conclusive"
        return "quick run: not conclusive" if choice.quick else ""

    def settings(self, choice: Choice) -> list[Setting]:
        """Return the selected worlds: each workload with the clusters intended for it."""
        return [
            one
            for one in choice.settings()
            if one.cluster in self.meant_for.get(one.workload, (one.cluster,))
        ]

    def contenders_in(self, setting: Setting, choice: Choice) -> list[str]:
        """Return the names of the contenders that run in a world."""
        return [
            name
            for name in choice.policies
            for one in [self.contender(name)]
            if choice.named or not one.only or setting.workload in one.only
        ]

    def available(self) -> tuple[list[Contender], list[str]]:
        """Return the contenders whose policies exist, and the names of the other contenders."""
        from gangline.policies.registry import presets, registry

        there = [c for c in self.contenders if c.policy in registry or c.policy in presets]
        return there, [c.name for c in self.contenders if c not in there]

    def contender(self, name: str) -> Contender:
        """Return a contender by its name, or any built-in policy by its name.

        Raises
        ------
        PolicyError
            If no contender or policy has this name.
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
        """Complete a selection from the quick or the full set, and check its names.

        Raises
        ------
        GanglineError
            If an axis has no member with this name; the error names the axis and its members.
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
