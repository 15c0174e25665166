"""Lists every policy of the slow simulator by its registry name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .dally import Dally
from .gandiva import Gandiva
from .hadar import Hadar
from .hadare import HadarE
from .kai import Kai
from .kueue import Kueue
from .optimus import Optimus
from .policies import Easy, Las, Policy, Queue, Repack, ToyRound, ToyShare, ToyTimer
from .pollux import Pollux
from .random_pairs import RandomPairs
from .rounds import Rounds
from .sjf_bsbf import SjfBsbf, SjfFfs
from .slurm import Slurm
from .themis import Themis
from .toys import ToyFork, ToyMixed
from .world import PolicyError
from .yarn import Yarn

if TYPE_CHECKING:
    from .engine import Reference

KINDS: tuple[type[Policy], ...] = (
    Queue,
    Easy,
    Repack,
    Las,
    Gandiva,
    Themis,
    Yarn,
    Rounds,
    RandomPairs,
    Dally,
    Hadar,
    HadarE,
    Pollux,
    Optimus,
    SjfFfs,
    SjfBsbf,
    Slurm,
    Kueue,
    Kai,
    ToyRound,
    ToyTimer,
    ToyShare,
    ToyFork,
    ToyMixed,
)
REGISTRY = {name: kind for kind in KINDS for name in kind.names}


def make(ref: Reference, name: str, params: dict[str, Any]) -> Policy:
    """Return a policy by its registry name."""
    if name not in REGISTRY:
        message = f"no slow version of {name}; add its name to a class in tests/reference"
        raise PolicyError(message, field="policy", value=name)
    return REGISTRY[name](ref, name, params)
