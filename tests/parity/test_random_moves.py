"""Random placement draws by how often a job was started, and a move is no start."""

from __future__ import annotations

from typing import Any

from .test_parity import compare


def test_a_move_is_no_start() -> None:
    """Gangs on six servers, whose leases end every 12 s: some move, then others start."""
    jobs: list[dict[str, Any]] = [
        {
            "job_id": f"j{at}",
            "arrival_s": float(3 * (at // 3)),
            "gpus": 1 + at % 4,
            "duration_s": 7.0 + 5.0 * (at % 5),
        }
        for at in range(14)
    ]
    world = {
        "cluster": {
            "name": "lab",
            "gpu_types": [{"name": "a"}, {"name": "b", "speed": 1.5}],
            "servers": [
                {"count": 3, "gpu": "a", "gpus": 2},
                {"count": 3, "gpu": "b", "gpus": 3},
            ],
            "failures": {"table": [{"server": 0, "down_s": 7.5, "up_s": 8.0}]},
        },
        "jobs": jobs,
        "run": {"seed": 10, "restart_s": 1.0},
    }
    params = {"lease_s": 12.0, "fairness": 0.3, "placement": "random"}
    compare(world, "themis", params)
