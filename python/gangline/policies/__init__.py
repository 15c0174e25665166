"""Policies: one frozen dataclass each, and the base class for policies in Python.

Examples
--------
>>> from gangline import policies
>>> policies.Las(limits=(200.0, 1000.0)).name
'las'
>>> sorted(policies.registry)[:3]
['dally', 'easy', 'fifo']
"""

from gangline.policies.classic import Easy, Fifo, FifoSkip, Sjf, SjfStrict, Ssf
from gangline.policies.dally import Dally
from gangline.policies.fairness import Themis
from gangline.policies.gandiva import Gandiva
from gangline.policies.parameters import PolicyBase, PolicyConfig
from gangline.policies.preemptive import Gittins, Las, Srsf, Srtf, Tiresias, TiresiasGittins
from gangline.policies.protocol import STEADY, Changes, Plan, Policy, View
from gangline.policies.registry import find, make, parse_setting, presets, registry
from gangline.policies.rounds import (
    GavelAllox,
    GavelCost,
    GavelFifo,
    GavelFifoPerf,
    GavelFtf,
    GavelFtfAgnostic,
    GavelGandiva,
    GavelIsolated,
    GavelLas,
    GavelLasAgnostic,
    GavelMakespan,
    GavelMakespanAgnostic,
    GavelMaxSum,
    GavelWaterFilling,
    GavelWaterFillingAgnostic,
)
from gangline.policies.yarn import YarnCs

__all__ = [
    "STEADY",
    "Changes",
    "Dally",
    "Easy",
    "Fifo",
    "FifoSkip",
    "Gandiva",
    "GavelAllox",
    "GavelCost",
    "GavelFifo",
    "GavelFifoPerf",
    "GavelFtf",
    "GavelFtfAgnostic",
    "GavelGandiva",
    "GavelIsolated",
    "GavelLas",
    "GavelLasAgnostic",
    "GavelMakespan",
    "GavelMakespanAgnostic",
    "GavelMaxSum",
    "GavelWaterFilling",
    "GavelWaterFillingAgnostic",
    "Gittins",
    "Las",
    "Plan",
    "Policy",
    "PolicyBase",
    "PolicyConfig",
    "Sjf",
    "SjfStrict",
    "Srsf",
    "Srtf",
    "Ssf",
    "Themis",
    "Tiresias",
    "TiresiasGittins",
    "View",
    "YarnCs",
    "find",
    "make",
    "parse_setting",
    "presets",
    "registry",
]
