"""Measured times over expected ones: what belongs together, and what is left over."""

from __future__ import annotations

import csv
import io
import json
import sys
from typing import TYPE_CHECKING

import pytest

import onnxroof
from onnxroof import cli
from onnxroof.calibration.overlay import Overlay, OverlaySort, overlay
from onnxroof.calibration.overlay_report import render_overlay
from onnxroof.calibration.traces import Entry, Trace
from onnxroof.errors import UsageError
from onnxroof.report.render import Format
from tests.builders import model

if TYPE_CHECKING:
    from pathlib import Path

    from onnxroof.analysis import Analysis

NET = """agraph (float[1,3,32,32] x, float[8,3,3,3] w1, float[8,8,3,3] w2, float[8,8] w3)
    => (float[1,8] y) {
        [conv1] a = Conv <pads = [1,1,1,1]> (x, w1)
        [relu1] b = Relu (a)
        [conv2] c = Conv <pads = [1,1,1,1]> (b, w2)
        [relu2] d = Relu (c)
        [pool] e = GlobalAveragePool (d)
        [flat] f = Flatten (e)
        [fc] y = MatMul (f, w3)
    }"""
"""Four kernels: Conv+Relu twice, the pool, the product; the Flatten is a view."""


def analyzed(runtime: str | None = "onnxruntime", text: str = NET) -> Analysis:
    return onnxroof.analyze(model(text), "10980xe", runtime=runtime)


def laid(*entries: Entry, runtime: str | None = "onnxruntime", sort: str = "order") -> Overlay:
    trace = Trace("onnxruntime", 1, entries)
    return overlay(analyzed(runtime), trace, OverlaySort(sort))


def rows(found: Overlay) -> dict[str, tuple[str, ...]]:
    return {row.name: row.measured_names for row in found.rows}


def named(*names: str) -> tuple[Entry, ...]:
    return tuple(Entry(name, 1e-3) for name in names)


# -- by name ---------------------------------------------------------------------------------


def test_nodes_are_found_by_their_names() -> None:
    found = laid(*named("conv1", "conv2", "pool", "fc"))
    assert rows(found) == {n: (n,) for n in ("conv1", "conv2", "pool", "fc")}
    assert found.unmatched == ()
    assert found.unmeasured == ()


@pytest.mark.parametrize(
    "name",
    ["b", "b_nchwc", "conv1_nchwc", "fused conv1", "conv1 + relu1", "conv1+relu1", "conv1|relu1",
     "conv1 || relu1", "conv1/ConvActivationFusion/", "relu1", "PWN(relu1)", "conv1_token_12",
     "{ForeignNode[conv1...relu1]}", "conv1 [Conv]"],
)  # fmt: skip
def test_runtimes_call_a_fused_kernel_by_many_names(name: str) -> None:
    assert rows(laid(*named(name))) == {"conv1": (name,)}


def test_what_the_runtime_fused_less_adds_up() -> None:
    (row,) = laid(Entry("conv1", 3e-3), Entry("relu1", 1e-3)).rows
    assert row.measured_names == ("conv1", "relu1")
    assert row.measured_seconds == pytest.approx(4e-3)


def test_what_the_runtime_fused_more_is_one_row_of_several_kernels() -> None:
    (row,) = laid(*named("conv1 + relu1 + conv2 + relu2")).rows
    expected = analyzed().rooflines[0].kernel_seconds
    assert row.kernels == 2
    assert row.expected_seconds == pytest.approx(expected[0] + expected[1])


def test_a_range_of_nodes_is_everything_between() -> None:
    (row,) = laid(*named("{ForeignNode[conv1...fc]}")).rows
    assert row.kernels == 4


def test_a_name_with_a_plus_of_its_own_stays_whole() -> None:
    text = "agraph (float[4] x) => (float[4] y) { [a+b] y = Relu (x) }".replace("a+b", "ab")
    proto = model(text)
    proto.graph.node[0].name = "a+b"
    found = overlay(onnxroof.analyze(proto, "10980xe"), Trace("csv", 1, named("a+b")))
    assert rows(found) == {"a+b": ("a+b",)}


# -- by order --------------------------------------------------------------------------------


def test_unknown_names_are_matched_by_operator_between_known_ones() -> None:
    found = laid(
        Entry("conv1", 1e-3), Entry("node_7", 1e-3, "Conv"), Entry("node_8", 1e-3, "MatMul")
    )
    assert rows(found) == {"conv1": ("conv1",), "conv2": ("node_7",), "fc": ("node_8",)}
    assert [row.by_order for row in found.rows] == [False, True, True]


def test_an_operator_that_ran_as_several_takes_them_all() -> None:
    # HardSwish without a kernel of its own runs as its function: HardSigmoid, then Mul
    text = NET.replace("[relu1] b = Relu (a)", "[swish] b = HardSwish (a)")
    trace = Trace("onnxruntime", 1, (
        Entry("conv1", 1e-3, "Conv"), Entry("HardSigmoid_12", 2e-3, "HardSigmoid"),
        Entry("Mul_13", 3e-3, "Mul"), Entry("conv2", 1e-3, "Conv"),
    ))  # fmt: skip
    found = overlay(onnxroof.analyze(model(text), "10980xe", runtime="none"), trace)
    assert found.unmatched == ()
    (row,) = [row for row in found.rows if row.name == "swish"]
    assert row.measured_seconds == pytest.approx(5e-3)


def test_order_needs_the_operator_to_agree() -> None:
    found = laid(Entry("conv1", 1e-3), Entry("node_7", 1e-3, "Softmax"))
    assert [item.name for item in found.unmatched] == ["node_7"]


def test_a_trace_without_names_is_matched_by_order_alone() -> None:
    kinds = ("FusedConv", "FusedConv", "GlobalAveragePool", "MatMul")
    found = laid(*(Entry("", 1e-3, kind) for kind in kinds))
    assert list(rows(found)) == ["conv1", "conv2", "pool", "fc"]


# -- what is left over -----------------------------------------------------------------------


def test_unmatched_time_is_shown_with_a_reason_and_never_dropped() -> None:
    found = laid(Entry("conv1", 3e-3), Entry("ReorderInput", 1e-3, "ReorderInput"),
                 Entry("flat", 2e-3, "Flatten"))  # fmt: skip
    assert [(item.name, item.seconds) for item in found.unmatched] == [
        ("flat", 2e-3), ("ReorderInput", 1e-3),
    ]  # fmt: skip
    assert "view" in found.unmatched[0].reason
    left = sum(item.seconds for item in found.unmatched)
    assert found.matched_seconds + left == pytest.approx(found.measured_seconds)


def test_kernels_without_a_measurement_are_listed() -> None:
    found = laid(*named("conv1"))
    assert {item.name for item in found.unmeasured} == {"conv2", "pool", "fc"}


def test_a_copy_beside_a_layer_is_not_the_layer() -> None:
    found = laid(*named("Reformatting CopyNode for Input Tensor 0 to conv1"))
    assert found.rows == ()


# -- figures ---------------------------------------------------------------------------------


def test_the_share_of_the_roof_is_bound_over_measured_time() -> None:
    bound = analyzed().rooflines[0].kernels[0].seconds
    (row,) = laid(Entry("conv1", 4 * bound)).rows
    assert row.share_of_roof == pytest.approx(0.25)
    assert row.lost_seconds == pytest.approx(3 * bound)


def test_rows_come_by_the_time_they_lose() -> None:
    found = laid(Entry("conv1", 1e-3), Entry("fc", 5e-3), sort="lost")
    assert [row.name for row in found.rows] == ["fc", "conv1"]


def test_the_error_weighs_kernels_by_their_time() -> None:
    expected = analyzed().rooflines[0].kernel_seconds
    # one exactly as expected, one that takes twice as long as expected
    found = laid(Entry("conv1", expected[0]), Entry("conv2", 2 * expected[1]))
    assert found.weighted_error == pytest.approx(expected[1] / (expected[0] + 2 * expected[1]))


def test_faster_than_the_bound_is_said() -> None:
    assert "faster than their bound" in laid(Entry("conv1", 1e-12)).notes[0]


def test_other_sizes_than_those_of_the_trace_are_said() -> None:
    # batch 2 in the trace: 2 · 8 · 32 · 32
    assert "other dimensions" in laid(Entry("conv1", 1.0, "Conv", 16384)).notes[0]
    assert laid(Entry("conv1", 1.0, "Conv", 8192)).notes == ()


def test_one_device_is_needed() -> None:
    trace = Trace("csv", 1, named("conv1"))
    for devices in ((), ("v100", "10980xe")):
        with pytest.raises(UsageError, match="give one --hw"):
            overlay(onnxroof.analyze(model(NET), devices), trace)


# -- reports ---------------------------------------------------------------------------------


@pytest.fixture
def found() -> Overlay:
    return laid(
        Entry("conv1", 3e-3), Entry("", 1e-3, "Conv"), Entry("evil\n\x1b[31m|name", 1e-3, "Foo")
    )


def test_the_text_shows_totals_rows_and_what_is_left_over(found: Overlay) -> None:
    text = render_overlay(found, Format.TEXT)
    assert "5.00 ms in all" in text
    assert "measured, and no kernel of ours: 1, together 1.00 ms" in text
    assert "kernels of ours without a measurement: 2" in text
    assert "* matched by operator and order" in text


@pytest.mark.parametrize("format_", Format)
def test_names_from_a_trace_cannot_break_a_report(found: Overlay, format_: Format) -> None:
    text = render_overlay(found, format_)
    assert "\x1b" not in text
    assert "evil\n" not in text


def test_csv_has_every_entry_and_every_kernel(found: Overlay) -> None:
    table = list(csv.DictReader(io.StringIO(render_overlay(found, Format.CSV))))
    statuses = [row["status"] for row in table]
    assert statuses == ["matched", "matched", "unmatched", "unmeasured", "unmeasured"]


def test_json_adds_up(found: Overlay) -> None:
    data = json.loads(render_overlay(found, Format.JSON))
    parts = [row["measured_seconds"] for row in data["rows"]]
    parts += [item["seconds"] for item in data["unmatched"]]
    assert sum(parts) == pytest.approx(data["trace"]["seconds"])


def test_top_limits_the_rows_shown(found: Overlay) -> None:
    assert "first 1 of 2 matched rows" in render_overlay(found, Format.TEXT, top=1)
    assert "2 matched rows" in render_overlay(found, Format.MARKDOWN, top=0)


def test_the_command_reads_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, trace = tmp_path / "net.onnx", tmp_path / "trace.csv"
    path.write_bytes(model(NET).SerializeToString())
    trace.write_text("name,milliseconds\nconv1,3\nfc,1\n")
    arguments = ["overlay", str(path), "--trace", str(trace), "--hw", "10980xe"]
    monkeypatch.setattr(sys, "argv", ["onnxroof", *arguments])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert not done.value.code
    assert "4.00 ms in all" in capsys.readouterr().out


def test_the_command_ends_with_6_where_the_trace_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text("[{")
    monkeypatch.setattr(sys, "argv", ["onnxroof", "overlay", "m.onnx", "--trace", str(trace)])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert done.value.code == 6
    assert "not valid JSON" in capsys.readouterr().err
