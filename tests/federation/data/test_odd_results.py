"""What a user's function can return or raise besides data: one line that names the function."""

from pathlib import Path

import pytest

from fedcohort import UsageError
from fedcohort.federation.data.load_dataset import load

HEAD = """
import numpy as np, scipy.sparse, sys, torch
X = np.random.default_rng(0).normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)
class Own(BaseException): pass
class Mute(Exception):
    def __str__(self): raise RuntimeError
class Exits:
    def __array__(self, *_, **__): sys.exit(5)
"""

RESULTS = {
    "return scipy.sparse.csr_matrix(X), Y": r"features: is a sparse matrix \(csr_matrix\); give a dense array",
    "return torch.tensor(X).to_sparse(), Y": "features: not an array",
    "return torch.empty(60, 3, device='meta'), Y": "features: not an array",
    "return [[1] * n for n in range(60)], Y": "features: not an array",
    "return (X, Y), X": "features: not an array",
    "return (X, Y), (X, Y), (X, Y)": "features: not an array",
    "return np.float64(3), Y": "features: are no array but float64",
    "return np.ma.array(X, mask=X > 0), Y": r"features: \d+ values are masked; drop or replace them$",
    "return X, np.ma.array(Y, mask=Y > 0)": r"labels: \d+ values are masked",
    "z = X[0]; return {'train': (X[:3], np.ma.array(z, mask=[1, 0, 0])), 'test': (X[:3], z), 'numeric': True}": "labels: 1 .* masked",
    "return {'train': (X, Y), 'test': (X, Y), 'classes': 5}": r"classes = 5: should be a list with the name of each class$",
    "return {'features': X, 'labels': Y, 'classes': 'ab'}": r"classes must be texts \[K\], one name for each class",
    "return Exits(), Y": r"returned an object that raised SystemExit: 5 \(.*mine\.py:\d+\)$",
    "raise Own('x' * 1000)": r"raised Own: x+…x+ \(.*mine\.py:\d+\)$",
    "raise GeneratorExit": r"raised GeneratorExit \(.*mine\.py:\d+\)$",
    "raise Mute": r"raised Mute \(.*mine\.py:\d+\)$",
}


@pytest.mark.parametrize("body", RESULTS)
def test_odd_results_of_functions_are_refused(body: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{HEAD}\ndef load():\n    {body}\n")
    with pytest.raises(UsageError, match=RESULTS[body]):
        load(f"{tmp_path / 'mine.py'}:load")


@pytest.mark.parametrize(
    "text", ["class B(BaseException): ...\nraise B('a')", "def __getattr__(name): raise RuntimeError\n"]
)
def test_odd_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UsageError, match=r"cannot be imported: B: a|defines no load; it defines __getattr__$"):
        load(f"{tmp_path / 'mine.py'}:load")


def test_a_signal_in_a_function_still_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def load():\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load(f"{tmp_path / 'mine.py'}:load")
