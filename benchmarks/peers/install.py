"""Make an environment for each of the other simulators: ``python benchmarks/peers/install.py build/peers [NAME …]``.

PyTorch is installed first and alone. The simulator is installed with that version as a constraint, so that its dependencies do not
install another one. A simulator that cannot be installed is named and omitted; the others can be measured without it. Finished
environments are not changed.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

TORCH = "torch==2.13.0"
PEERS = {
    "flower": [TORCH, "flwr[simulation]==1.41.0"],
    "pfl": [TORCH, "pfl[pytorch]==0.6.0"],
    "fedjax": ["jax==0.10.2", "fedjax==0.0.17", "dm-haiku==0.0.17"],
    "fluke": [TORCH, "fluke-fl==0.8.1"],
    "flgo": [TORCH, "flgo==0.4.4"],
    "fedlab": [TORCH, "fedlab==1.3.0"],
}


def install(place: Path, first: str, others: list[str]) -> bool:
    """Make a new environment, install ``first`` and then the others. Returns whether that succeeded."""
    venv.create(place, with_pip=True, clear=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as held:
        held.write(first)
        held.flush()
        steps = [[first], ["-c", held.name, *others]]
        return all(subprocess.run([*pip, *step]).returncode == 0 for step in steps)


def main() -> None:
    """Make the environments that are missing."""
    folder = Path(sys.argv[1])
    for name in sys.argv[2:] or PEERS:
        first, *others = PEERS[name]
        done = folder / name / ".done"
        if done.exists():
            continue
        print(f"{name}: {first}, then {' '.join(others)}", flush=True)
        if install(folder / name, first, others):
            done.touch()
        else:
            print(f"{name}: cannot be installed here, omitted", flush=True)


if __name__ == "__main__":
    main()
