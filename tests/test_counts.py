"""Class counts and Lipschitz values from files of many forms, and errors in them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isfl.data.counts import read_counts, read_lipschitz
from isfl.errors import UserError
from tests.worlds import counted, written


@pytest.mark.parametrize(
    ("text", "clients", "classes", "counts"),
    [
        ("5,6\n7,8\n", ("0", "1"), ("0", "1"), [[5, 6], [7, 8]]),
        ("cat,dog\n5,6\n7,8\n", ("0", "1"), ("cat", "dog"), [[5, 6], [7, 8]]),
        ("client,cat,dog\n7,5,6\n9,7,8\n", ("7", "9"), ("cat", "dog"), [[5, 6], [7, 8]]),
        ("a,5,6\nb,7,8\n", ("a", "b"), ("0", "1"), [[5, 6], [7, 8]]),
        (",0,1\n0,5,6\n1,7,8\n", ("0", "1"), ("0", "1"), [[5, 6], [7, 8]]),  # as pandas writes it
        ("0,1,2\n5,6,9\n7,8,9\n", ("0", "1"), ("0", "1", "2"), [[5, 6, 9], [7, 8, 9]]),
        ("\ufeffcat;dog;\r\n5;6;\r\n7;8;\r\n;;\r\n", ("0", "1"), ("cat", "dog"), [[5, 6], [7, 8]]),
        ("cat\tdog\n\n5.0\t6e0\n 7 \t8\n\n", ("0", "1"), ("cat", "dog"), [[5, 6], [7, 8]]),
        ('"cat, grey","dog"\r5,6\r"7",8\r', ("0", "1"), ("cat, grey", "dog"), [[5, 6], [7, 8]]),
        ("\ufeff5,6\n7,8\n", ("0", "1"), ("0", "1"), [[5, 6], [7, 8]]),
        ("n\n5\n6\n", ("0", "1"), ("n",), [[5], [6]]),
        (f"{2**40},3\n1,{2**53}\n", ("0", "1"), ("0", "1"), [[2**40, 3], [1, 2**53]]),
    ],
)
def test_counts_are_read(
    tmp_path: Path, text: str, clients: tuple[str, ...], classes: tuple[str, ...], counts: list[list[int]]
) -> None:
    found = read_counts(written(tmp_path, text))
    assert (found.clients, found.classes) == (clients, classes)
    np.testing.assert_array_equal(found.counts, counts)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "c.csv: is empty"),
        ("\n\n,,\n", "c.csv: is empty"),
        ("cat,dog\n", "c.csv: row 1 is a header and no row follows it"),
        ("1,2\n3,-4\n", "c.csv: row 2, column 2: found '-4'; a count is a whole number, 0 or more"),
        ("1,2\n3,0.5\n", "c.csv: row 2, column 2: found '0.5'; a count is a whole number"),
        ("cat,dog\n\n3,\n4,5\n", "c.csv: row 3, column 2 (dog): is missing; write 0"),
        ("cat,dog\n3,NaN\n", "c.csv: row 2, column 2 (dog): is missing; write 0"),
        ("1,2\n,\n3,4\n", "c.csv: row 2, column 1: is missing"),
        ("a,1,2\nb,3,x\n", "c.csv: row 2, column 3: found 'x'; write a whole number"),
        ("1,2\nx,4\n3,4\n", "c.csv: row 2, column 1: found 'x'; write a whole number"),
        ("1;2\n3;1,5\n", "c.csv: row 2, column 2: found '1,5'; write a whole number"),
        ("1,2\n3,4,5\n", "c.csv: row 2 has 3 cells where row 1 has 2"),
        ("1,2\n3,inf\n", "c.csv: row 2, column 2: found 'inf'; write a whole number"),
        ("1,2\n3,1e300\n", "c.csv: row 2, column 2: found '1e300'; a count is at most 2^53"),
        ('1,2\n3,"4\n5,6\n', "c.csv: row 2 is not valid CSV"),
        ("0,0\n0,0\n", "c.csv: row 1 has no samples, nor has any other client"),
        (b"\xff\xfe1\x00,\x002\x00", "c.csv: is not text in UTF-8"),
        ("1,2\n3," + "9" * 50 + "\n", "found '99999999999999999999999…'; a count is at most 2^53"),
    ],
)
def test_a_wrong_file_is_refused_with_the_position(tmp_path: Path, text: str | bytes, told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)) as error:
        read_counts(written(tmp_path, text))
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


@given(st.text(alphabet='01 9.,;-"\t\nxé', max_size=40))
@settings(deadline=None)
def test_any_text_is_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path, refusal = written(tmp_path_factory.getbasetemp(), text, "any.csv"), ""
    try:
        found = read_counts(path)
    except UserError as error:
        refusal = str(error)
    assert "\n" not in refusal
    if not refusal:
        assert (found.counts.sum(axis=1) > 0).all()
        assert found.counts.shape == (len(found.clients), len(found.classes))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_counts(tmp_path / "none.csv")
    with pytest.raises(UserError, match="cannot be read"):
        read_counts(tmp_path)


def test_empty_clients_are_left_out_and_named(tmp_path: Path) -> None:
    text = "client,cat,dog,emu\na,5,6,0\nb,0,0,0\nc,1,2,0\n" + "".join(f"d{i},0,0,0\n" for i in range(5))
    found = read_counts(written(tmp_path, text))
    assert found.clients == ("a", "c") and found.kept == (0, 2) and found.given == 8
    assert any("row 3 (b) has no samples: left out" in note for note in found.notes)
    assert "3 more clients without samples are left out" in found.notes
    assert "no client holds a sample of class emu" in found.notes
    values = written(tmp_path, "".join(f"{k}.5,1,2\n" for k in range(8)), "l.csv")
    lipschitz = read_lipschitz(str(values), found)
    np.testing.assert_array_equal(lipschitz[:, 0], [0.5, 2.5])


def test_guessed_names_are_reported(tmp_path: Path) -> None:
    assert "row 1 (0, 1, 2, ...) is read as names" in read_counts(written(tmp_path, "0,1,2\n5,6,9\n")).notes[0]
    column = read_counts(written(tmp_path, "1,5\n2,6\n3,7\n"))
    assert "column 1 (1, 2, 3, ...) is read as names" in column.notes[0] and column.counts.shape == (3, 1)


def test_lipschitz_values_of_all_clients_or_of_each(tmp_path: Path) -> None:
    who = counted([[5, 6], [7, 8]])
    np.testing.assert_array_equal(read_lipschitz("1, 2", who), [[1, 2], [1, 2]])
    np.testing.assert_array_equal(read_lipschitz("1,nan", who), [[1, np.nan], [1, np.nan]])
    each = written(tmp_path, "cat,dog\n1.5,2\n3,\n")
    np.testing.assert_array_equal(read_lipschitz(str(each), who), [[1.5, 2], [3, np.nan]])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("1,2,3", "--lipschitz: has 3 values in a row; give 2, one per class"),
        ("1,x", "--lipschitz: row 1, column 2: found 'x'; a Lipschitz value is a number above 0"),
        ("1,0", "found '0'; a Lipschitz value is a number above 0"),
        ("1,-2", "found '-2'"),
        ("1,inf", "found 'inf'"),
        ("none.csv", "none.csv: no such file"),
        ("none.txt", "none.txt: no such file"),
        ("no,ne.csv", "no,ne.csv: no such file"),
    ],
)
def test_wrong_lipschitz_values_are_named(given: str, told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        read_lipschitz(given, counted([[5, 6], [7, 8]]))


def test_lipschitz_files_must_fit_the_counts(tmp_path: Path) -> None:
    counts = read_counts(written(tmp_path, "cat,dog\n5,6\n7,8\n"))
    with pytest.raises(UserError, match="has 3 rows; give one for all clients, or 2"):
        read_lipschitz(str(written(tmp_path, "1,2\n1,2\n1,2\n", "l.csv")), counts)
    with pytest.raises(UserError, match="in another order"):
        read_lipschitz(str(written(tmp_path, "dog,cat\n1,2\n", "l.csv")), counts)
