"""Questions are divided among threads: every client is asked once, threads get equal shares, and pieces are neither tiny nor huge."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcohort.engines.work_splitting import PIECE, question_pieces


@given(st.lists(st.integers(1, 3000), max_size=60), st.integers(1, 9))
def test_every_client_is_in_one_piece_in_order(sizes: list[int], threads: int) -> None:
    pieces = question_pieces(np.array(sizes, dtype=np.int64), threads)
    assert [client for piece in pieces for client in range(piece.start, piece.stop)] == list(range(len(sizes)))
    assert all(piece.start < piece.stop for piece in pieces)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.integers(1, 9))
def test_a_piece_has_at_most_its_share_and_one_client(sizes: list[int], threads: int) -> None:
    least, most = PIECE
    found = [sum(sizes[piece]) for piece in question_pieces(np.array(sizes, dtype=np.int64), threads)]
    share = sum(sizes) / (4 * threads)
    assert max(found) < min(max(share, 2 * least), most) + max(sizes)


@pytest.mark.parametrize(
    ("clients", "samples", "threads", "number"),
    [
        (1000, 50, 2, 14),  # 13 pieces would leave one of the threads without work at the end
        (1000, 50, 4, 16),
        (100, 50, 2, 8),
        (10, 60, 2, 2),  # 600 samples are enough for two pieces
        (8, 20, 2, 1),
        (1, 9000, 2, 1),  # a client is not divided
        (0, 0, 2, 0),
    ],
)
def test_numbers_of_pieces(clients: int, samples: int, threads: int, number: int) -> None:
    pieces = question_pieces(np.full(clients, samples, dtype=np.int64), threads)
    assert len(pieces) == number
    counts = [piece.stop - piece.start for piece in pieces]
    assert all(abs(a - b) <= 1 for a, b in itertools.pairwise(counts))
