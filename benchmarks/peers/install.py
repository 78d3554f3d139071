"""Make an environment for each simulator that is compared with: ``python benchmarks/peers/install.py build/peers [NAME …]``.

What does not install is left out and named; the others are measured without it.
"""

import subprocess
import sys
import venv
from pathlib import Path

PEERS = {
    "flower": ["flwr[simulation]==1.41.0", "torch==2.13.0"],
    "pfl": ["pfl[pytorch]==0.6.0", "torch==2.13.0"],
    "fedjax": ["fedjax==0.0.17", "jax==0.10.2", "dm-haiku==0.0.17"],
}


def main() -> None:
    """Install what is missing."""
    folder = Path(sys.argv[1])
    for name in sys.argv[2:] or PEERS:
        place = folder / name
        if (place / ".done").exists():
            continue
        print(f"{name}: {' '.join(PEERS[name])}", flush=True)
        venv.create(place, with_pip=True)
        done = subprocess.run([str(place / "bin" / "python"), "-m", "pip", "install", "-q", *PEERS[name]])
        if done.returncode:
            print(f"{name}: does not install here, left out", flush=True)
        else:
            (place / ".done").touch()


if __name__ == "__main__":
    main()
