"""Runs what the profile of a published wheel is measured on, in the first build of ``make wheel``.

A profile-guided build optimises the code for the branches that these runs take. So they are
short versions of typical runs: every policy of the package, empty and long queues, a network, and
exported results. They are neither tests nor measurements.
"""

from __future__ import annotations

import gangline as gl

QUEUES = ("fifo", "fifo-skip", "easy", "sjf", "srtf", "srsf", "las", "gittins", "tiresias")
LOADS = (0.6, 2.0)
NETWORKED = ("dally", "tiresias", "themis", "gandiva")
MIXED = {
    "name": "two types",
    "gpu_types": [
        {"name": "new", "memory_gb": 32, "price_per_hour": 3.0, "speed": 2.0},
        {"name": "old", "memory_gb": 16, "price_per_hour": 1.0},
    ],
    "sharing": {"xi": 1.3},
    "servers": [
        {"count": 6, "gpu": "new", "gpus": 4},
        {"count": 8, "gpu": "old", "gpus": 4},
    ],
}


def main(many: int = 20_000, few: int = 300) -> None:
    """Run everything once; a policy that cannot run here is an error.

    Parameters
    ----------
    many, few
        The numbers of jobs of a run on the large cluster, and on the small one with two GPU types.
    """
    large = gl.Cluster.homogeneous(servers=125, gpus=8, gpu="V100", servers_per_rack=25)
    for load in LOADS:
        trace = gl.synth.philly(jobs=many, seed=11, load=load, cluster_gpus=large.gpus_total)
        for policy in QUEUES:
            result = gl.simulate(large, trace, policy, on_infeasible="drop")
            result.jobs.num_rows  # noqa: B018  the columns are made when they are asked for
    small = gl.Cluster.from_dict(MIXED)
    short = gl.synth.philly(jobs=few, seed=12, load=1.2, cluster_gpus=small.gpus_total, max_gpus=4)
    for policy in sorted(gl.policies.registry):
        gl.simulate(small, short, policy, restart_s=30.0, on_infeasible="drop")
    networked = gl.Cluster.preset("dally-2024")
    gangs = gl.synth.dally_batch(jobs=500, seed=13)
    for policy in NETWORKED:
        gl.simulate(networked, gangs, policy, restart_s=30.0, on_infeasible="drop")


if __name__ == "__main__":
    main()
