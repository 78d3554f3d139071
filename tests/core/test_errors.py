"""Messages of errors: one line of limited length, in which values are shortened."""

import pytest

from fedcohort.core.errors import LONGEST, UsageError, nearest, one_line, shown


@pytest.mark.parametrize(
    "text",
    [
        "x" * 10_000_000,
        "data.name = '" + "x" * 1000 + "': no such data set",
        "word " * 100_000,
        "/very/long/folder" * 30 + "/file.toml: cannot be read: " + "y" * 500,
        "\x1b[31m" * 200,
        "漢" * 1000,
        "\udcff" * 1000,
    ],
)
def test_a_message_is_one_printable_line_of_limited_length(text: str) -> None:
    message = str(UsageError(text))
    assert message.isprintable()
    assert 40 < len(message) <= LONGEST == 300
    assert one_line(message) == message


def test_a_short_message_stays_as_it_is() -> None:
    message = "selection.k = 5: more than federation.clients = 3; use 1 to 3 – or “more” clients"
    assert one_line(f"  {message}\n") == message


def test_long_words_are_shortened_before_anything_else_is_left_out() -> None:
    path = f"/tmp/{'deep/' * 60}experiment.toml"
    message = one_line(f"{path}: selection.name = '{'x' * 400}': no such strategy; valid: ucb, oort")
    assert message.startswith("/tmp/deep")
    assert "experiment.toml: selection.name = 'xx" in message
    assert message.endswith("xx': no such strategy; valid: ucb, oort")


def test_control_characters_are_escaped() -> None:
    assert one_line("a\x00b\x1b[0m\u202e\udc80") == r"a\x00b\x1b[0m\u202e\udc80"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        ("ucb", "'ucb'"),
        ({"b": 1, "a": [True, None]}, "{'b': 1, 'a': [True, None]}"),
        ([1, 2.5, "x"], "[1, 2.5, 'x']"),
        (float("nan"), "nan"),
        ((), "()"),
        ({}, "{}"),
    ],
)
def test_a_short_value_is_shown_as_python_writes_it(value: object, text: str) -> None:
    assert shown(value) == text


class Broken:
    def __repr__(self) -> str:
        raise ValueError


def test_any_value_can_be_shown() -> None:
    nested: list[object] = []
    for _ in range(10_000):
        nested = [nested]
    values = (nested, "x" * 10**7, 1 << 10**6, [1] * 10**6, {i: i for i in range(10**5)}, Broken(), {"a": Broken()})
    for value in values:
        assert 2 < len(shown(value)) <= 100
    assert shown(1 << 10**6) == "<integer of 1000001 bits>"


def test_a_long_list_of_names_is_cut_at_a_name() -> None:
    names = [f"strategy_{i:02}" for i in range(40)]
    hint = nearest("zzz", names)
    assert hint.startswith("valid: strategy_00, strategy_01, ")
    assert hint.endswith(", … (40 names)")
    assert len(hint) < 220
    assert nearest("strategi_07", names).startswith("did you mean 'strategy_07'? (valid: ")
    assert nearest("x" * 10**7, ["a"]) == "valid: a"


def test_only_similar_names_are_suggested() -> None:
    assert nearest("st-mary", ["mayo", "bergen"]) == "valid: bergen, mayo"
    assert nearest("bergen", ["essen"]) == "valid: essen"
    assert nearest("client", ["dirichlet_client", "iid"]).startswith("did you mean 'dirichlet_client'?")
    assert nearest("acc", ["accuracy"]).startswith("did you mean 'accuracy'?")


def test_names_with_commas_are_quoted_in_lists_of_names() -> None:
    """The labels of a sweep were not told apart: UCB, k=1, UCB, k=2."""
    assert nearest("zz", ["UCB, k=1", "UCB, k=2", "md"]) == "valid: 'UCB, k=1', 'UCB, k=2', md"
    many = [f"UCB, k={k}" for k in range(100, 200)]
    words = nearest("zz", many)
    assert words.endswith("', … (100 names)")
    assert words.count("'") % 2 == 0
