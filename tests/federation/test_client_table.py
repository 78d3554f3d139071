"""Tables of clients: what their columns mean, and what is refused, with the row, the column and the value."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.core.errors import UsageError
from fedcohort.federation.client_table import COLUMNS, ClientTable, client_table

WHOLE = """client,samples,class:ill,count_well,seconds_per_sample,communication_seconds,available
Aalborg,100,30,70,0.05,2,0.9
Bergen,40,40,0,0.1,0,1
"""


def read(folder: Path, text: str) -> ClientTable:
    (folder / "clients.csv").write_text(text, encoding="utf-8")
    return client_table(folder / "clients.csv")


def refusal(source: Any) -> str:
    with pytest.raises(UsageError) as error:
        client_table(source)
    return str(error.value)


def test_all_columns(tmp_path: Path) -> None:
    table = read(tmp_path, WHOLE)
    assert (table.name, table.clients, table.classes, len(table)) == (
        "clients",
        ("Aalborg", "Bergen"),
        ("ill", "well"),
        2,
    )
    assert table.samples.tolist() == [100, 40]
    assert table.counts is not None
    assert table.counts.tolist() == [[30, 70], [40, 0]]
    assert table.seconds is not None
    assert table.seconds.tolist() == pytest.approx([5.0, 4.0])
    assert table.communication is not None
    assert table.communication.tolist() == [2.0, 0.0]
    assert table.available is not None
    assert table.available.tolist() == [0.9, 1.0]


def test_only_samples(tmp_path: Path) -> None:
    table = read(tmp_path, "samples\n5\n7.0\n1e2\n\n")
    assert (table.clients, table.samples.tolist()) == (("0", "1", "2"), [5, 7, 100])
    assert (table.counts, table.seconds, table.communication, table.available, table.classes) == (
        None,
        None,
        None,
        None,
        (),
    )


def test_frames_and_parquet_files_are_tables_too(tmp_path: Path) -> None:
    frame = pd.DataFrame({"samples": [5, 7], "seconds": [1.5, 2]})
    frame.to_parquet(tmp_path / "hospitals.parquet")
    for table in (client_table(frame), client_table(tmp_path / "hospitals.parquet")):
        assert table.samples.tolist() == [5, 7]
        assert table.seconds is not None
        assert table.seconds.tolist() == [1.5, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("samples,size\n1,2\n3,4\n", "clients.csv: unknown column 'size'; valid: available, class:NAME, client, "),
        ("client\na\nb\n", "clients.csv: no column 'samples', the number of training samples of each client; add it"),
        ("samples\n5\n", "clients.csv: number of clients: 1; give at least two, one in each row"),
        ("samples\n", "clients.csv: number of clients: 0"),
        ("samples,samples\n1,2\n3,4\n", "clients.csv: the column 'samples' appears 2 times"),
        ("client;samples\na;1\nb;2\n", "clients.csv: columns are separated by ';'; save the table with commas"),
        ("samples\n5,3\n6,4\n", "clients.csv: rows have more values than the first line has names"),
        ("samples,class:a\n5,5\n6,6\n", "clients.csv: has counts of one class, 'a'; give those of all classes, or of none"),
        ("samples,class:a,count_a\n5,5,0\n6,6,0\n", "clients.csv: column 'count_a' is the second column of class 'a'"),
        ("samples,class:\n5,5\n6,6\n", "clients.csv: column 'class:' names no class"),
        ("samples,class:a,class:b\n5,5,0\n6,6,0\n", "clients.csv: column 'class:b': no client has samples of this class"),
        ("samples,seconds,seconds_per_sample\n5,5,1\n6,6,1\n", "clients.csv: has the columns 'seconds' and 'seconds_per_"),
        ("samples,communication_seconds\n5,5\n6,6\n", "clients.csv: has 'communication_seconds', but not the time to train"),
        ("client,samples\na,5\na,6\n", "clients.csv: row 2, column 'client': 'a' is also in row 1; give every client its own name"),
        ("client,samples\na,5\n,6\n", "clients.csv: row 2, column 'client': '' is empty"),
        ("client,samples\na,5\nb,many\n", "clients.csv: row 2 (client 'b'), column 'samples': many; must be a whole number from"),
        ("samples\n5\n0\n", "clients.csv: row 2, column 'samples': 0; must be a whole number from 1 to 1,000,000,"),
        ("samples\n5\n99999999999999999999\n", "clients.csv: row 2, column 'samples': 99999999999999999999; must be"),
        ("samples,seconds\n5,1\n6,1e308\n", "clients.csv: row 2, column 'seconds': 1e308; must be a number of seconds above 0 and at"),
        ("samples\n5\n-1\n", "clients.csv: row 2, column 'samples': -1; must be"),
        ("samples\n5\n2.5\n", "clients.csv: row 2, column 'samples': 2.5; must be a whole number"),
        ("samples,seconds\n5,1\n6,\n", "clients.csv: row 2, column 'seconds': is empty; must be a number of seconds above 0"),
        ("samples,seconds\n5,1\n6,0\n", "clients.csv: row 2, column 'seconds': 0; must be a number of seconds above 0 and at"),
        ("samples,seconds\n5,nan\n6,1\n", "clients.csv: row 1, column 'seconds': nan; must be"),
        ("samples,seconds\n5,inf\n6,1\n", "clients.csv: row 1, column 'seconds': inf; must be"),
        ("samples,available\n5,80%\n6,1\n", "clients.csv: row 1, column 'available': 80%; must be a share above 0 and at most 1"),
        ("samples,available\n5,80\n6,1\n", "clients.csv: row 1, column 'available': 80; must be a share above 0 and at most 1"),
        ("samples,available\n5,0\n6,1\n", "clients.csv: row 1, column 'available': 0; must be a share above 0"),
        ("samples,class:a,class:b\n5,3,2\n6,3,2\n", "clients.csv: row 2, column 'samples': 6, but its classes add up to 5; both"),
        ("samples,class:a,class:b\n5,3,2\n6,3,-3\n", "clients.csv: row 2, column 'class:b': -3; must be a whole number from 0"),
        ("", "clients.csv: is empty; the first line must name the columns"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "clients.csv").write_text(text, encoding="utf-8")
    found = refusal(tmp_path / "clients.csv")
    assert found.startswith(message)
    assert len(found) <= 300


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "none.csv")
    assert "ends in .csv or .parquet" in refusal(tmp_path / "clients.xlsx")
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in refusal(tmp_path / "folder.csv")
    assert "is a folder; give a table of clients, a .csv or .parquet file" in refusal(tmp_path)
    (tmp_path / "latin.csv").write_bytes("client,samples\nÅlborg,5\nB,6\n".encode("latin-1"))
    assert refusal(tmp_path / "latin.csv") == "latin.csv: is not UTF-8 text; save it as UTF-8"
    assert refusal(7) == "clients = 7: should be a path, such as 'runs'"


CELLS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
NAMES = st.sampled_from(
    [name for name in COLUMNS if name != "class:NAME"] + ["class:a", "class:b", "count_a", "class:"]
)


@given(st.dictionaries(NAMES, st.lists(CELLS, min_size=3, max_size=3), max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_cells_are_read_or_refused_in_one_line(columns: dict[str, list[Any]]) -> None:
    with suppress(UsageError):
        table = client_table(pd.DataFrame(columns, dtype=object))
        assert (table.samples >= 1).all()
        for numbers in (table.seconds, table.communication, table.available):
            assert numbers is None or np.isfinite(numbers).all()
