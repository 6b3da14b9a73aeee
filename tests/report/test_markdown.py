"""The report for pull requests."""

from __future__ import annotations

from onnxroof.report.markdown import escaped, render_markdown
from onnxroof.report.render import TableOptions
from onnxroof.report.rows import By
from tests.report.models import CHAIN, analysis, device, renamed


def test_tables_are_pipe_tables_with_a_row_for_every_kernel() -> None:
    lines = render_markdown(analysis(CHAIN, device())).splitlines()
    table = lines[lines.index("### 3 kernels, by time") + 2 :]
    assert [line.split("|")[1].strip() for line in table[2:5]] == ["up", "down", "act"]
    assert {line.count("|") for line in table[:5]} == {table[0].count("|")}


def test_everything_markdown_means_is_escaped() -> None:
    assert escaped("a|b`c*d_e<f>") == "a\\|b\\`c\\*d\\_e\\<f\\>"
    assert escaped("# head") == "\\# head"
    assert escaped("one\ntwo") == "one two"
    assert escaped("[x](http://evil) @user") == "\\[x\\](http://evil) \\@user"


def test_a_hostile_name_stays_in_its_cell() -> None:
    text = render_markdown(analysis(renamed("a|b\n# <script>`x`"), device()))
    plain = render_markdown(analysis(renamed("up"), device()))
    assert text.count("\n") == plain.count("\n")
    assert "a\\|b\\\\n\\# \\<script\\>\\`x\\`" in text


def test_a_table_by_scope_says_where_time_of_fused_kernels_stands() -> None:
    text = render_markdown(analysis(CHAIN, device()), TableOptions(By.SCOPE))
    assert "fused kernel's time" in text
