"""Everything runs where tensors do not lie with the CPU: no operation mixes devices, and steps do not wait for the device.

On :mod:`tests.engines.pretend`, a device without hardware. Only a GPU can show its arithmetic (``test_device.py``) and its speed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "which",
    [
        ["few"],
        pytest.param(["few", "without_float64"], marks=pytest.mark.slow),
        pytest.param(["all"], marks=pytest.mark.slow),
        pytest.param(["all", "without_float64"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_device_that_refuses_what_a_gpu_refuses(which: list[str]) -> None:
    """Also a device without float64, as the GPU of a Mac."""
    pytest.importorskip("torch.utils.backend_registration")
    import torch.utils.backend_registration as registration

    if not hasattr(registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch has no devices that are written in Python")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.engines.pretend_cases", *which],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["cases"] >= 4
    assert not said["wrong"], "\n".join(f"{name}:\n{why}" for name, why in said["wrong"].items())
