"""Names beside the points of many rows: none covers another name or a point, at any width."""

import itertools

import numpy as np
import pandas as pd
import pytest

from fedcohort.report.charts.names_beside_points import BESIDE, LED, RADIUS, WIDTHS, names_with_room

SIZE, HEIGHT = 12.0, 240.0


def points(*rows: tuple[str, float, float]) -> pd.DataFrame:
    return pd.DataFrame(
        [{"strategy": name, "name": name, "at": at, "accuracy": accuracy} for name, at, accuracy in rows]
    )


def placed(frame: pd.DataFrame, wanted: list[int] | None = None) -> pd.DataFrame:
    own = list(frame.index) if wanted is None else wanted
    return names_with_room(frame, own, lambda at: at, [0.0, 1.0], (SIZE, HEIGHT))


def box(row: pd.Series, width: float) -> tuple[float, float, float, float]:
    wide, y = 0.6 * SIZE * len(row["name"]), row["name_y"] * HEIGHT
    beside = LED if row["far"] else BESIDE
    left = row["at"] * width + (beside if row["right"] else -beside - wide)
    return left, left + wide, y - SIZE / 2, y + SIZE / 2


def apart(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]


def test_a_name_stands_beside_its_point() -> None:
    found = placed(points(("uniform", 0.2, 0.5)))
    assert found["least"].tolist() == list(WIDTHS)
    assert found["name_y"].tolist() == pytest.approx([0.5] * len(WIDTHS))
    assert found["right"].all()
    assert not found["far"].any()


def test_names_at_the_right_end_stand_on_the_left() -> None:
    assert not placed(points(("uniform", 0.99, 0.5)))["right"].any()


def test_rows_without_points_have_no_names() -> None:
    assert placed(points(("uniform", 0.2, 0.5)).iloc[:0]).empty


def test_names_of_a_crowd_cover_no_name_and_no_point_at_any_width() -> None:
    rng = np.random.default_rng(0)
    frame = points(*((f"row {i:02}", *(0.4 + 0.2 * rng.random(2)).tolist()) for i in range(38)))
    found = placed(frame, list(range(9)))
    assert found.groupby("least").size().max() >= 4
    assert found["name_y"].between(0, 1.05).all()
    assert found["far"].any(), "some are led to their points"
    for least, own in found.groupby("least"):
        width = float(str(least))
        boxes = {row["name"]: box(row, width) for _, row in own.iterrows()}
        assert all(apart(one, other) for one, other in itertools.combinations(boxes.values(), 2))
        for (name, text), (_, point) in itertools.product(boxes.items(), frame.iterrows()):
            x, y = point["at"] * width, point["accuracy"] * HEIGHT
            assert name == point["name"] or apart(text, (x - RADIUS, x + RADIUS, y - RADIUS, y + RADIUS))


def test_a_name_without_room_is_left_out_and_the_first_ones_have_it() -> None:
    same = points(*((f"row {i}", 0.5, 0.5) for i in range(40)))
    found = placed(same, list(range(39, -1, -1)))
    narrow = found[found["least"] == WIDTHS[0]]
    assert 0 < len(narrow) < 40
    assert narrow["name"].iloc[0].endswith(" 39")
