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


def test_each_device_is_judged_by_the_kernels_of_its_own_runtime() -> None:
    levels = (MemoryLevel("l1", 50), MemoryLevel("dram", 10**9, vendor_bytes_per_second=1e9))
    devices = [
        replace(device("alone"), memory=levels),
        replace(device("fusing", runtime="basic"), memory=levels),
    ]
    for order in (devices, devices[::-1]):
        run = analysis(CHAIN, *order)
        text = render_text(run)
        # the activation alone holds two tensors of 32 bytes; inside the first product, x of 16
        # and b of 32 are the most
        assert (
            line_with(text, "alone l1")
            == "alone l1 50 B 14 B too much 64 B of activations after fusion"
        )
        assert (
            line_with(text, "fusing l1") == "fusing l1 50 B fits 48 B of activations after fusion"
        )
        rows = [line for line in text.splitlines() if line.startswith("peak after fusion")]
        said = {" ".join(row.split()) for row in rows}
        assert said == {
            "peak after fusion 64 B 64 kernels of none, on alone, at act",
            "peak after fusion 48 B 48 kernels of basic, on fusing, at up",
        }
        shown = run.to_dict()["memory"]["budgets"]
        assert {(b["hardware"], b["needed_bytes"]) for b in shown if b["level"] == "l1"} == {
            ("alone", 64), ("fusing", 48),
        }  # fmt: skip
        # FLOPs 120; traffic of three kernels 16 + 128 + 32, 32 + 32, 32 + 96 + 12; of two 64 less
        intensity = line_with(text, "model's intensity").removeprefix("model's intensity ")
        assert sorted(intensity.split(" FLOP/byte")[:2]) == sorted(
            ["0.32", " 0.38"] if order is devices else ["0.38", " 0.32"]
        )
        assert f"counts and traffic are those of {order[0].runtime}, on {order[0].name}." in text


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
