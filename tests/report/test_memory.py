"""The memory sections: figures with their rules, budgets, the timeline, better orders."""

from __future__ import annotations

from dataclasses import replace

from onnxroof.hardware.profile import MemoryLevel
from onnxroof.memory.order import NodeOrder, reorder
from onnxroof.report.markdown import render_markdown
from onnxroof.report.render import Extras
from onnxroof.report.text import render_text
from tests.report.models import CHAIN, UNKNOWN, analysis, device
from tests.report.test_text import line_with


def test_every_figure_of_memory_stands_with_its_rule() -> None:
    text = render_text(analysis())
    # x 16 bytes, a and b 32 each, y 12
    assert line_with(text, "activations preallocated") == (
        "activations preallocated 92 B 92 every tensor in a buffer of its own"
    )
    assert line_with(text, "liveness peak") == (
        "liveness peak 64 B 64 freed after the last use, at act"
    )
    assert line_with(text, "in place").startswith("in place 48 B 48 over dying inputs")


def test_a_tensor_of_unknown_size_makes_peaks_lower_bounds() -> None:
    text = UNKNOWN.replace("y = acme.Mystery (a)", "b = acme.Mystery (a)  y = acme.Mystery (b)")
    # of x, a, b and y only b has no shape: a and x are 2×8 and 2×4 floats
    assert line_with(render_text(analysis(text)), "liveness peak").startswith(
        "liveness peak at least 96 B 96 "
    )


def test_a_level_that_is_too_small_says_by_how_much_and_what_to_cut() -> None:
    levels = (
        MemoryLevel("l1", 50),
        MemoryLevel("dram", 10**9, vendor_bytes_per_second=1e9),
    )
    text = render_text(analysis(CHAIN, replace(device(), memory=levels)))
    # weights of 56 floats, activations of 64 bytes, aligned to 64: both tensors take one line each
    assert line_with(text, "dram") == "dram 1.00 GB fits 352 B of weights and activations"
    assert line_with(text, "l1 ") == "l1 50 B 14 B too much 64 B of activations after fusion"
    assert "to fit l1: at act the largest tensor is a with 32 bytes" in " ".join(text.split())


def test_a_device_of_unknown_capacity_gets_no_verdict() -> None:
    assert "no capacity of a memory level is known" in render_text(analysis(CHAIN, device()))


def test_the_timeline_is_a_bar_a_step() -> None:
    text = render_text(analysis(), extras=Extras(timeline=True))
    chart = text[text.index("activations alive over time") :].splitlines()[3:6]
    # alive: x and a, a and b, b and y; the longest bar has 20 marks
    assert [line.split() for line in chart] == [
        ["up", "0", "48", "B", "█" * 15],
        ["act", "1", "64", "B", "█" * 20],
        ["down", "2", "44", "B", "█" * 14],
    ]
    assert "activations alive over time" not in render_text(analysis())


def test_an_order_is_shown_with_its_saving_in_positions_of_the_file() -> None:
    found = NodeOrder((0, 2, 3, 1), 100, 60, True, "exact")
    text = render_text(analysis(), extras=Extras(order=found))
    assert "liveness peak 60 B instead of 100 B, saves 40 B (proved best)" in text
    assert "nodes by index, as they should run: 0, 2–3, 1" in text


def test_file_order_may_be_best() -> None:
    run = analysis()
    text = render_text(run, extras=Extras(order=reorder(run.cost)))
    assert "liveness peak 64 B in file order: no order has a lower one" in text


def test_markdown_has_the_same_sections() -> None:
    text = render_markdown(analysis(CHAIN, device()), extras=Extras(timeline=True))
    assert "### Memory, every figure with its rule" in text
    assert "### Memory levels as budgets" in text
    assert "| act    |      1 |    64 B | " in text
