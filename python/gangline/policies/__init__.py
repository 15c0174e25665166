"""Provides a frozen dataclass for each policy, and the base class for policies in Python.

Examples
--------
>>> from gangline import policies
>>> policies.Las(limits=(200.0, 1000.0)).name
'las'
>>> sorted(policies.registry)[:3]
['dally', 'easy', 'fifo']
"""

from gangline.policies import _generated
from gangline.policies._generated import *  # noqa: F403 - one class per policy of the registry
from gangline.policies.parameters import PolicyBase
from gangline.policies.protocol import STEADY, Changes, Plan, Policy, View
from gangline.policies.registry import find, make, parse_setting, presets, registry

__all__ = [
    "STEADY",
    "Changes",
    "Plan",
    "Policy",
    "PolicyBase",
    "View",
    "find",
    "make",
    "parse_setting",
    "presets",
    "registry",
]
__all__ += _generated.__all__
