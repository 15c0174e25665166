"""Every policy of the slow simulator by its registry name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .dally import Dally
from .gandiva import Gandiva
from .hadar import Hadar
from .hadare import HadarE
from .policies import Easy, Las, Policy, Queue, Repack, ToyRound, ToyShare, ToyTimer
from .pollux import Pollux
from .random_pairs import RandomPairs
from .rounds import Rounds
from .sjf_bsbf import SjfBsbf, SjfFfs
from .themis import Themis
from .toys import ToyFork, ToyMixed
from .world import PolicyError
from .yarn import Yarn

if TYPE_CHECKING:
    from .engine import Reference

REGISTRY: dict[str, type[Policy]] = {
    "fifo": Queue,
    "fifo-skip": Queue,
    "sjf": Queue,
    "sjf-strict": Queue,
    "ssf": Queue,
    "easy": Easy,
    "srtf": Repack,
    "srsf": Repack,
    "las": Las,
    "gittins": Las,
    "tiresias": Las,
    "tiresias-gittins": Las,
    "gandiva": Gandiva,
    "themis": Themis,
    "yarn-cs": Yarn,
    "gavel-las": Rounds,
    "gavel-las-agnostic": Rounds,
    "gavel-ftf": Rounds,
    "gavel-ftf-agnostic": Rounds,
    "gavel-makespan": Rounds,
    "gavel-makespan-agnostic": Rounds,
    "gavel-max-sum": Rounds,
    "gavel-cost": Rounds,
    "gavel-water-filling": Rounds,
    "gavel-water-filling-agnostic": Rounds,
    "gavel-isolated": Rounds,
    "gavel-fifo": Rounds,
    "gavel-fifo-perf": Rounds,
    "gavel-allox": Rounds,
    "gavel-gandiva": RandomPairs,
    "dally": Dally,
    "hadar": Hadar,
    "hadar-paper": Hadar,
    "hadar-ttd": Hadar,
    "hadar-jct": Hadar,
    "hadare": HadarE,
    "hadare-paper": HadarE,
    "hadare-lab": HadarE,
    "hadare-nofork": HadarE,
    "pollux": Pollux,
    "pollux-fixed": Pollux,
    "pollux-no-avoid": Pollux,
    "sjf-ffs": SjfFfs,
    "sjf-ffs-code": SjfFfs,
    "sjf-ffs-consolidated": SjfFfs,
    "sjf-bsbf": SjfBsbf,
    "sjf-bsbf-code": SjfBsbf,
    "sjf-bsbf-consolidated": SjfBsbf,
    "toy-round": ToyRound,
    "toy-timer": ToyTimer,
    "toy-share": ToyShare,
    "toy-fork": ToyFork,
    "toy-mixed": ToyMixed,
}


def make(ref: Reference, name: str, params: dict[str, Any]) -> Policy:
    """Return a policy by its registry name."""
    if name not in REGISTRY:
        raise PolicyError(f"unknown policy {name}", field="policy", value=name)
    return REGISTRY[name](ref, name, params)
