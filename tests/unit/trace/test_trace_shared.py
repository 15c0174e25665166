"""Tests the real public files against the counts of their authors."""

from __future__ import annotations

import csv
import gzip
import json
import tarfile
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gangline as gl
from gangline.errors import TraceError
from gangline.trace import Trace, read_trace
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

pytestmark = pytest.mark.shared


def test_philly(shared: Path) -> None:
    trace = read_trace(shared / "traces/philly-sia/philly.csv.gz")
    assert len(trace) == 82_247
    assert trace.metadata["reader"] == "philly-csv"
    assert round(trace.gpu_hours) == 978_078
    assert np.median(trace.numbers("duration_s")) == 1144.0
    assert trace.span_s / 86400 == pytest.approx(108.9, abs=0.05)
    assert trace.info()["vcs"] == 15
    assert trace.notes == {"repeated_hour": 7}
    assert trace.metadata["licence"] == "CC BY 4.0"


def test_venus(shared: Path) -> None:
    trace = read_trace(shared / "traces/helios-venus-gpu/helios_trace.csv.gz")
    assert len(trace) == 125_303
    assert np.median(trace.numbers("duration_s")) == 204.0
    assert round(trace.gpu_hours) == 2_423_407
    assert trace.numbers("gpus").max() == 200
    assert trace.notes == {"clamped": 2379}


def test_venus_without_its_stragglers(shared: Path) -> None:
    path = shared / "traces/helios-venus-gpu/helios_trace.csv.gz"
    trace = read_trace(path, window=(1_195_101.0, float("inf")))
    assert trace.notes["outside_window"] == 89
    assert trace.numbers("arrival_s")[0] == 0.0


def test_pai(shared: Path) -> None:
    trace = read_trace(shared / "traces/pai2020-gpu-sub/alibaba_trace_sub.csv.gz")
    assert len(trace) == 60_105
    assert round(trace.gpu_hours) == 687_854
    assert trace.notes == {"clamped": 90}


def test_tiresias(shared: Path) -> None:
    archive = shared / "traces/tiresias-traces/tiresias_csv.tar.xz"
    trace = read_trace(f"{archive}::60_job.csv")
    sizes, counts = np.unique(trace.numbers("gpus"), return_counts=True)
    assert dict(zip(sizes.tolist(), counts.tolist(), strict=True)) == {1: 30, 2: 10, 4: 10, 8: 10}


@pytest.mark.parametrize(("number", "count"), [(1, 1494), (2, 5755), (3, 992), (4, 2638)])
def test_muri(shared: Path, number: int, count: int) -> None:
    archive = shared / "traces/muri-traces/muri_traces.tar.xz"
    trace = read_trace(f"{archive}::simulator/trace-data/trace{number}.csv")
    assert len(trace) == count
    assert trace.metadata["reader"] == "muri"
    if number == 2:
        # the file has 8,653,000, which must be milliseconds, or the median job would run for 100
        # days
        assert np.median(trace.numbers("duration_s")) == 8653.0


def archive(shared: Path, folder: str, name: str, member: str) -> str:
    return f"{shared / 'traces' / folder / name}::{member}"


def sizes(trace: Trace) -> dict[int, int]:
    found, counts = np.unique(trace.numbers("gpus"), return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def test_philly_counts_by_gang_as_its_file_has_them(shared: Path) -> None:
    path = shared / "traces/philly-sia/philly.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    trace = read_trace(path)
    assert sizes(trace) == dict(sorted(Counter(int(line["num_gpus"]) for line in lines).items()))
    times = sorted(line["timestamp"] for line in lines)
    assert trace.metadata["epoch"] == f"{times[0].replace(' ', 'T')} local time"
    repeated = sum(time.startswith("2017-11-05 01") for time in times)
    assert trace.notes == {"repeated_hour": repeated}
    zoned = read_trace(path, zone="America/Los_Angeles")
    assert zoned.span_s == trace.span_s + 3600  # the clock was set back once in between
    assert len(zoned) == len(trace)


def test_venus_percentiles(shared: Path) -> None:
    trace = read_trace(shared / "traces/helios-venus-gpu/helios_trace.csv.gz")
    durations = trace.numbers("duration_s")
    assert round(float(np.percentile(durations, 95))) == 58_054
    assert (durations == 172_800).sum() == 2379
    assert trace.metadata["citation"] == "Hu et al., SC 2021"
    assert trace.metadata["clamp_s"] == "172800.0"


def test_windows(shared: Path) -> None:
    folder = shared / "traces/jsspp24-windows"
    philly = read_trace(folder / "philly_data_training.csv.gz")
    assert (len(philly), philly.notes) == (15_000, {})
    helios = read_trace(folder / "helios_data_training.csv.gz")
    assert (len(helios), helios.notes) == (10_796, {"cpu_job": 4204})
    assert helios.metadata["reader"] == "windows"
    # the files say that no limit is known
    assert "time_limit_s" in philly.columns
    assert philly.column("time_limit_s").null_count == 15_000


def test_openb(shared: Path) -> None:
    trace = read_trace(shared / "traces/openb2023/openb_pod_list_default.csv.gz")
    # 897 pods have no scheduled time; 36 of them ask for no GPU and count there
    assert trace.notes == {"cpu_job": 1088, "never_ran": 861}
    assert len(trace) + 1088 + 861 == 8152
    assert "gpu_types" not in trace.columns or trace.column("gpu_types").null_count == len(trace)
    kept = read_trace(
        shared / "traces/openb2023/openb_pod_list_gpuspec33.csv.gz", on_bad_row="drop"
    )
    lists = kept.column("gpu_types").drop_null().to_pylist()
    assert max(len(kinds) for kinds in lists) > 1
    assert all(len(set(kinds)) == len(kinds) for kinds in lists)


def test_openb_shares_and_constraints_as_its_file_has_them(shared: Path) -> None:
    path = shared / "traces/openb2023/openb_pod_list_gpuspec33.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        pods = [pod for pod in csv.DictReader(file) if int(pod["num_gpu"]) > 0]
    assert len(pods) == 7064
    assert sum(int(pod["gpu_milli"]) < 1000 for pod in pods) == 3078
    assert sum(bool(pod["gpu_spec"]) for pod in pods) == 2388
    ran = [pod for pod in pods if pod["scheduled_time"]]
    trace = read_trace(path)
    assert len(trace) == len(ran)
    shares = trace.column("gpu_fraction").drop_null().to_pylist()
    assert sorted(shares) == sorted(
        int(pod["gpu_milli"]) / 1000 for pod in ran if int(pod["gpu_milli"]) < 1000
    )
    assert len(trace) - trace.column("gpu_types").null_count == sum(
        bool(pod["gpu_spec"]) for pod in ran
    )
    running = sum(status == "running" for status in trace.column("trace_status").to_pylist())
    assert running == sum(pod["pod_phase"] == "Running" for pod in ran)


def test_openb_variants(shared: Path, snapshot: Snapshot) -> None:
    place = shared / "traces/openb2023/openb_pod_list_variants.tar.xz"
    with tarfile.open(place) as file:
        names = sorted(file.getnames())
    assert len(names) == 22
    for name in ("openb_pod_list_cpu0.csv", "openb_pod_list_gpushare100.csv"):
        assert read_trace(f"{place}::{name}").metadata["reader"] == "openb"
    # these four have no times: they cannot be replayed
    assert sum("multigpu" in name for name in names) == 4
    with refused(TraceError, snapshot):
        read_trace(f"{place}::openb_pod_list_multigpu20.csv")


def test_all_gavel_traces(shared: Path, tmp_path: Path) -> None:
    place = shared / "traces/gavel-traces/gavel_traces.tar.xz"
    read = 0
    with tarfile.open(place) as file:
        for info in file:
            if not info.name.endswith(".trace"):
                continue
            member = file.extractfile(info)
            assert member is not None
            text = member.read().decode()
            trace = read_trace(_unpacked(tmp_path, text))
            assert len(trace) == text.count("\n")
            assert trace.metadata["reader"] == "gavel"
            assert "duration_s" not in trace.columns
            assert trace.notes == {}
            steps = sum(
                float(line.split("\t")[-3 if _is_short(line) else 5]) for line in text.splitlines()
            )
            assert trace.numbers("iterations").sum() == steps
            read += 1
    assert read == 83


def _is_short(line: str) -> bool:
    return line.count("\t") == 6


def _unpacked(folder: Path, text: str) -> Path:
    path = folder / "one.trace"
    path.write_text(text, encoding="utf-8")
    return path


def test_gavel_needs_a_table_to_run(shared: Path) -> None:
    place = archive(shared, "gavel-traces", "gavel_traces.tar.xz", "physical_cluster/debug.trace")
    trace = read_trace(place)
    with pytest.raises(gl.GanglineError):
        gl.simulate("pollux-64", trace, "srtf")


POLLUX = {"cifar10": 1.0, "ncf": 2.0, "deepspeech2": 3.0, "bert": 4.0, "imagenet": 5.0}


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("folder", ["workloads", "workloads-realistic"])
def test_pollux(shared: Path, folder: str, number: int) -> None:
    member = f"{folder}/workload-{number}.csv"
    place = archive(shared, "pollux-workloads", "pollux_workloads.tar.xz", member)
    with refused(TraceError, column="application", value="yolov3"):
        read_trace(place, durations=POLLUX)
    trace = read_trace(place, durations={**POLLUX, "yolov3": 6.0})
    assert len(trace) == 160
    assert trace.span_s <= 8 * 3600
    assert trace.info()["models"] >= 5  # one file lacks the rarest application
    assert trace.metadata["licence"] == "Apache-2.0"


def test_batsim_samples_are_read_or_name_the_profile(shared: Path) -> None:
    place = shared / "traces/batsim-workloads/batsim_workloads.tar.xz"
    refused = []
    with tarfile.open(place) as file:
        names = [info.name for info in file if info.isfile()]
    assert len(names) == 34
    for name in names:
        try:
            trace = read_trace(f"{place}::{name}", flops=1e9)
        except TraceError as error:
            assert "profiles." in str(error)
            refused.append(name)
        else:
            assert trace.metadata["reader"] == "batsim"
    assert len(refused) == 12
    sequences = read_trace(f"{place}::test_compo_sequence_delay.json")
    assert len(sequences) == 23


def test_batsim_delays_by_hand(shared: Path) -> None:
    place = shared / "traces/batsim-workloads/batsim_workloads.tar.xz"
    with tarfile.open(place) as file:
        member = file.extractfile("test_batsim_paper_workload_seed1.json")
        assert member is not None
        workload = json.load(member)
    expected = Counter(
        (job["res"], float(workload["profiles"][job["profile"]]["delay"]))
        for job in workload["jobs"]
    )
    trace = read_trace(f"{place}::test_batsim_paper_workload_seed1.json")
    found = zip(trace.numbers("gpus").tolist(), trace.numbers("duration_s").tolist(), strict=True)
    assert Counter(found) == expected


@pytest.mark.parametrize("name", ["cluster_spec.csv", "n32g4.csv", "yarn-gput1000.csv"])
def test_tables_that_are_no_traces_are_refused(shared: Path, name: str, snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        read_trace(archive(shared, "tiresias-traces", "tiresias_csv.tar.xz", name))


def test_the_older_tiresias_demo_is_explained(shared: Path, snapshot: Snapshot) -> None:
    with refused(TraceError, snapshot):
        read_trace(archive(shared, "tiresias-traces", "tiresias_csv.tar.xz", "tf_job.csv"))


def test_pollux_profiles_tell_durations(shared: Path) -> None:
    from gangline.cluster.tables import read_pollux

    profiles = str(shared / "traces/tables/pollux/pollux_traces.tar.xz")
    place = archive(
        shared, "pollux-workloads", "pollux_workloads.tar.xz", "workloads/workload-1.csv"
    )
    trace = read_trace(place, profiles=profiles, durations={"ncf": 1.0})
    jobs = trace.column("job_id").to_pylist()
    seconds = dict(zip(jobs, trace.numbers("duration_s").tolist(), strict=True))
    # the first two jobs of the file: cifar10 on 6 GPUs and deepspeech2 on 6
    known = read_pollux(profiles)
    assert seconds["cifar10-0"] == known["cifar10"].alone_s(6, 2048)
    assert seconds["cifar10-0"] == pytest.approx(854.2, abs=0.05)
    assert seconds["deepspeech2-1"] == pytest.approx(4153.2, abs=0.05)
    assert {seconds[job] for job in jobs if job.startswith("ncf")} == {1.0}


def test_gavel_durations_by_a_throughput_table(shared: Path) -> None:
    table = shared / "traces/tables/gavel/simulation_throughputs.json.gz"
    with gzip.open(table, "rt", encoding="utf-8") as file:
        rates = json.load(file)["v100"]
    place = archive(shared, "gavel-traces", "gavel_traces.tar.xz", "physical_cluster/debug.trace")
    trace = read_trace(place, throughput=str(table))
    expected = [
        steps / rates[f"('{label}', {gpus})"]["null"]
        for label, steps, gpus in zip(
            trace.column("model").to_pylist(),
            trace.numbers("iterations").tolist(),
            trace.numbers("gpus").tolist(),
            strict=True,
        )
    ]
    assert trace.numbers("duration_s").tolist() == pytest.approx(expected, rel=1e-12)
    with refused(TraceError, column="label", value="Recommendation (batch size 8192)"):
        read_trace(place, throughput=str(table), reference="h100")
