"""Damage small traces of every format and read them: a trace or a TraceError, nothing else.

One target per format. A find is kept in target/fuzz-readers with the command that repeats it.
"""

from __future__ import annotations

import argparse
import gzip
import lzma
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from gangline.errors import TraceError  # noqa: E402
from gangline.trace import Trace, read_trace  # noqa: E402
from samples.traces import OPTIONS, SAMPLES  # noqa: E402

FINDS = ROOT / "target" / "fuzz-readers"
MAX_BYTES = 1 << 20
SECONDS_MAX = 5.0  # ours: a sample has less than 2 kB
PIECES = (
    *(b"", b",", b"\n", b"\r", b"\t", b";", b'"', b"'", b"-", b"+", b".", b"|", b"#", b" "),
    *(b"0", b"-1", b"1e9", b"1e308", b"1e400", b"9" * 30, b"nan", b"inf", b"-inf", b"None"),
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"[", b"]", b"{", b"}", b"[" * 2000),
    *(b"null", b"true", b'""', b"2017-02-30 00:00:00", b"+25:00", b"\x85", b"x" * 300),
)


def damaged(content: bytes, random_: random.Random) -> bytes:
    """Return the content with a few random edits."""
    for _ in range(random_.randint(1, 5)):
        at = random_.randrange(len(content) + 1)
        what = random_.random()
        if what < 0.45:
            content = content[:at] + random_.choice(PIECES) + content[at + random_.randint(0, 3) :]
        elif what < 0.6:
            content = content[:at] + random_.randbytes(random_.randint(1, 4)) + content[at + 1 :]
        elif what < 0.7:
            content = content[:at]
        elif what < 0.85:
            lines = content.splitlines(keepends=True) or [b""]
            i, j = random_.randrange(len(lines)), random_.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i] * random_.randint(0, 2)
            content = b"".join(lines)
        else:
            end = at + random_.randint(0, 40)
            content = content[:end] + content[at:]
    return content


def packed(name: str, content: bytes, random_: random.Random) -> tuple[str, bytes]:
    """Pack one input in eight, and damage what was packed as often."""
    if random_.random() > 0.125:
        return name, content
    suffix = random_.choice((".gz", ".xz"))
    content = gzip.compress(content, 1, mtime=0) if suffix == ".gz" else lzma.compress(content)
    return name + suffix, damaged(content, random_) if random_.random() < 0.5 else content


def check(trace: Trace) -> None:
    """Check what every trace promises."""
    arrival, gpus = trace.numbers("arrival_s"), trace.numbers("gpus")
    assert len(trace) >= 1, "a trace without jobs"
    assert (gpus >= 1).all(), "a job without GPUs"
    assert (gpus <= 2**15).all(), "a gang without bounds"
    assert (arrival >= 0).all(), "an arrival before 0"
    assert (arrival[1:] >= arrival[:-1]).all(), "arrivals out of order"
    assert len(set(trace.column("job_id").to_pylist())) == len(trace), "two jobs of one id"
    assert "duration_s" in trace.columns or "iterations" in trace.columns, "no work"
    trace.table.validate(full=True)
    trace.info()


def one(folder: Path, name: str, seed: int) -> str | None:
    """Read one damaged input; return what went wrong."""
    random_ = random.Random(seed)
    kind, content = SAMPLES[name]
    stored, content = packed(name, damaged(content, random_), random_)
    path = folder / stored
    path.write_bytes(content)
    options = {"max_bytes": MAX_BYTES, "on_bad_row": random_.choice(("error", "drop"))}
    forced = kind if random_.random() < 0.5 else None
    begun = time.monotonic()
    try:
        trace = read_trace(
            path, format=forced, **options, **(OPTIONS.get(kind, {}) if forced else {})
        )
        check(trace)
    except TraceError as error:
        if not str(error) or "Traceback" in str(error):
            return f"an empty message: {error!r}"
    except Exception:  # noqa: BLE001 - this is what we look for
        return traceback.format_exc()
    finally:
        path.unlink()
    taken = time.monotonic() - begun
    return f"{taken:.1f} s" if taken > SECONDS_MAX else None


def run(name: str, seconds: float, seed: int) -> Iterator[str]:
    """Fuzz the format of one sample; yield what was found."""
    end = time.monotonic() + seconds
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            found = one(Path(folder), name, seed + number)
            if found is not None:
                FINDS.mkdir(parents=True, exist_ok=True)
                (FINDS / f"{name}-{seed + number}.txt").write_text(found, encoding="utf-8")
                yield f"{name} --seed {seed + number} --count 1\n{found}"
                return
            number += 1
    print(f"fuzz reader {SAMPLES[name][0]} ({name}): ok, {number} inputs", flush=True)


def main() -> int:
    """Fuzz all formats, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"samples: {', '.join(SAMPLES)}")
    parser.add_argument("--seconds", type=float, default=20, help="for each format")
    parser.add_argument("--total-seconds", type=float, help="for all of them together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="so many inputs instead of seconds")
    options = parser.parse_args()
    names = options.names or list(SAMPLES)
    seconds = options.seconds
    if options.total_seconds is not None:
        seconds = options.total_seconds / len(names)
    failed = 0
    for name in names:
        if options.count:
            with tempfile.TemporaryDirectory() as folder:
                found = [one(Path(folder), name, options.seed + i) for i in range(options.count)]
            finds = [words for words in found if words is not None]
        else:
            finds = list(run(name, seconds, options.seed))
        failed += bool(finds)
        for words in finds:
            print(f"FAILED: python scripts/fuzz_readers.py {words}", flush=True)
    print(f"{len(names) - failed} formats ok, {failed} not")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
