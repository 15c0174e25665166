"""Run one workload through AccaSim 1.1.3 and print a JSON line; runs in AccaSim's own environment.

    python peer.py WORKLOAD.swf SERVERS GPUS_PER_SERVER POLICY [--results DIR]

AccaSim models one resource on each node (here a GPU, called "core"). A job asks for n units of it
and takes them from the first nodes that have some, on any number of nodes. That is gangline's
`count` placement. AccaSim decides once per time point, after completions and arrivals.

Times: ``process_cpu_s`` is this process with its children up to the end of the run; ``loop_cpu_s``
is the simulation loop without the reading of the workload file, which AccaSim does inside the loop.
"""

from __future__ import annotations

import argparse
import collections
import collections.abc
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# AccaSim 1.1.3 imports this name from a module in which Python 3.10 removed it.
collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]

from accasim.base.allocator_class import FirstFit  # noqa: E402
from accasim.base.scheduler_class import FirstInFirstOut, ShortestJobFirst  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402

# Name in gangline: (scheduler of AccaSim, whether it continues after a job that does not fit).
SCHEDULERS = {
    "fifo": (FirstInFirstOut, False),
    "fifo-skip": (FirstInFirstOut, True),
    "sjf": (ShortestJobFirst, True),
    "sjf-strict": (ShortestJobFirst, False),
}


def cpu_s() -> float:
    """Return the CPU seconds of this process and of the children it waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class TimedSimulator(Simulator):  # type: ignore[misc]
    """AccaSim's simulator with two stopwatches and no other change."""

    loop_cpu_s = 0.0
    read_cpu_s = 0.0

    def start_hpc_simulation(self, **kwargs: Any) -> None:
        """Time the whole loop."""
        start = time.thread_time()
        super().start_hpc_simulation(**kwargs)
        self.loop_cpu_s = time.thread_time() - start

    def load_events(self, *args: Any, **kwargs: Any) -> None:
        """Time reading and parsing the next jobs."""
        start = time.thread_time()
        super().load_events(*args, **kwargs)
        self.read_cpu_s += time.thread_time() - start


def write_system(path: Path, servers: int, gpus_per_server: int) -> None:
    """Write the system configuration of AccaSim."""
    system = {
        "groups": {"server": {"core": gpus_per_server}},
        "resources": {"server": servers},
        "equivalence": {"processor": {"core": 1}},
        "start_time": 0,
    }
    path.write_text(json.dumps(system))


def run(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run one simulation and return its results."""
    system = folder / "system.json"
    write_system(system, arguments.servers, arguments.gpus_per_server)
    scheduler, skips = SCHEDULERS[arguments.policy]
    keep = arguments.results is not None
    results = arguments.results or folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    simulator = TimedSimulator(
        str(arguments.workload),
        str(system),
        scheduler(FirstFit(), skip_jobs_on_allocation=skips),
        RESULTS_FOLDER_PATH=str(results),
        scheduling_output=keep,
        statistics_output=keep,
        show_statistics=False,
        LOG_LEVEL="WARNING",
    )
    # The simulator drops the manager at the end, so a reference is kept.
    manager = simulator.mapper
    simulator.start_simulation()
    waits, slowdowns = manager.wtimes, manager.slowdowns
    return {
        "policy": arguments.policy,
        "jobs": len(waits),
        "wait_mean_s": sum(waits) / len(waits),
        # AccaSim rounds each job's slowdown to two digits before it takes the mean.
        "slowdown_mean": sum(slowdowns) / len(slowdowns),
        "last_finish_s": manager.last_run_time,
        "loop_cpu_s": simulator.loop_cpu_s - simulator.read_cpu_s,
        "read_cpu_s": simulator.read_cpu_s,
        "process_cpu_s": cpu_s(),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", type=Path)
    parser.add_argument("servers", type=int)
    parser.add_argument("gpus_per_server", type=int)
    parser.add_argument("policy", choices=sorted(SCHEDULERS))
    parser.add_argument("--results", type=Path, help="keep AccaSim's result files here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(arguments, Path(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
