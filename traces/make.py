"""Make the bundled traces and their manifest again.

The rows depend on the seeds below alone. The bytes of the files also depend on the version of
pyarrow that wrote them, so the manifest is written with them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import gangline as gl

FOLDER = Path(__file__).resolve().parent
# Loads are offered loads on 64 GPUs, the size of the preset that the demo uses. Jobs of more than
# two days would leave the demo waiting for a single job.
TRACES: dict[str, dict[str, Any]] = {
    "philly": {"jobs": 2000, "seed": 1, "max_gpus": 16, "load": 1.1},
    "helios": {"jobs": 2000, "seed": 2, "max_gpus": 32, "load": 0.9},
    "pai": {"jobs": 2000, "seed": 3, "max_gpus": 32, "load": 0.9},
}
COMMON = {"cluster_gpus": 64, "max_duration_s": 172800.0}


def main() -> None:
    """Write mini/*.parquet and MANIFEST.toml."""
    entries = ["# Written by make.py; do not edit."]
    (FOLDER / "mini").mkdir(exist_ok=True)
    for name, parameters in TRACES.items():
        settings = {**parameters, **COMMON}
        trace = getattr(gl.synth, name)(**settings)
        path = FOLDER / "mini" / f"{name}.parquet"
        gl.write_trace(trace, path)
        query = "&".join(f"{key}={value}" for key, value in settings.items())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        fields = {
            "name": f"mini-{name}",
            "file": f"mini/{name}.parquet",
            "origin": f"synth:{name}?{query}",
            "licence": "Apache-2.0",
            "rows": len(trace),
            "sha256": digest,
            "command": "python traces/make.py",
        }
        lines = [
            f"{key} = {value}" if isinstance(value, int) else f'{key} = "{value}"'
            for key, value in fields.items()
        ]
        entries.append("\n[[trace]]\n" + "\n".join(lines))
    (FOLDER / "MANIFEST.toml").write_text("\n".join(entries) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
