"""Gymnasium environments that drive a `gangline.Simulation` (extra `rl`).

Importing this module registers `gangline/Scheduling-v0`.

Examples
--------
>>> import gymnasium
>>> import gangline.rl
>>> env = gymnasium.make(
...     "gangline/Scheduling-v0",
...     cluster="2x4xV100",
...     trace="synth:philly?jobs=20&max_gpus=8",
...     window=8,
... )
>>> observation, info = env.reset(seed=1)
>>> observation["jobs"].shape
(8, 7)
>>> info["action_mask"].tolist()  # the first job may start; nothing else is possible
[1, 0, 0, 0, 0, 0, 0, 0, 1]
"""

from __future__ import annotations

from gangline.errors import MissingExtraError

try:
    from gymnasium.envs.registration import register
except ImportError:
    message = "environments need the library gymnasium: pip install 'gangline[rl]'"
    raise MissingExtraError(message, extra="rl") from None

from gangline.rl.environment import REWARDS, SchedulingEnv

__all__ = ["REWARDS", "SchedulingEnv"]

register(id="gangline/Scheduling-v0", entry_point="gangline.rl:SchedulingEnv")
