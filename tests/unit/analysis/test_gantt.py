"""Tests Gantt charts: reads the file back with Perfetto's messages and compares it with the run."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

import gangline as gl
import worlds
from gangline.analysis.report import gantt as gantt_module
from gangline.analysis.report.perfetto import write_gantt
from gangline.cli.app import main

if TYPE_CHECKING:
    from pathlib import Path

LAB = gl.Cluster.homogeneous(servers=1, gpus=2, gpu="V100")
JOBS = worlds.jobs("A 0 2 10", "B 0 2 2", user=["ann", "bob"], model=["vgg", "bert"])
SMALL = ["--trace", "synth:philly?jobs=60&seed=1&max_gpus=16", "--cluster", "pollux-64"]


@dataclass
class Slice:
    track: tuple[str, ...]
    name: str
    start: int
    end: int
    notes: dict[str, Any]
    inner: list[Slice] = field(default_factory=list)


@dataclass
class Chart:
    """The content of a file in a viewer: paths of tracks, slices and counters."""

    tracks: dict[int, tuple[str, ...]]
    slices: list[Slice]
    counters: dict[str, list[tuple[int, int]]]


def read(path: Path) -> Chart:
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    names: dict[int, tuple[int, str]] = {}
    texts: dict[tuple[str, int], str] = {}
    open_slices: dict[int, list[Slice]] = defaultdict(list)
    found: list[tuple[int, Slice]] = []
    counters: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for packet in trace.packet:
        for kind in ("event_names", "debug_annotation_names", "debug_annotation_string_values"):
            for entry in getattr(packet.interned_data, kind):
                text = entry.str.decode() if kind.endswith("values") else entry.name
                texts[kind, entry.iid] = text
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            names[track.uuid] = (track.parent_uuid, track.name)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            notes = {}
            for note in event.debug_annotations:
                kind = note.WhichOneof("value")
                value = getattr(note, kind)
                if kind == "string_value_iid":
                    value = texts["debug_annotation_string_values", value]
                notes[texts["debug_annotation_names", note.name_iid]] = value
            name = texts["event_names", event.name_iid]
            slice_ = Slice((), name, packet.timestamp, -1, notes)
            above = open_slices[event.track_uuid]
            if above:
                above[-1].inner.append(slice_)
            else:
                found.append((event.track_uuid, slice_))
            above.append(slice_)
        elif event.type == TrackEvent.TYPE_SLICE_END:
            open_slices[event.track_uuid].pop().end = packet.timestamp
        else:
            counters[event.track_uuid].append((packet.timestamp, event.counter_value))
    assert not any(open_slices.values()), "a slice never ends"

    def path_of(uuid: int) -> tuple[str, ...]:
        parent, name = names[uuid]
        return (*(path_of(parent) if parent else ()), name)

    paths = {uuid: path_of(uuid) for uuid in names}
    for uuid, slice_ in found:
        slice_.track = paths[uuid]
    by_name = {paths[uuid][-1]: points for uuid, points in counters.items()}
    return Chart(paths, [slice_ for _, slice_ in found], by_name)


def chart(result: gl.Result, path: Path, **window: float) -> Chart:
    write_gantt(result, path, **window)
    return read(path)


def simulate(policy: Any = "fifo", **options: Any) -> gl.Result:
    trace = gl.Trace.from_arrow(JOBS)
    return gl.simulate(LAB, trace, policy, segments=True, **options)


def gpu_seconds(slices: list[Slice]) -> float:
    return sum(slice_.end - slice_.start for slice_ in slices) / 1e9


def table_gpu_seconds(segments: pa.Table) -> float:
    gpus = np.array([int(mask).bit_count() for mask in segments["gpu_mask"].to_pylist()])
    return float((gpus * (segments["end_s"].to_numpy() - segments["start_s"].to_numpy())).sum())


def test_two_jobs_by_hand(tmp_path: Path) -> None:
    drawn = chart(simulate(), tmp_path / "g.pftrace")
    server = ("gangline: fifo", "Server 0, V100")
    seconds = [(s.track, s.name, s.start // 10**9, s.end // 10**9) for s in drawn.slices]
    assert sorted(seconds) == [
        ((*server, "GPU 0"), "A", 0, 10), ((*server, "GPU 0"), "B", 10, 12),
        ((*server, "GPU 1"), "A", 0, 10), ((*server, "GPU 1"), "B", 10, 12),
    ]  # fmt: skip
    first = next(slice_ for slice_ in drawn.slices if slice_.name == "A")
    assert first.notes == {
        "user": "ann", "model": "vgg", "tier": "server", "end": "finished", "gang": 2, "rate": 1.0,
    }  # fmt: skip
    assert drawn.counters["GPUs busy"] == [(0, 2), (12 * 10**9, 0)]
    assert drawn.counters["Jobs waiting"] == [(0, 1), (10 * 10**9, 0)]


def test_totals_equal_the_segments(tmp_path: Path) -> None:
    cluster = gl.Cluster.homogeneous(servers=6, gpus=4, servers_per_rack=2)
    trace = gl.synth.philly(jobs=120, seed=3, max_gpus=8, cluster_gpus=24)
    result = gl.simulate(cluster, trace, "srtf", segments=True, restart_s=40.0)
    drawn = chart(result, tmp_path / "g.pftrace")
    assert gpu_seconds(drawn.slices) == pytest.approx(table_gpu_seconds(result.segments))
    by_job: dict[str, float] = defaultdict(float)
    for slice_ in drawn.slices:
        by_job[slice_.name] += (slice_.end - slice_.start) / 1e9
    for job, expected in zip(
        result.jobs["job_id"].to_pylist(), result.jobs["gpu_seconds"].to_pylist(), strict=True
    ):
        assert by_job[job] == pytest.approx(expected)
    racks = {path[1] for path in drawn.tracks.values() if len(path) == 4}
    assert racks == {"Rack 0", "Rack 1", "Rack 2"}
    assert sum(len(path) == 4 for path in drawn.tracks.values()) == 24


def test_overheads_add_up_to_those_of_the_jobs(tmp_path: Path) -> None:
    trace = gl.synth.philly(jobs=150, seed=4, max_gpus=8, cluster_gpus=16)
    cluster = gl.Cluster.homogeneous(servers=4, gpus=4)
    run = gl.simulate(
        cluster, trace, gl.policies.Las(limits=(300.0,)), segments=True, restart_s=45.0,
        first_start_s=20.0, on_infeasible="drop",
    )  # fmt: skip
    assert run.summary["preemptions"] > 10
    expected = (run.jobs["gpus"].to_numpy() * run.jobs["overhead_s"].to_numpy()).sum()
    drawn = chart(run, tmp_path / "g.pftrace")
    inner = [slice_ for outer in drawn.slices for slice_ in outer.inner]
    assert {slice_.name for slice_ in inner} == {"overhead"}
    assert gpu_seconds(inner) == pytest.approx(expected)


def test_overheads_that_do_not_follow_are_counted_not_invented(tmp_path: Path) -> None:
    result = simulate("fifo", first_start_s=1.0)
    jobs = result.jobs
    wrong = pa.array([1.0, 0.25])  # two first starts differ in cost, and the table does not say why
    at = jobs.column_names.index("overhead_s")
    other = gl.Result(
        result.summary,
        {**result.spec, "options": {"restart_s": 3.0, "first_start_s": 1.0}},
        jobs=lambda: jobs.set_column(at, "overhead_s", wrong),
        timeline=lambda: result.timeline,
        segments=lambda: pa.concat_tables([result.segments, moved(result.segments)]),
    )
    assert write_gantt(other, tmp_path / "g.pftrace").unplaced_jobs == 1


def test_overheads_that_a_policy_chose_are_worked_out(tmp_path: Path) -> None:
    result = simulate("fifo", first_start_s=1.0)
    silent = gl.Result(
        result.summary,
        {**result.spec, "options": {}},
        jobs=lambda: result.jobs,
        timeline=lambda: result.timeline,
        segments=lambda: result.segments,
    )
    drawn = chart(silent, tmp_path / "g.pftrace")
    spans = sorted((s.start, s.end) for outer in drawn.slices for s in outer.inner)
    second = 10**9
    assert spans == [(0, second)] * 2 + [(11 * second, 12 * second)] * 2


def forked(overhead_s: float) -> gl.Result:
    """Return a run in which A holds a second part on server 1 from 4 s on; B follows on server 0.

    At 4 s the part on server 0 is re-timed, which ends its row there and begins another.
    """
    lab = gl.Cluster.homogeneous(servers=2, gpus=1, gpu="V100")
    rows = worlds.trace("A 0 1 10", "B 0 1 2")
    run = gl.simulate(lab, rows, "fifo", segments=True)
    segments = pa.table(
        {
            "job_id": ["A", "A", "A", "B"],
            "start_s": [0.0, 4.0, 4.0, 10.0],
            "end_s": [4.0, 10.0, 10.0, 12.0],
            "server": pa.array([0, 0, 1, 0], pa.int32()),
            "gpu_mask": pa.array([1, 1, 1, 1], pa.uint64()),
            "tier": ["gpu"] * 4,
            "rate": [1.0] * 4,
            "end_reason": ["retimed", "finished", "finished", "finished"],
            "part": pa.array([0, 0, 1, 0], pa.int32()),
        }
    )
    at = run.jobs.column_names.index("overhead_s")
    jobs = run.jobs.set_column(at, "overhead_s", pa.array([overhead_s, 1.0]))
    return gl.Result(
        run.summary,
        {**run.spec, "options": {"restart_s": 3.0, "first_start_s": 1.0}},
        jobs=lambda: jobs,
        timeline=lambda: run.timeline,
        segments=lambda: segments,
    )


def test_parts_of_a_job_have_names_and_overheads_of_their_own(tmp_path: Path) -> None:
    """A pays 1 s for its first start and 3 s for the part that joins; B pays its first start."""
    drawn = chart(forked(4.0), tmp_path / "g.pftrace")
    second = 10**9
    found = sorted((s.track[-2], s.name, s.start // second, s.end // second) for s in drawn.slices)
    assert found == [
        ("Server 0, V100", "A, part 0", 0, 4), ("Server 0, V100", "A, part 0", 4, 10),
        ("Server 0, V100", "B", 10, 12), ("Server 1, V100", "A, part 1", 4, 10),
    ]  # fmt: skip
    assert [s.notes.get("part") for s in drawn.slices if s.name == "A, part 1"] == [1]
    assert not [s for s in drawn.slices if s.name == "B" and "part" in s.notes]
    inner = sorted((s.start // second, s.end // second) for o in drawn.slices for s in o.inner)
    assert inner == [(0, 1), (4, 7), (10, 11)]


def test_overheads_of_parts_that_do_not_follow_are_counted(tmp_path: Path) -> None:
    assert write_gantt(forked(5.0), tmp_path / "g.pftrace").unplaced_jobs == 1


def copies(jobs: int, seed: int, cluster: gl.Cluster, **params: Any) -> gl.Result:
    trace = gl.read_trace(f"synth:hadar?jobs={jobs}&gang_shares=1,0,0,0&seed={seed}")
    times = {"restart_s": 10.0, "first_start_s": 20.0}
    return gl.simulate(cluster, trace, "hadare", params=params, segments=True, **times)


def test_copies_that_stay_pause_to_be_brought_together(tmp_path: Path) -> None:
    """One job on five nodes has a start of 20 s in the first round and 15 s in each later one."""
    lone = copies(1, 0, gl.Cluster.preset("hadare-5"), c0_s=15.0)
    drawn = chart(lone, tmp_path / "g.pftrace")
    rounds = len(drawn.slices) // 5
    assert rounds > 1
    assert len(drawn.slices) == 5 * rounds
    for slice_ in drawn.slices:
        (pause,) = slice_.inner
        length = pause.end - pause.start
        assert (pause.start, length) == (slice_.start, (15 if slice_.start else 20) * 10**9)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"c0_s": 15.0, "fan_in": "serial"},
        {"bandwidth": 2e7},
        {"bandwidth": 2e7, "fan_in": "serial"},
        {"max_copies": 2, "c0_s": 12.0},
        {"estimator": "ewma"},
        {"estimator": "noisy", "c0_s": 4.0},
    ],
    ids=str,
)
def test_pauses_of_copies_add_up_to_the_overheads_of_the_jobs(params: dict[str, Any]) -> None:
    data = gl.Cluster.preset("hadare-5").to_dict()
    sizes = {"compute_s": 0.1, "grad_bytes": 2e8, "buckets": 13}
    models = {"ResNet-18 (batch size 64)": sizes}  # the traffic of other models is unknown
    network = {"preset": "dally-2024", "models": models}
    run = copies(9, 2, gl.Cluster.from_dict({**data, "network": network}), **params)
    drawn = gantt_module.gantt(run)
    length_s = (drawn.overhead_ns - drawn.start_ns) / 1e9
    found = np.bincount(drawn.job[drawn.row], length_s, run.jobs.num_rows)
    assert drawn.unplaced_jobs == 0
    np.testing.assert_allclose(found, run.jobs["overhead_s"].to_numpy(), atol=1e-4)
    assert found.sum() > 0


def moved(segments: pa.Table) -> pa.Table:
    """Return the rows of B, an hour later, as if it had been stopped and run again."""
    rows = segments.filter(pa.compute.equal(segments["job_id"], "B"))
    for name in ("start_s", "end_s"):
        at = rows.column_names.index(name)
        rows = rows.set_column(at, name, pa.compute.add(rows[name], 3600.0))
    return rows


def test_a_neighbour_has_a_lane_of_its_own(tmp_path: Path) -> None:
    jobs = worlds.jobs("0 2 10", "0 2 4", "0 2 4")
    run = gl.simulate(LAB, jobs, "toy-share", sharing={"xi": 1.5}, segments=True)
    drawn = chart(run, tmp_path / "g.pftrace")
    lanes = {slice_.track[-1] for slice_ in drawn.slices}
    assert "GPU 0" in lanes
    assert "GPU 0, job 2 on it" in lanes
    by_track: dict[tuple[str, ...], list[Slice]] = defaultdict(list)
    for slice_ in drawn.slices:
        assert slice_.inner == [], "two jobs on one track"
        by_track[slice_.track].append(slice_)
    for slices in by_track.values():
        slices.sort(key=lambda slice_: slice_.start)
        for before, after in itertools.pairwise(slices):
            assert before.end <= after.start
    assert {"beside"} & {key for slice_ in drawn.slices for key in slice_.notes}
    # A job stays in its lane when the job in the next lane changes.
    tracks = {slice_.track[-1] for slice_ in drawn.slices if slice_.name == "0"}
    assert len([name for name in tracks if name.startswith("GPU 0")]) == 1
    assert gpu_seconds(drawn.slices) == pytest.approx(table_gpu_seconds(run.segments))


def test_a_window_cuts(tmp_path: Path) -> None:
    drawn = chart(simulate(), tmp_path / "g.pftrace", from_s=8.0, to_s=11.0)
    seconds = sorted({(s.name, s.start // 10**9, s.end // 10**9) for s in drawn.slices})
    assert seconds == [("A", 8, 10), ("B", 10, 11)]
    assert drawn.counters["Jobs waiting"] == [(8 * 10**9, 1), (10 * 10**9, 0)]


def test_names_of_people_survive(tmp_path: Path) -> None:
    names = ["</script>", "\u202egnp", "日本 \x00", "'\"\\"]
    rows = {
        "job_id": names, "arrival_s": [0.0] * 4, "gpus": [1] * 4, "duration_s": [1.0] * 4,
        "user": names,
    }  # fmt: skip
    run = gl.simulate(LAB, gl.Trace.from_arrow(pa.table(rows)), "fifo", segments=True)
    drawn = chart(run, tmp_path / "g.pftrace")
    # characters that control a terminal or turn the writing are shown as escapes
    shown = {"</script>", "\\u202egnp", "日本 \\x00", "'\"\\"}
    assert {slice_.name for slice_ in drawn.slices} == shown
    assert {slice_.notes["user"] for slice_ in drawn.slices} == shown


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_gantt(simulate(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_command_line_draws_one_policy_of_a_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = str(tmp_path / "o"), str(tmp_path / "g.pftrace")
    words = ["compare", *SMALL, "--policies", "fifo,las", "--segments", "--out", folder]
    assert main(words) == 0
    assert main(["gantt", folder, "-o", out, "--policy", "las"]) == 0
    assert main(["gantt", folder, "-o", out, "--policy", "fifo"]) == 0  # replaces our own
    assert "slices; open it at ui.perfetto.dev" in capsys.readouterr().err
    saved = gl.load_result(tmp_path / "o" / "fifo-s0")
    drawn = read(tmp_path / "g.pftrace")
    assert gpu_seconds(drawn.slices) == pytest.approx(table_gpu_seconds(saved.segments))


def test_mistakes_are_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, bare = tmp_path / "o", tmp_path / "bare"
    simulate().save(folder / "fifo")
    simulate("srtf").save(folder / "srtf")
    gl.simulate(LAB, JOBS, "fifo").save(bare)
    letter = tmp_path / "letter.txt"
    letter.write_text("dear")
    out = ["-o", str(tmp_path / "g.pftrace")]
    fifo = [str(folder), "--policy", "fifo"]

    def said(*words: str) -> str:
        assert main(["gantt", *words]) == 2
        heard = capsys.readouterr()
        assert heard.out == ""
        assert heard.err.count("\n") == 1
        return heard.err

    assert "choose one of the compared policies: fifo, srtf" in said(str(folder), *out)
    assert "no run of easy here" in said(str(folder), *out, "--policy", "easy")
    assert "run it again with --segments" in said(str(bare), *out)
    assert "expected a span of time" in said(*fifo, *out, "--from", "5", "--to", "5")
    assert "no job held a GPU in this window" in said(*fifo, *out, "--from", "99")
    assert "not an unchanged Gantt chart of gangline" in said(*fifo, "-o", str(letter))
    assert "is a folder" in said(*fifo, "-o", str(tmp_path))
    assert "No such file" in said(str(tmp_path / "absent"), *out)
    monkeypatch.setattr(gantt_module, "MOST_SLICES", 3)
    assert "too many slices (4; the limit is 3): choose a window" in said(*fifo, *out)
    assert main(["gantt", *fifo, *out, "--to", "10"]) == 0
    capsys.readouterr()
    (tmp_path / "g.pftrace").unlink()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'gangline[gantt]'" in said(*fifo, *out)
    damaged = folder / "fifo" / "segments.parquet"
    damaged.write_bytes(damaged.read_bytes()[:200])
    monkeypatch.undo()
    assert "segments.parquet: damaged" in said(*fifo, *out)
    assert letter.read_text() == "dear"
    assert not (tmp_path / "g.pftrace").exists()
