"""Measure what the check of cached data adds to the start of a run.

    python benchmarks/cache_checks.py [--json]

Two cache entries are made of random data: ``cached`` has what CIFAR-10 has in the cache (60,000 images of 3×32×32 bytes, 184 MB), and
``float32`` has the same samples as a table of 50,000 and 10,000 rows of 3,072 floats (737 MB). Each is opened several times, once with
the check and once without it. The files are in the memory of the operating system, as they are for the second run. The difference
of the medians is what the check adds. The exit code is 1 if it is more than 0.3 s for either.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.federation.data.cache_entries import ARRAYS, map_array, read_entry, save
from fedcohort.federation.data.datasets import Dataset

LIMIT = 0.3
"""Limit of the added time in seconds."""


def made(kind: str) -> Dataset:
    """A data set of the size of CIFAR-10; its fingerprint does not matter here."""
    draws = np.random.default_rng(0)

    def features(count: int) -> np.ndarray[Any, Any]:
        if kind == "cached":
            return draws.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        return draws.random((count, 3072), dtype=np.float32)

    labels = [draws.integers(0, 10, count) for count in (50_000, 10_000)]
    classes = tuple("0123456789")
    return Dataset("random", features(50_000), labels[0], features(10_000), labels[1], classes, "0" * 64)


def open_without_checks(entry: Path) -> None:
    """What opening an entry was before contents were checked."""
    json.loads((entry / "meta.json").read_text("utf-8"))
    for key in ARRAYS:
        if "features" in key:
            map_array(entry / f"{key}.npy")
        else:
            np.load(entry / f"{key}.npy")


def median(function: Callable[[], object], repeats: int = 7) -> float:
    """Median of the wall times in seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(kind: str) -> dict[str, Any]:
    """Times in seconds, and bytes, of one kind of entry."""
    with tempfile.TemporaryDirectory() as folder:
        entry = Path(folder)
        dataset = made(kind)
        save(dataset, entry)
        num_bytes = sum(getattr(dataset, key).nbytes for key in ARRAYS)
        del dataset
        without, checked = median(lambda: open_without_checks(entry)), median(lambda: read_entry(entry, "random"))
    return {"kind": kind, "bytes": num_bytes, "without": without, "checked": checked, "added": checked - without}


def main() -> int:
    """Measure both kinds."""
    parser = argparse.ArgumentParser(description="Measure what the check of cached data adds to the start of a run.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(kind) for kind in ("cached", "float32")]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            added = f"{row['added']:.3f} s added (limit {LIMIT:g} s)"
            print(
                f"{row['kind']:<8} {row['bytes'] / 1e6:4.0f} MB: {row['checked']:.3f} s, {row['without']:.3f} s unchecked, {added}"
            )
    return int(any(row["added"] > LIMIT for row in rows))


if __name__ == "__main__":
    sys.exit(main())
