"""Measures a GPU (rates, pairs and starts), and runs real jobs on it.

`gangline.profile.measure` measures the values for the tables that a cluster file refers to.
`gangline.profile.replay` runs the jobs of a trace as a policy would start them.

Examples
--------
>>> import gangline as gl
>>> gl.profile.Model.parse("resnet18@32").batch
32
"""

from gangline.studies.profile.measure import look, measure
from gangline.studies.profile.replay import Replay, draw, replay
from gangline.studies.profile.result import Pair, Profile, Rate, Start, median_interval
from gangline.studies.profile.trainers import MODELS, Model, Trainer

__all__ = [
    "MODELS",
    "Model",
    "Pair",
    "Profile",
    "Rate",
    "Replay",
    "Start",
    "Trainer",
    "draw",
    "look",
    "measure",
    "median_interval",
    "replay",
]
