"""Computes batch sizes and rates by epoch, for jobs that change their batch size during the run.

The data come from the public simulator of Shockwave (uw-mad-dash/shockwave at e07dd205, MIT;
licence in shockwave_LICENSE.txt): data set sizes, the epochs at which `accordion` and `gns` change
the batch size, and measured rates on V100.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gangline.trace.jobs.phases import Phase

__all__ = ["MODES", "Batches", "batches_of", "phases_of"]

MODES = ("static", "accordion", "gns")
"""The words that the mode column may contain."""

CONSTANT = ("Transformer", "CycleGAN", "A3C")
"""Models whose batch size stays the same in every mode."""

_SAMPLES = {"ResNet-18": 50_000, "ResNet-50": 100_000, "LM": 59_675, "Recommendation": 117_907}

# Steps per second of the gang, by model and GPUs, at each batch size.
_RATES: dict[tuple[str, int], dict[int, float]] = {
    (model, gpus): dict(zip(sizes, rates, strict=True))
    for model, sizes, by_gpus in (
        (
            "ResNet-18",
            (16, 32, 64, 128, 256),
            {
                1: (57.68343332, 42.97497938, 21.43346581, 11.77533504, 6.31952281),
                2: (84.82627579, 66.71361803, 37.35371388, 21.78272981, 12.11372064),
                4: (151.3801453, 130.0623701, 72.91375291, 43.00603401, 23.52941176),
                8: (194.4548054, 184.8699764, 135.0210971, 80.24564995, 44.49489217),
            },
        ),
        (
            "ResNet-50",
            (16, 32, 64, 128),
            {
                1: (10.59726167, 5.89934305, 3.10803185, 1.59789193),
                2: (13.02354657, 6.9694042, 5.9387883, 3.07934633),
                4: (36.88403659, 21.55862069, 11.63777067, 6.09034268),
                8: (69.46666667, 42.15633423, 22.94937638, 11.67535369),
            },
        ),
        (
            "LM",
            (5, 10, 20, 40, 80),
            {
                1: (133.8379591, 94.91094148, 68.05405097, 46.82253256, 21.7129984),
                2: (125.631579, 109.7866078, 90.36947305, 66.97602475, 36.34211305),
                4: (198.8836124, 175.0146628, 146.9299325, 114.9018098, 68.12785388),
                8: (199.282077, 188.8607595, 171.34654034, 150.2517623, 103.3863165),
            },
        ),
        (
            "Recommendation",
            (512, 1024, 2048, 4096, 8192),
            {1: (169.3497942, 107.3231796, 59.26267281, 25.07018091, 11.6316932)},
        ),
    )
    for gpus, rates in by_gpus.items()
}

# For each model, initial batch size and number of GPUs: the epochs from which the batch size is 2,
# 4, 8 and 16 times the initial one.
_DOUBLED: dict[tuple[str, int, int], tuple[int, ...]] = {
    ("ResNet-18", 16, 1): (31, 41, 51, 71),
    ("ResNet-18", 32, 1): (21, 31, 51),
    ("ResNet-18", 64, 1): (11, 31),
    ("ResNet-18", 128, 1): (11,),
    ("ResNet-18", 16, 2): (21, 31, 91, 111),
    ("ResNet-18", 32, 2): (11, 21, 41),
    ("ResNet-18", 64, 2): (21, 41),
    ("ResNet-18", 128, 2): (41,),
    ("ResNet-18", 16, 4): (11, 21, 81, 91),
    ("ResNet-18", 32, 4): (21, 31, 61),
    ("ResNet-18", 64, 4): (11, 61),
    ("ResNet-18", 128, 4): (11,),
    ("ResNet-50", 64, 1): (101,),
    ("ResNet-50", 32, 2): (101, 111),
    ("ResNet-50", 64, 2): (81,),
    ("ResNet-50", 32, 4): (131, 221),
    ("ResNet-50", 64, 4): (191,),
    ("LM", 5, 1): (31, 41, 61, 71),
    ("LM", 10, 1): (11, 21, 41),
    ("LM", 20, 1): (11, 41),
    ("LM", 40, 1): (11,),
    ("LM", 5, 2): (31, 51, 61, 71),
    ("LM", 10, 2): (11, 31, 41),
    ("LM", 20, 2): (31, 41),
    ("LM", 40, 2): (11,),
    ("LM", 5, 4): (11, 31, 71, 91),
    ("LM", 10, 4): (11, 31, 61),
    ("LM", 20, 4): (11, 61),
    ("LM", 40, 4): (61,),
    ("Recommendation", 512, 1): (21, 41, 71, 91),
    ("Recommendation", 1024, 1): (21, 51, 91),
    ("Recommendation", 2048, 1): (21, 41),
    ("Recommendation", 4096, 1): (41,),
}

# Ranges of epochs in which gradients change much; the end of the first range may depend on the
# initial batch size.
_CRITICAL: dict[str, tuple[tuple[int, int], ...]] = {
    "ResNet-18": ((0, 10), (150, 160), (250, 260)),
    "ResNet-50": tuple((epoch, epoch + 10) for epoch in range(0, 600, 30)),
    "LM": ((0, 10),),
    "Recommendation": ((0, 10), (60, 70), (80, 90)),
}
_FIRST_CRITICAL = {
    ("ResNet-18", 256): 20,
    ("Recommendation", 512): 30,
    ("Recommendation", 1024): 30,
    ("Recommendation", 2048): 40,
}


class Batches(NamedTuple):
    """A job as its line describes it: model, initial batch size, GPUs, and steps at that size."""

    model: str
    batch: int
    gpus: int
    steps: float

    @property
    def is_known(self) -> bool:
        """Whether the job's rates at other batch sizes are known."""
        return self.batch in _RATES.get((self.model, self.gpus), ())

    def epoch_steps(self, batch: int) -> int:
        """Return the number of steps in an epoch."""
        return -(-_SAMPLES[self.model] // batch)

    @property
    def epochs(self) -> int:
        """The number of epochs; the last epoch may be incomplete."""
        return math.ceil(self.steps / self.epoch_steps(self.batch))


def batches_of(job: Batches, mode: str) -> list[tuple[int, int]]:
    """Return (first epoch, batch size) for each batch size, in order of use."""
    changes = _accordion(job) if mode == "accordion" else []
    if mode == "gns":
        starts = _DOUBLED.get((job.model, job.batch, job.gpus), ())
        changes = [(epoch, job.batch << i) for i, epoch in enumerate(starts, 1)]
    found = [(0, job.batch)]
    for epoch, batch in changes:
        if epoch < job.epochs and batch != found[-1][1]:
            found.append((epoch, batch))
    return found


def _accordion(job: Batches) -> list[tuple[int, int]]:
    """Return the changes of batch size: to the largest one after 30 % of the epochs.

    In critical epochs, the batch size is the initial one.
    """
    largest = max(_RATES[job.model, job.gpus])
    free = 3 * job.epochs // 10 + 1  # the first epoch e with 10 e > 3 times the epochs
    changes, epoch = [], 0
    for begin, end in _CRITICAL[job.model]:
        stop = _FIRST_CRITICAL.get((job.model, job.batch), end) if begin == 0 else end
        if max(epoch, free) < begin:
            changes.append((max(epoch, free), largest))
        changes.append((begin, job.batch))
        epoch = stop
    return [*changes, (max(epoch, free), largest)]


def phases_of(job: Batches, mode: str) -> list[Phase]:
    """For each batch size, return its start, and the relative rate and size of its steps.

    The start is given as a fraction of the work.

    Examples
    --------
    >>> phases_of(Batches("LM", 40, 1, 1492 * 22), "gns")
    [(0.0, 1.0, 1.0), (0.5, 0.9274593753414008, 2.0)]
    """
    rates = _RATES[job.model, job.gpus]
    own = job.epoch_steps(job.batch)
    return [
        (
            (epoch * own) / job.steps,
            1.0
            if batch == job.batch
            else (own * rates[batch]) / (job.epoch_steps(batch) * rates[job.batch]),
            own / job.epoch_steps(batch),
        )
        for epoch, batch in batches_of(job, mode)
    ]
