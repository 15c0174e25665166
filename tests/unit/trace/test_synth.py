"""Tests synthetic traces: the engine against a plain version, the published shapes, refusals.

The twin below is written from the description of the streams (random numbers by
``tests/reference/philox.py``); it also made the golden hashes of
``rust/synth/src/tests.rs``.
"""

from __future__ import annotations

import heapq
import math
import runpy
from bisect import bisect_right
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gangline as gl
from gangline import _core
from meta.house import ROOT
from reference import philox
from reference.philox import Purpose
from refusals import refused

LOADS = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "synth_loads.py")))
POINTS = [0.01, 0.05, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.00]
# The upper bound of each class, and its seconds at the points.
DURATIONS: dict[str, list[tuple[float, list[int]]]] = {
    "philly": [
        (1, [30, 52, 122, 1117, 2716, 8512, 19137, 135404, 3256045]),
        (4, [6, 11, 21, 367, 45476, 166199, 233725, 748678, 2750674]),
        (8, [33, 125, 1871, 23683, 173288, 352409, 525631, 1066894, 4628226]),
        (math.inf, [2, 35, 566, 21137, 104218, 252560, 446126, 1152387, 1710643]),
    ],
    "helios": [
        (1, [1, 6, 67, 190, 1179, 8425, 33380, 172800, 172800]),
        (4, [1, 6, 63, 193, 1840, 43915, 122006, 172800, 172800]),
        (8, [1, 8, 98, 216, 1150, 25590, 65849, 172800, 172800]),
        (math.inf, [1, 5, 65, 248, 2412, 49244, 107624, 172800, 172800]),
    ],
    "pai": [(math.inf, [19, 29, 131, 618, 3699, 12201, 22752, 66192, 172800])],
}
GANGS = {
    "philly": {2: 0.0221, 4: 0.0227, 8: 0.0200, 16: 0.0024, 32: 0.0008},
    "helios": {
        2: 0.0554,
        4: 0.0725,
        8: 0.2515,
        16: 0.0415,
        24: 0.009,
        32: 0.0272,
        64: 0.0045,
        128: 0.0055,
    },
    "pai": {
        2: 0.031,
        3: 0.015,
        4: 0.014,
        5: 0.017,
        8: 0.012,
        10: 0.042,
        16: 0.017,
        20: 0.025,
        32: 0.018,
        50: 0.024,
        100: 0.005,
    },
}
UNIFORM_GANGS = {1: 0.5, 2: 0.2, 4: 0.2, 8: 0.1}
PHILLY_HOURS = "1.27 .98 1.12 1.10 .70 1.15 1.67 2.09 1.11 1.01 1.02 .87 .75 .70 .64 .65 .88 .67"
HELIOS_HOURS = ".90 .66 .60 .38 .27 .21 .19 .22 .37 .80 1.29 1.47 1.16 1.30 1.56 1.66 1.73 1.73"
HOURS = {
    "philly": [float(x) for x in f"{PHILLY_HOURS} .80 .73 1.02 .92 1.13 1.01".split()],
    "helios": [float(x) for x in f"{HELIOS_HOURS} 1.28 1.31 1.34 1.36 1.15 1.04".split()],
    "pai": [1.0] * 24,
}
WEEKDAYS = {
    "philly": [0.86, 1.07, 1.14, 1.29, 1.44, 0.61, 0.59],
    "helios": [1.03, 1.07, 1.28, 1.21, 0.95, 0.68, 0.78],
    "pai": [1.0] * 7,
}
# The jobs per hour, and the mean number of jobs in a burst.
RATES = {"philly": (31.5, 2.2), "helios": (29.0, 1.3), "pai": (39.3, 1.35)}
MEASURED = ("philly", "helios", "pai")


def twin_gpus(shape: str, seed: int, jobs: int) -> list[int]:
    gangs = dict(UNIFORM_GANGS)
    if shape != "uniform":
        gangs = {1: 1.0 - math.fsum(GANGS[shape].values()), **GANGS[shape]}
    sizes = list(gangs)
    table = philox.WeightTable(list(gangs.values()))
    return [sizes[table.index_at(philox.uniform(seed, Purpose.GANGS, j))] for j in range(jobs)]


def twin_duration(shape: str, seed: int, job: int, gpus: int) -> float:
    u = philox.uniform(seed, Purpose.DURATIONS, job)
    if shape == "uniform":
        seconds = -math.log(1.0 - u) * 3600.0
    else:
        table = next(seconds for most, seconds in DURATIONS[shape] if gpus <= most)
        k = bisect_right(POINTS, u)
        if k == 0:
            seconds = float(table[0])
        else:
            part = (u - POINTS[k - 1]) / (POINTS[k] - POINTS[k - 1])
            low, high = math.log(table[k - 1]), math.log(table[k])
            seconds = math.exp(low + part * (high - low))
    return max(math.floor(seconds * 1000.0 + 0.5) / 1000.0, 0.001)


def twin_poisson(seed: int, jobs: int, rate_per_h: float) -> list[int]:
    clock_s = 0.0
    micros = [0]
    for job in range(1, jobs):
        clock_s += philox.exponential(3600.0 / rate_per_h, seed, Purpose.ARRIVALS, job)
        micros.append(math.floor(clock_s * 1e6 + 0.5))
    return micros


def twin_week(shape: str) -> list[float]:
    """Return the weights of the hours of a week; their mean is 1."""
    if shape == "uniform":
        return [1.0] * 168
    scale = 168.0 / (sum(HOURS[shape]) * sum(WEEKDAYS[shape]))
    return [hour * day * scale for day in WEEKDAYS[shape] for hour in HOURS[shape]]


def twin_bursts(shape: str, seed: int, jobs: int, rate_per_h: float | None = None) -> list[int]:
    usual_per_h, burst = RATES[shape]
    rate_per_h = rate_per_h or usual_per_h
    week = twin_week(shape)
    peak = max(week)
    purpose = Purpose.ARRIVALS
    made: list[int] = []
    clock_s = 0.0
    candidate = 0
    # Every burst that starts before the last needed job is known after this many more.
    while len(made) < jobs or heapq.nsmallest(jobs, made)[-1] > clock_s * 1e6:
        weight = week[math.floor(clock_s / 3600.0) % 168]
        if candidate == 0 or philox.uniform(seed, purpose, candidate, 0, 1) * peak < weight:
            job_s = clock_s
            made.append(math.floor(job_s * 1e6 + 0.5))
            for k in range(1, philox.geometric(burst, seed, purpose, candidate, 0, 2)):
                job_s += philox.exponential(3.0, seed, purpose, candidate, 1, k)
                made.append(math.floor(job_s * 1e6 + 0.5))
        candidate += 1
        mean_s = 3600.0 * burst / (rate_per_h * peak)
        clock_s += philox.exponential(mean_s, seed, purpose, candidate)
    return sorted(made)[:jobs]


def twin_at_load(shape: str, seed: int, work_per_s: float, work: list[float]) -> list[int]:
    """Return arrivals by hand: for each hour, the number that its weight requires."""
    week = twin_week(shape)
    span_s = math.fsum(work) / work_per_s

    def expected(seconds: float) -> float:
        passed, hour = 0.0, 0
        while seconds > 3600.0:
            passed += 3600.0 * week[hour % 168]
            seconds -= 3600.0
            hour += 1
        return passed + seconds * week[hour % 168]

    def moment(passed: float) -> float:
        hour = 0
        while passed > 3600.0 * week[hour % 168]:
            passed -= 3600.0 * week[hour % 168]
            hour += 1
        return hour * 3600.0 + passed / week[hour % 168]

    jobs = len(work)
    rate_per_h = 3600.0 * (jobs - 1) / expected(span_s)
    if shape == "uniform":
        micros = twin_poisson(seed, jobs, rate_per_h)
    else:
        micros = twin_bursts(shape, seed, jobs, rate_per_h)
    factor = expected(span_s) / expected(micros[-1] / 1e6)
    return [math.floor(moment(expected(at / 1e6) * factor) * 1e6 + 0.5) for at in micros]


def twin(shape: str, seed: int, jobs: int) -> tuple[list[int], list[int], list[float]]:
    if shape == "uniform":
        micros = twin_poisson(seed, jobs, 60.0)
    else:
        micros = twin_bursts(shape, seed, jobs)
    gpus = twin_gpus(shape, seed, jobs)
    durations = [twin_duration(shape, seed, job, size) for job, size in enumerate(gpus)]
    return micros, gpus, durations


def fnv1a(shape: str, seed: int, jobs: int) -> int:
    """Return the hash of a trace, computed like in the Rust golden test."""
    value = 0xCBF29CE484222325
    for arrival, gpus, seconds in zip(*twin(shape, seed, jobs), strict=True):
        for number in (arrival, gpus, round(seconds * 1000.0)):
            for byte in number.to_bytes(8, "little"):
                value = (value ^ byte) * 0x100000001B3 & philox.LANE
    return value


GOLDEN_HASHES = {
    "philly": 1459319003721731623,
    "helios": 15222662636357689146,
    "pai": 8174767460805933218,
    "uniform": 13690428591380158226,
}


@pytest.mark.parametrize("shape", GOLDEN_HASHES)
def test_the_twin_has_the_golden_hash_of_the_engine(shape: str) -> None:
    assert fnv1a(shape, 1, 1000) == GOLDEN_HASHES[shape]


@pytest.mark.parametrize("shape", GOLDEN_HASHES)
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_the_engine_agrees_with_the_twin(shape: str, seed: int) -> None:
    drawn = _core.synth(shape, {"jobs": 400, "seed": seed})
    micros, gpus, durations = twin(shape, seed, 400)
    assert np.rint(np.asarray(drawn["arrival_s"]) * 1e6).astype(np.int64).tolist() == micros
    assert np.asarray(drawn["gpus"]).tolist() == gpus
    assert np.asarray(drawn["duration_s"]).tolist() == durations


@pytest.mark.parametrize("shape", MEASURED)
def test_quantiles_and_shares_of_100_000_jobs(shape: str) -> None:
    drawn = _core.synth(shape, {"jobs": 100_000, "seed": 1, "arrivals": "batch"})
    gpus, seconds = np.asarray(drawn["gpus"]), np.asarray(drawn["duration_s"])
    assert not np.asarray(drawn["arrival_s"]).any()
    for size, share in GANGS[shape].items():
        assert np.mean(gpus == size) == pytest.approx(share, abs=0.005)
    _, published = DURATIONS[shape][0]
    first = seconds[gpus <= min(DURATIONS[shape][0][0], 1e9)]
    measured = np.quantile(first, POINTS[2:7])
    assert measured == pytest.approx(np.array(published[2:7]), rel=0.05)


@pytest.mark.parametrize("shape", MEASURED)
def test_durations_of_every_class_follow_their_table(shape: str) -> None:
    """Rare classes have few draws, so shares below each quantile have a tolerance of four sigma."""
    drawn = _core.synth(shape, {"jobs": 100_000, "seed": 3, "arrivals": "batch"})
    gpus, seconds = np.asarray(drawn["gpus"]), np.asarray(drawn["duration_s"])
    least = 0.0
    for greatest, published in DURATIONS[shape]:
        among = seconds[(gpus > least) & (gpus <= greatest)]
        assert len(among) > 200
        for point, quantile in list(zip(POINTS, published, strict=True))[2:7]:
            sigma = np.sqrt(point * (1.0 - point) / len(among))
            assert abs(np.mean(among <= quantile) - point) < 4.0 * sigma, (greatest, point)
        least = greatest


def test_columns_and_notes() -> None:
    parameters = {
        "jobs": 3000,
        "seed": 4,
        "max_gpus": 8,
        "max_duration_s": 3600,
        "users": 20,
        "vcs": 3,
        "models": ["small", "large"],
    }
    drawn = _core.synth("helios", parameters)
    assert {name: np.asarray(drawn[name]).dtype.kind for name in ("model", "user", "vc")} == {
        "model": "i",
        "user": "i",
        "vc": "i",
    }
    assert list(drawn["model_labels"]) == ["small", "large"]
    assert list(drawn["vc_labels"]) == ["vc-1", "vc-2", "vc-3"]
    assert len(drawn["user_labels"]) == 20
    assert drawn["notes"]["gpus_redrawn"] == sum(g > 8 for g in twin_gpus("helios", 4, 3000))
    assert np.asarray(drawn["gpus"]).max() == 8
    assert np.asarray(drawn["duration_s"]).max() == 3600.0
    assert drawn["notes"]["durations_cut"] == np.sum(np.asarray(drawn["duration_s"]) == 3600.0)
    bare = _core.synth("helios", {"jobs": 3000, "seed": 4})
    assert np.array_equal(bare["arrival_s"], drawn["arrival_s"])
    assert "model" not in bare
    assert "user" not in bare
    assert "vc" not in bare


@pytest.mark.parametrize("shape", GOLDEN_HASHES)
@pytest.mark.parametrize(("jobs", "load"), [(3, 0.4), (150, 1.3)])
def test_arrivals_at_a_load_agree_with_the_twin(shape: str, jobs: int, load: float) -> None:
    drawn = _core.synth(shape, {"jobs": jobs, "seed": 6, "load": load, "cluster_gpus": 1000})
    gpus, seconds = (np.asarray(drawn[name]).tolist() for name in ("gpus", "duration_s"))
    work = [size * length for size, length in zip(gpus, seconds, strict=True)]
    micros = twin_at_load(shape, 6, load * 1000, work)
    assert np.asarray(drawn["arrival_s"]) * 1e6 == pytest.approx(np.array(micros), abs=1.5)


@pytest.mark.parametrize("load", [0.2, 1.0, 5.0])
def test_a_load_keeps_the_hours_of_the_day(load: float) -> None:
    parameters = {"jobs": 60_000, "seed": 2, "load": load, "cluster_gpus": 64}
    arrivals = np.asarray(_core.synth("helios", parameters)["arrival_s"])
    days = math.floor(arrivals[-1] / 86400)
    hours = (arrivals[arrivals < days * 86400] // 3600 % 24).astype(int)
    expected = np.array(HOURS["helios"]) / sum(HOURS["helios"])
    # The tolerance is five sigma; bursts of 1.3 jobs on average multiply the Poisson variance by 2
    # x 1.3 - 1.
    sigma = np.sqrt(1.6 * expected / len(hours))
    assert (np.abs(np.bincount(hours, minlength=24) / len(hours) - expected) < 5.0 * sigma).all()


def takes_a_load(shape: str) -> bool:
    try:
        gl.synth.generate(shape, jobs=5, load=-1.0)
    except gl.TraceError as error:
        return "no parameter `load`" not in str(error)
    raise AssertionError(f"{shape} draws jobs at a load below 0")


def test_every_generator_with_a_load_is_in_the_table_of_the_guide() -> None:
    with_load = {shape for shape in gl.synth.SHAPES if takes_a_load(shape)}
    assert {name for name, _ in LOADS.WORLDS} == with_load
    lines = LOADS.TABLE.search(LOADS.PAGE.read_text("utf-8"))[0].splitlines()[2:]
    rows = [line.strip("| ").split(" | ") for line in lines]
    assert [row[0].strip("`") for row in rows] == [name for name, _ in LOADS.WORLDS]
    assert all(row[2] == "1,000" and float(row[3].removesuffix(" %")) < 2.0 for row in rows)


@pytest.mark.parametrize("world", LOADS.WORLDS)
def test_load_is_what_each_draw_offers(world: tuple[str, int | None]) -> None:
    assert LOADS.deviation(world, range(5)) < 1e-5


@pytest.mark.parametrize(
    ("shape", "parameters", "fact"),
    [
        ("phily", {}, ("value", "phily")),
        ("philly", {"job": 3}, ("column", "job")),
        ("philly", {"jobs": 0}, ("column", "jobs")),
        ("philly", {"jobs": "many"}, ("column", "jobs")),
        ("philly", {"arrivals": "weekly"}, ("column", "arrivals")),
        ("philly", {"load": 0.5}, ("column", "cluster_gpus")),
        ("philly", {"load": 0.5, "cluster_gpus": 8, "jobs": 1}, ("column", "jobs")),
        ("philly", {"load": 0.5, "rate_per_h": 3, "cluster_gpus": 8}, ("column", "load")),
        ("uniform", {"noise": -0.1}, ("column", "noise")),
    ],
)
def test_refusals_name_what_is_wrong(
    shape: str, parameters: dict[str, Any], fact: tuple[str, str]
) -> None:
    with refused(gl.TraceError, **dict([fact])):
        _core.synth(shape, parameters)


@pytest.mark.parametrize("shape", GOLDEN_HASHES)
def test_parameters_are_data(shape: str) -> None:
    rows = _core.synth_parameters(shape)
    assert [row["name"] for row in rows][:3] == ["jobs", "seed", "arrivals"]
    assert all(set(row) == {"name", "kind", "default", "unit", "doc", "choices"} for row in rows)
    assert {"models", "users", "vcs", "noise"} <= {row["name"] for row in rows}
    defaults = {row["name"]: row["default"] for row in rows}
    same = _core.synth(shape, {**defaults, "jobs": 20})
    assert np.array_equal(same["duration_s"], _core.synth(shape, {"jobs": 20})["duration_s"])


def test_the_python_face_makes_the_same_jobs() -> None:
    trace = gl.synth.philly(jobs=200, seed=5)
    micros, gpus, durations = twin("philly", 5, 200)
    assert np.asarray(trace.table["gpus"]).tolist() == gpus
    assert np.asarray(trace.table["duration_s"]).tolist() == durations
    assert np.rint(np.asarray(trace.table["arrival_s"]) * 1e6).astype(int).tolist() == micros
    address = gl.read_trace("synth:philly?jobs=200&seed=5")
    assert address.table.select(trace.table.column_names).equals(trace.table)


def test_a_gang_size_without_a_model_gets_none() -> None:
    trace = gl.synth.philly(jobs=300, seed=1, models={"small": [1]})
    gangs, models = (trace.table[name].to_pylist() for name in ("gpus", "model"))
    pairs = set(zip(gangs, models, strict=True))
    assert pairs >= {(1, "small"), (8, None)}
    assert all((gpus == 1) == (model == "small") for gpus, model in pairs)


@pytest.mark.parametrize("shares", [{8: 1.0}, {"8": 1.0}, "8:1", [(8, 1.0)]])
def test_gang_shares_are_read_in_every_form(shares: Any) -> None:
    drawn = gl.synth.uniform(jobs=20, seed=1, gang_shares=shares)
    assert set(drawn.numbers("gpus").tolist()) == {8}


@pytest.mark.parametrize("shares", [{"a": 1.0}, {8: "x"}, [1, 2], object()])
def test_gang_shares_that_are_none_are_refused(shares: Any) -> None:
    with refused(gl.TraceError, column="gang_shares"):
        gl.synth.uniform(jobs=20, gang_shares=shares)
