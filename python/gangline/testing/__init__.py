"""Tests schedulers: laws, random worlds, and the smallest world in which a policy fails.

`check_result` checks the tables of one run. `check_policy` runs a policy in many small worlds, and
checks each run. If a law is broken, they raise a `LawBroken` that names it. `strategies` generates
clusters, traces, worlds and plans for your property tests.

Examples
--------
>>> import gangline as gl
>>> gl.testing.check_policy("fifo")
9 worlds: a job waits in 9 of them, for at most 2 h 4 min; jobs are preempted in 0
"""

from __future__ import annotations

TYPE_CHECKING = False  # names are loaded on first use so that the pytest plug-in costs nothing
if TYPE_CHECKING:
    from gangline.testing.conformance import Counterexample, Coverage, check_policy, counterexample
    from gangline.testing.laws import CLAIMS, LAWS, Law
    from gangline.testing.safety import LAW_NAMES, LawBroken, broken_laws, check_result
    from gangline.testing.worlds import World, small_worlds

__all__ = [
    "CLAIMS",
    "LAWS",
    "LAW_NAMES",
    "Counterexample",
    "Coverage",
    "Law",
    "LawBroken",
    "World",
    "broken_laws",
    "check_policy",
    "check_result",
    "counterexample",
    "small_worlds",
]

_HOMES = {
    "conformance": "Counterexample Coverage check_policy counterexample",
    "laws": "CLAIMS LAWS Law",
    "safety": "LAW_NAMES LawBroken broken_laws check_result",
    "worlds": "World small_worlds",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    import importlib

    if name not in _HOME_OF and name not in ("gallery", "machine", "strategies"):
        raise AttributeError(f"module 'gangline.testing' has no attribute '{name}'")
    module = importlib.import_module(f"gangline.testing.{_HOME_OF.get(name, name)}")
    value: object = module if name not in _HOME_OF else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
