"""The report for spreadsheets."""

from __future__ import annotations

import csv
import io

import pytest

from onnxroof.report.csv_report import render_csv
from onnxroof.report.render import TableOptions
from onnxroof.report.rows import By, Sort
from tests.report.models import CHAIN, UNKNOWN, analysis, device, renamed


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_kernel_is_a_line_in_base_units() -> None:
    rows = rows_of(render_csv(analysis(CHAIN, device())))
    assert [row["name"] for row in rows] == ["up", "down", "act"]
    up = rows[0]
    # x 4·4 bytes, w 4·32 bytes in; a 8·4 bytes out; 64 FLOPs over 176 bytes, at 1 GB/s
    assert (up["macs"], up["flops"], up["parameters"]) == ("32", "64", "32")
    assert (up["read_bytes"], up["written_bytes"], up["traffic_bytes"]) == ("144", "32", "176")
    assert float(up["arithmetic_intensity_flop_per_byte"]) == 64 / 176
    assert float(up["toy_seconds"]) == pytest.approx(176e-9)
    assert (up["toy_bound"], up["exactness"]) == ("memory", "exact")


def test_what_is_unknown_is_an_empty_cell_and_no_zero() -> None:
    mystery = rows_of(render_csv(analysis(UNKNOWN)))[-1]
    assert (mystery["name"], mystery["macs"], mystery["flops"]) == ("Mystery#1", "", "")


def test_two_devices_of_one_name_have_columns_of_two_names() -> None:
    header = render_csv(analysis(CHAIN, device("a"), device("a"))).splitlines()[0].split(",")
    assert len(set(header)) == len(header)


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_no_spreadsheet_takes_a_name_for_a_formula(start: str) -> None:
    name = f'{start}HYPERLINK("http://evil"),x'
    rows = rows_of(render_csv(analysis(renamed(name)), TableOptions(By.NODE, Sort.MACS)))
    assert rows[0]["name"] == f"'{name}"


def test_a_name_with_line_breaks_stays_on_its_line() -> None:
    text = render_csv(analysis(renamed("a\r\n=b\t")))
    assert len(text.splitlines()) == 4
    assert rows_of(text)[0]["name"] == "a\\r\\n=b\\t"


def test_all_rows_are_written_unless_told_otherwise() -> None:
    found = analysis()
    assert len(rows_of(render_csv(found))) == 3
    assert len(rows_of(render_csv(found, TableOptions(top=1)))) == 1


def test_a_loop_that_runs_nobody_knows_how_often_is_told_by_the_trip() -> None:
    text = """agraph (float[2,4] x, int64 m) => (float[2,4] y) <bool yes = {1}> {
        y = Loop(m, yes, x) <body = b (int64 i, bool go, float[2,4] h)
            => (bool on, float[2,4] next) { on = Identity(go) next = Relu(h) }> }"""
    (loop,) = rows_of(render_csv(analysis(text)))
    assert (loop["flops"], loop["exactness"]) == ("8", "per trip")
    for by in (By.NODE, By.OP_TYPE):
        (row,) = rows_of(render_csv(analysis(text), TableOptions(by=by)))
        assert row["exactness"] == "per trip"
