"""Tables of checks, comparisons and rankings in a terminal."""

from __future__ import annotations

import pytest

from onnxroof.report.grid import fit

HEADERS = ("", "kernel", "operators", "v100 before", "v100 after")
ROWS = [
    ("slower", f"/model/encoder/layer.{layer}/attention/MatMul", "MatMul+Add+Relu", "1 µs", "2 µs")
    for layer in range(3)
]


def table(width: int) -> list[str]:
    return fit(HEADERS, ROWS, width=width, names=1, spare=(2, 3), right=(3, 4))


@pytest.mark.parametrize("width", [50, 60, 80, 100, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, table(width))) <= width


def test_a_wide_terminal_has_every_column_and_whole_names() -> None:
    text = "\n".join(table(140))
    assert "operators" in text
    assert "before" in text
    assert ROWS[0][1] in text


def test_spare_columns_go_in_their_order_and_the_last_stays() -> None:
    # 6 for the change, 6 for each time, gaps of 2: 50 columns leave 32 for a name without
    # operators, and 15 less with them
    text = "\n".join(table(50))
    assert "operators" not in text
    assert "before" in text
    assert "after" in text


def test_shortened_names_stay_different() -> None:
    names = [line.split()[1] for line in table(50)[-3:]]
    assert len(set(names)) == 3
