"""Play 10,000 rounds of a small run, and 300 runs in one process, and watch memory, open files, threads and the size of the record.

After the first tenth, memory may grow by what :data:`GROWTH` permits, open files and threads may not grow at all, and the record may
grow by a fixed number of bytes a round. Samples are taken after a garbage collection.
"""

import gc
import json
import os
import random
from pathlib import Path
from typing import Any

from tests.campaign.attack import Attack, Unavailable, hold
from tests.campaign.federations import description
from tests.campaign.forked import begin

__all__ = ["GROWTH", "Soak"]

GROWTH = {"rounds": 8.0, "runs": 12.0}
"""Permitted growth of resident memory between a tenth and the end, in MiB, by case."""

BYTES_PER_ROUND = 1500
"""Permitted size of the record, in bytes per round with two of six clients."""


class Soak(Attack):
    """A long run, and many runs."""

    name = "soak"
    did = "a long small run, and many runs in one process: no growth of memory, open files, threads, bytes per round"
    unit = "rounds and runs"
    full = 2
    least = 2
    small = (3,)
    limit = 3000.0
    quick = (4, 5)

    def prepare(self) -> None:
        """See that the system tells how much memory a process has.

        Raises:
            Unavailable: it does not.
        """
        if not Path("/proc/self/statm").exists():
            raise Unavailable("the soak reads /proc/self, which only Linux has")

    def case(self, number: int, draw: random.Random) -> int:
        """The long run (0) and the many runs (1); both much shorter for the usual tests (2, 3), and a tenth of them (4, 5)."""
        kind = "runs" if number % 2 else "rounds"
        count = ((300, 15, 30) if number % 2 else (10_000, 120, 1_000))[number // 2]
        place, file = self.place, self.place / "samples.json"
        child = begin(lambda: (_many if number % 2 else _long)(place / "runs", count, file), place)
        ended = child.wait(self.limit - 50)
        hold(ended.code == 0, f"exit code {ended.code}: {ended.err[-1500:]}")
        samples = json.loads(file.read_text())
        self._judge(kind, count, samples, place / "runs")
        return count

    def _judge(self, kind: str, count: int, samples: list[dict[str, float]], runs: Path) -> None:
        """Compare the samples after a tenth with those at the end."""
        hold(len(samples) >= 3, f"only {len(samples)} samples of {count} {kind}")
        first = samples[: max(2, len(samples) // 10)]
        early = {key: max(sample[key] for sample in first) for key in first[0]}
        late = {key: max(sample[key] for sample in samples[-max(1, len(samples) // 20) :]) for key in early}
        grown = (late["memory"] - early["memory"]) / 2**20
        size = sum(file.stat().st_size for file in runs.rglob("*") if file.is_file())
        self.figures |= {
            f"{count:,} {kind}": f"memory +{grown:.1f} MiB, open files {early['files']:g} → {late['files']:g}, threads "
            f"{early['threads']:g} → {late['threads']:g}, record {size / count:,.0f} bytes each"
        }
        hold(
            grown <= GROWTH[kind],
            f"memory grew by {grown:.1f} MiB over {count} {kind}, from {early['memory'] / 2**20:.0f} MiB",
        )
        hold(late["files"] <= early["files"], f"open files grew from {early['files']:g} to {late['files']:g}")
        hold(late["threads"] <= early["threads"], f"threads grew from {early['threads']:g} to {late['threads']:g}")
        hold(
            kind == "runs" or size <= BYTES_PER_ROUND * count + 200_000,
            f"the record has {size / count:.0f} bytes a round",
        )


def _sample() -> dict[str, float]:
    """Memory in bytes, open files and threads of this process, after a garbage collection."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    counts = {
        name: len(list(Path(f"/proc/self/{place}").iterdir())) for name, place in (("files", "fd"), ("threads", "task"))
    }
    return {"memory": float(pages * os.sysconf("SC_PAGE_SIZE")), **counts}


def _long(runs: Path, rounds: int, file: Path) -> None:
    """Play one run, and take about 200 samples."""
    import fedcohort

    samples: list[dict[str, float]] = []
    measures = {"clients_every": 0, "checkpoint_every": 10, "evaluate_every": 10}
    experiment = fedcohort.Experiment(**description(rounds=rounds, selection={"name": "ucb"}, measures=measures))

    def progress(_cell: Any, row: Any) -> None:
        if row.round % max(10, rounds // 200) == 0:
            samples.append(_sample())

    fedcohort.run(experiment, runs=runs, progress=progress)
    file.write_text(json.dumps(samples))


def _many(runs: Path, count: int, file: Path) -> None:
    """Play runs under one seed after another, and take a sample after every fifth run."""
    import fedcohort

    samples = []
    for seed in range(count):
        run = fedcohort.run(
            fedcohort.Experiment(**description(rounds=2, selection={"name": "ucb"})), seed=seed, runs=runs
        )
        assert fedcohort.open_run(run.path).last_round == 2
        if seed % 5 == 4:
            samples.append(_sample())
    file.write_text(json.dumps(samples))
