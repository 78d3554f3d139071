"""Texts divided among roles: files of a play, and the invented dialogue."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedcohort.core.errors import UsageError
from fedcohort.federation.data.dialogue_data import DIALOGUES, dialogue, spoken
from fedcohort.federation.data.load_dataset import load
from fedcohort.federation.data.texts import from_text, read_play
from fedcohort.federation.data.token_data import TokenDataset

NAMES = {"newline": "\n", "space": " "}

PLAY = """A play of two voices.

MILLER: The wheel turns, and the river pays.
  The river pays again.

OLD WOMAN: Who pays the river? Nobody: nobody.
MILLER: The wheel turns!
"""


def text_of(data: TokenDataset, tokens: np.ndarray) -> str:
    return "".join(NAMES.get(data.tokens[token], data.tokens[token]) for token in tokens)


def whole(data: TokenDataset) -> list[str]:
    """All windows, sorted."""
    return sorted(text_of(data, window) for window in np.concatenate([data.train_features, data.test_features]))


def test_the_windows_of_a_role_cover_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "play.txt"
    file.write_text(PLAY, encoding="utf-8")
    miller = "The wheel turns, and the river pays.\nThe river pays again.\nThe wheel turns!\n"
    woman = "Who pays the river? Nobody: nobody.\n"
    expected = [text[i : i + 8] for text in (miller, woman) for i in range(0, len(text) - 8, 8)]
    data = read_play(file, window=8)
    assert whole(data) == sorted(expected)
    assert (data.name, data.each_position) == ("play.txt", True)
    assert data.writers is not None
    assert np.bincount(data.writers).tolist() == [7, 3], "80% of 9 and of 4 windows, rounded"
    for tokens, labels in ((data.train_features, data.train_labels), (data.test_features, data.test_labels)):
        assert tokens.shape == labels.shape
        assert (tokens[:, 1:] == labels[:, :-1]).all(), "a label is the next token"
        for window, label in zip(tokens, labels, strict=True):
            assert text_of(data, window) + text_of(data, label[-1:]) in miller + "|" + woman


def test_the_role_as_the_class_of_a_window(tmp_path: Path) -> None:
    file = tmp_path / "play.txt"
    file.write_text(PLAY, encoding="utf-8")
    data = read_play(file, window=8, task="role")
    assert data.classes == ("MILLER", "OLD WOMAN")
    assert not data.each_position
    woman = "Who pays the river? Nobody: nobody.\n"
    assert data.train_labels.tolist() == (data.writers.tolist() if data.writers is not None else [])
    for window, role in zip(data.train_features, data.train_labels, strict=True):
        assert (role == 1) == (text_of(data, window) in woman)
    assert (len(data.train_labels) + len(data.test_labels)) == 77 // 8 + 36 // 8


def test_the_same_file_gives_the_same_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "play.txt"
    file.write_text(PLAY, encoding="utf-8")
    data = load(str(file), window=8)
    assert data.fingerprint == read_play(file, window=8).fingerprint
    assert data.fingerprint != load(str(file), window=9).fingerprint
    monkeypatch.chdir(tmp_path)
    assert load("play.txt", window=8).fingerprint == data.fingerprint
    file.write_text(PLAY.replace("river", "water"), encoding="utf-8-sig")
    assert load("play.txt", window=8).fingerprint != data.fingerprint


@pytest.mark.parametrize(
    ("content", "window", "message"),
    [
        (b"Hamlet: to be", 8, "has no line of the form ROLE: text, with the role in capitals"),
        (b"", 8, "has no line of the form ROLE: text"),
        (b"HAMLET: \xff\xfe", 8, r"is not UTF-8 text \(byte 8\)"),
        (b"HAMLET: to be", 8, "window = 8: gives 0 windows of 1 role, the longest of which has 6 characters"),
        (b"HAMLET: to be or not", 0, "window = 0: should be a number of characters"),
    ],
)
def test_files_that_cannot_be_used(content: bytes, window: int, message: str, tmp_path: Path) -> None:
    file = tmp_path / "play.txt"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=message) as raised:
        read_play(file, window=window)
    assert "\n" not in str(raised.value)


def test_the_task_of_a_text_file(tmp_path: Path) -> None:
    file = tmp_path / "play.txt"
    file.write_text(PLAY, encoding="utf-8")
    data = load(str(file), window=8, task="role")
    assert data.fingerprint == read_play(file, window=8, task="role").fingerprint
    assert data.fingerprint != load(str(file), window=8).fingerprint
    assert data.classes == ("MILLER", "OLD WOMAN")
    with pytest.raises(UsageError, match=r"data.task = 'role': only for text files \(.txt\); name 'dialogue_roles'"):
        load("dialogue", task="role")
    with pytest.raises(UsageError, match=r"data.task = 'role': only for text files \(.txt\); leave it out"):
        load("digits", task="role")


def test_a_missing_file_and_columns_of_a_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none.txt': cannot be read \(No such file"):
        load(str(tmp_path / "none.txt"))
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(UsageError, match=r"pipe.txt': is a pipe; give a text file"):
        load(str(tmp_path / "pipe.txt"))
    for name in ("\0.txt", "x" * 5000 + ".txt", "~nobody/x.txt"):
        with pytest.raises(UsageError, match="cannot be read") as raised:
            load(name)
        assert len(str(raised.value)) < 300
    with pytest.raises(UsageError, match="has no columns to choose"):
        load("dialogue", label_column="role")
    with pytest.raises(UsageError, match=r"lines: 'AB' should be a pair of texts \(role, text\)"):
        from_text(["AB"])  # type: ignore[list-item]
    for path in ("play.txt", Path("play.txt")):
        with pytest.raises(UsageError, match=r"should be pairs .*; to read a text file, .*: data\.name = 'play\.txt'$"):
            from_text(path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"lines is a dictionary; .*: lines\.items\(\)$"):
        from_text({"A": "b"})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match=r"window = '8': should be a number of characters from 1 to 100,000$"):
        from_text([("A", "b")], window="8")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="task = 'word': valid are 'next' and 'role'"):
        from_text([("A", "b")], task="word")


def test_the_dialogue_has_24_roles_that_differ() -> None:
    texts: dict[str, set[str]] = {}
    for role, sentence in spoken():
        texts.setdefault(role, set()).update(sentence.lower().strip(".!?").replace(",", "").split())
    assert len(texts) == 24
    same_trade = len(texts["CALM BAKER"] & texts["ANGRY BAKER"]) / len(texts["CALM BAKER"] | texts["ANGRY BAKER"])
    neither = len(texts["CALM BAKER"] & texts["ANGRY SMITH"]) / len(texts["CALM BAKER"] | texts["ANGRY SMITH"])
    assert same_trade > 2 * neither
    sizes = np.bincount(dialogue("dialogue").writers)  # type: ignore[arg-type]
    assert sizes.min() >= 30, "every role can be a client of the natural partition"
    assert 3 < sizes.max() / sizes.min() < 9


@pytest.mark.parametrize("name", DIALOGUES)
def test_the_dialogue_is_always_the_same(name: str) -> None:
    data = load(name)
    assert isinstance(data, TokenDataset)
    spoken.cache_clear()
    assert load(name).fingerprint == data.fingerprint
    assert data.train_features.shape[1] == 32
    assert data.each_position == (name == "dialogue")
    assert load(name, window=20).train_features.shape[1] == 20
