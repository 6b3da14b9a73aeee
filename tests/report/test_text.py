"""The report for the terminal."""

from __future__ import annotations

import pytest

from onnxroof.errors import UsageError
from onnxroof.report.render import TableOptions
from onnxroof.report.rows import By, Sort
from onnxroof.report.text import render_text
from tests.report.models import CHAIN, UNKNOWN, analysis, contradiction, device, renamed


def line_with(text: str, start: str) -> str:
    """The first line that begins so, its blanks collapsed."""
    return next(" ".join(line.split()) for line in text.splitlines() if line.startswith(start))


def test_totals_show_a_rounded_and_an_exact_number() -> None:
    text = render_text(analysis(dims={"batch": 1000}))
    # 1000 · (4·8 + 8·3) MACs; 2 FLOPs each and one per element of the 1000×8 activation
    assert line_with(text, "MACs") == "MACs 56.0 k 56,000 all fp32"
    assert line_with(text, "FLOPs") == "FLOPs 120 k 120,000 2·MACs + 8.00 k others"
    assert line_with(text, "parameters").startswith("parameters 56 56")


def test_a_free_leading_dimension_is_said_to_be_assumed() -> None:
    assert "batch = 1: the leading dimension of 'x' is free" in " ".join(
        render_text(analysis()).split()
    )


def test_latency_is_called_a_lower_bound() -> None:
    text = render_text(analysis(CHAIN, device()))
    # traffic at 1 GB/s: (4·4 + 4·32 + 32) + (32 + 32) + (32 + 4·24 + 12) = 380 bytes → 380 ns
    assert line_with(text, "latency") == "latency at least 380 ns"
    assert line_with(text, "time memory-bound") == "time memory-bound 100 %"


def test_without_a_device_there_are_counts_and_no_times() -> None:
    text = render_text(analysis())
    assert "latency" not in text
    assert "time" not in line_with(text, "kernel")


def test_several_devices_have_a_column_each() -> None:
    text = render_text(analysis(CHAIN, device("left"), device("right")))
    assert "left" in text
    assert "right" in text
    assert line_with(text, "latency") == "latency at least 380 ns at least 380 ns"


def test_an_operator_without_a_formula_is_named_and_totals_say_at_least() -> None:
    text = render_text(analysis(UNKNOWN, device()))
    assert line_with(text, "coverage") == (
        "coverage 1 of 2 nodes known: 1 counted, 0 without arithmetic, 1 unknown"
    )
    assert "acme.Mystery × 1: no formula is known for operator acme.Mystery" in text
    assert "--operators FILE gives an operator of your own" in text
    assert line_with(text, "MACs").startswith("MACs at least 64 64")
    assert line_with(text, "achieved") == "achieved ?"
    assert line_with(text, "Mystery#1") == "Mystery#1 Mystery ? ? 0 128 B ? memory 128 ns 36.4 %"


def test_a_node_that_cannot_be_is_a_problem_in_a_partial_report() -> None:
    text = " ".join(render_text(analysis(contradiction())).split())
    assert "problems node 'bad' (MatMul) with inputs fp32[2×4], fp32[5×8]" in text


def test_rows_are_ordered_as_asked_and_cut_after_the_top() -> None:
    text = render_text(analysis(), TableOptions(By.NODE, Sort.NAME, 2))
    names = [line.split()[0] for line in text[text.index("\nnode ") :].splitlines()[3:5]]
    assert names == ["act", "down"]
    assert "top 2 of 3 nodes, by name" in text


def test_a_table_of_operators_adds_up_its_nodes() -> None:
    text = render_text(analysis(), TableOptions(By.OP_TYPE))
    assert line_with(text, "MatMul").startswith("MatMul 2 56 112 56")


def test_ordering_by_time_without_a_device_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="needs a device"):
        render_text(analysis(), TableOptions(sort=Sort.TIME))


@pytest.mark.parametrize(
    ("sort", "column"),
    [(Sort.PARAMS, "params"), (Sort.MACS, "MACs"), (Sort.BYTES, "traffic"), (Sort.FLOPS, "FLOPs")],
)
def test_a_narrow_terminal_keeps_the_column_that_orders_the_rows(sort: Sort, column: str) -> None:
    long = analysis(renamed("/model/" + "encoder/" * 30 + "MatMul"), device())
    text = render_text(long, TableOptions(sort=sort), width=60)
    assert column in line_with(text, "kernel").split()


def test_of_several_devices_the_last_ones_columns_go_first() -> None:
    long = analysis(renamed("/model/" + "encoder/" * 30 + "MatMul"), device(), device(), device())
    # 30 for the name, 3 · 9 for times, 8 for a bound are 65 columns: a second bound has no room
    assert line_with(render_text(long, width=66), "kernel") == "kernel bound time time time"


def test_a_name_that_fits_no_line_is_shortened_and_not_broken() -> None:
    text = render_text(analysis(renamed("first" + "x" * 60 + "last")), width=60)
    rules = text[text.index("memory, every") : text.index("kernels, by")].split()
    assert any(word.endswith("last") and "…" in word for word in rules)
    assert not any(word.startswith("x") for word in rules)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    long = renamed("/model/" + "encoder/" * 30 + "MatMul")
    text = render_text(analysis(long, device()), width=width)
    assert max(map(len, text.splitlines())) <= width


def test_a_hostile_name_can_neither_move_the_cursor_nor_add_lines() -> None:
    plain = render_text(analysis(renamed("up"), device()), width=160)
    text = render_text(analysis(renamed("up\n\x1b[2J\u202eevil\x07"), device()), width=160)
    assert "up\\n\\x1b[2J\\u202eevil\\x07" in text
    assert text.count("\n") == plain.count("\n")
    assert text.replace("\n", "").isprintable()


def test_the_same_model_gives_the_same_bytes() -> None:
    assert render_text(analysis(CHAIN, device())) == render_text(analysis(CHAIN, device()))


def test_totals_of_a_loop_of_unknown_trips_are_those_of_a_trip() -> None:
    loop = """agraph (float[2,2] x, int64 m) => (float[2,2] y) <bool yes = {1}> {
        y = Loop(m, yes, x) <body = b (int64 i, bool go, float[2,2] h)
            => (bool on, float[2,2] next) { on = Identity(go) next = MatMul(h, h) }> }"""
    text = render_text(analysis(loop, device()))
    # 2 · 2 · 2 MACs
    assert line_with(text, "MACs") == "MACs 8 per trip 8 all fp32"
    assert " per trip " in line_with(text, "traffic, fused")
    assert line_with(text, "latency").endswith(" per trip")


def test_a_time_at_the_largest_sizes_is_at_most_and_a_rate_at_least() -> None:
    found = """agraph (float[64] x, float[64] v) => (float y) {
        z = NonZero(x) t = Transpose(z) g = GatherND(v, t) y = Exp(g) }"""
    text = render_text(analysis(found, device(runtime="onnxruntime")))
    assert line_with(text, "latency").startswith("latency at most ")
    assert line_with(text, "runs per second").startswith("runs per second at least ")
