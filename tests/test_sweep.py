"""A model at many sizes, and the knee."""

from __future__ import annotations

import csv
import io
import json
import sys
from typing import TYPE_CHECKING

import pytest

import onnxroof
from onnxroof import cli
from onnxroof import sweep as module
from onnxroof.errors import ShapeError, UsageError
from onnxroof.hardware.profile import EngineProfile, HardwareProfile, MemoryLevel, Peak
from onnxroof.report.render import Format
from onnxroof.report.sweep import render_sweep
from onnxroof.sweep import Sweep, parse_ranges, sweep
from tests.builders import model

if TYPE_CHECKING:
    from pathlib import Path

LINEAR = """agraph (float[batch,64] x, float[64,64] w) => (float[batch,64] y)
    { y = MatMul (x, w) }"""
SIXES = """agraph (float[rows,4] x) => (float[6,n] y) <int64[2] six = {6, -1}>
    { y = Reshape (x, six) }"""


def memory_bound(name: str = "toy") -> HardwareProfile:
    """A device that computes at once, moves a kilobyte a second and starts kernels for free."""
    return HardwareProfile(
        name=name, title="toy", vendor="none", kind="npu",
        vector_engine=EngineProfile("vector", (Peak("fp32", 1e30),)),
        memory=(MemoryLevel("dram", vendor_bytes_per_second=1e3),),
        kernel_overhead_seconds=0.0, runtime="none",
    )  # fmt: skip


def swept(*sizes: int, devices: int = 1) -> Sweep:
    hardware = [memory_bound(f"toy{place}") for place in range(devices)]
    return sweep(model(LINEAR), hardware, ranges={"batch": sizes})


def test_times_below_the_bound_are_explained() -> None:
    # Winograd does 16 multiplications for the 36 of the direct algorithm, whose bound it is
    text = """agraph (float[batch,256,112,112] x, float[256,256,3,3] w)
        => (float[batch,256,112,112] y) { y = Conv<pads = [1, 1, 1, 1]> (x, w) }"""
    shown = render_sweep(sweep(model(text), "v100", ranges={"batch": (1,)}), Format.TEXT)
    assert "times below the bound, on v100:" in shown
    assert "below the bound" not in render_sweep(swept(1), Format.TEXT)


# -- ranges ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8", (8,)),
        ("1,2,4", (1, 2, 4)),
        ("4,1,4", (1, 4)),
        ("1..256*2", (1, 2, 4, 8, 16, 32, 64, 128, 256)),
        ("1..100*10", (1, 10, 100)),
        ("1..9*3,5", (1, 3, 5, 9)),
        ("128..512+128", (128, 256, 384, 512)),
        ("3..5", (3, 4, 5)),
        ("0..2", (0, 1, 2)),
    ],
)
def test_sizes_are_listed_multiplied_or_added(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_ranges([f"batch={text}"]) == {"batch": sizes}


@pytest.mark.parametrize(
    "option",
    ["batch", "=3", "batch=", "batch=a", "batch=1..", "batch=0..8*2", "batch=1..8*1",
     "batch=1..8+0", "batch=-1", "batch=1.5", "batch=1;2", "batch=1..8*2*2"],
)  # fmt: skip
def test_what_is_no_range_is_refused_with_an_example(option: str) -> None:
    with pytest.raises(UsageError, match=r"for example --dim batch=1,2,4"):
        parse_ranges([option])


def test_a_range_does_not_end_before_it_begins() -> None:
    with pytest.raises(UsageError, match=r"'batch=2,5..1': 5..1 ends before it begins"):
        parse_ranges(["batch=2,5..1"])


def test_a_dimension_is_swept_once() -> None:
    with pytest.raises(UsageError, match="'batch' is given twice"):
        parse_ranges(["batch=1,2", "batch=4"])


def test_a_range_that_never_ends_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="more than 4,096"):
        parse_ranges(["batch=1..999999999999999999"])


# -- points ----------------------------------------------------------------------------------


def test_a_point_is_what_a_report_at_its_sizes_says() -> None:
    device = memory_bound()
    found = sweep(model(LINEAR), device, ranges={"batch": (3, 7)})
    for point in found.points:
        single = onnxroof.analyze(model(LINEAR), device, dims=point.sizes)
        assert point.macs == single.totals.macs
        assert point.traffic_bytes == single.kernels.traffic_bytes
        assert point.devices[0].latency_seconds == single.rooflines[0].latency_seconds
        memory = single.memory.peak_activation_bytes + single.totals.weight_bytes
        assert point.peak_memory_bytes == memory


def test_throughput_is_the_batch_over_the_time() -> None:
    point = swept(32).points[0]
    assert point.devices[0].throughput_per_second == 32 / point.devices[0].latency_seconds


def test_several_dimensions_make_every_combination_the_last_fastest() -> None:
    text = LINEAR.replace("[batch,64]", "[batch,seq,64]")
    found = sweep(model(text), ranges={"batch": (1, 2), "seq": (3, 5)})
    sizes = [(point.sizes["batch"], point.sizes["seq"]) for point in found.points]
    assert sizes == [(1, 3), (1, 5), (2, 3), (2, 5)]
    # batch · seq rows of 64 · 64 products
    assert [point.macs for point in found.points] == [n * 4096 for n in (3, 5, 6, 10)]


def test_the_model_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    load = module.load_model
    monkeypatch.setattr(module, "load_model", lambda source: loads.append(1) or load(source))
    swept(1, 2, 4, 8)
    assert len(loads) == 1


def test_a_size_the_model_cannot_have_is_a_point_with_its_reason() -> None:
    found = sweep(model(SIXES), memory_bound(), ranges={"rows": (1, 3, 6)})
    # 4 elements do not make 6 columns; 12 and 24 do
    assert [bool(point.problem) for point in found.points] == [True, False, False]
    assert "rows 1: node" in render_sweep(found, Format.TEXT)


def test_where_no_size_works_the_reason_is_an_error() -> None:
    with pytest.raises(ShapeError):
        sweep(model(SIXES), ranges={"rows": (1, 2)})


def test_a_dimension_the_model_has_not_is_an_error_that_names_it() -> None:
    with pytest.raises(ShapeError, match="did you mean 'batch'"):
        sweep(model(LINEAR), ranges={"bach": (1, 2)})


# -- the knee --------------------------------------------------------------------------------


def test_the_knee_is_the_smallest_size_near_the_best_throughput() -> None:
    # bytes: weights 4 · 64 · 64, a row in and out 4 · 128: rate = b / (16384 + 512 b), best at
    # 4096: 1/516; nine tenths of it, 1/573.3, are passed at b = 16384 / (573.3 - 512) = 267
    (knee,) = swept(*(2**n for n in range(13))).knees
    assert knee.size == 512
    assert knee.rate_per_second == pytest.approx(1e3 * 512 / (16384 + 512 * 512))
    assert knee.best_per_second == pytest.approx(1e3 / 516)


def test_there_is_no_knee_while_throughput_still_grows() -> None:
    # from 4 to 8: 8 / (16384 + 4096) over 4 / (16384 + 2048) = 1.8 times
    (knee,) = swept(1, 2, 4, 8).knees
    assert knee.size is None


def test_neighbouring_sizes_in_a_growing_range_have_no_knee() -> None:
    # rates differ by less than a tenth, yet doubling would bring nearly twice the throughput
    (knee,) = swept(10, 11).knees
    assert knee.size is None


def test_a_single_size_has_no_knee() -> None:
    assert swept(8).knees == ()


def test_each_device_has_a_knee_of_its_own() -> None:
    found = swept(1, 4096, devices=2)
    assert [knee.device for knee in found.knees] == [0, 1]


# -- reports ---------------------------------------------------------------------------------


def test_the_table_has_a_row_a_point_and_says_where_the_knee_is() -> None:
    text = render_sweep(swept(*(2**n for n in range(13))), Format.TEXT)
    assert len([line for line in text.splitlines() if line.strip()[:1].isdigit()]) == 13
    assert "knee on toy0: batch 512" in text


def test_several_devices_are_one_table_each_where_they_do_not_fit() -> None:
    text = render_sweep(swept(1, 2, devices=3), Format.TEXT, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert all(f"toy{place}" in text for place in range(3))


def test_csv_has_base_units_and_a_column_a_size() -> None:
    rows = list(csv.DictReader(io.StringIO(render_sweep(swept(1, 2), Format.CSV))))
    assert [row["batch"] for row in rows] == ["1", "2"]
    # 4 · 64 · 64 bytes of weights, 512 of a row, at a kilobyte a second
    assert float(rows[0]["toy0_latency_seconds"]) == pytest.approx((16384 + 512) / 1e3)


def test_json_has_points_and_knees() -> None:
    data = json.loads(render_sweep(swept(1, 2), Format.JSON))
    assert data["ranges"] == {"batch": [1, 2]}
    assert data["points"][1]["sizes"] == {"batch": 2}
    assert data["knees"][0]["size"] is None


def test_markdown_is_a_table() -> None:
    text = render_sweep(swept(1, 2), Format.MARKDOWN)
    assert text.count("\n|") == 4


def test_without_a_device_there_are_counts_only() -> None:
    found = sweep(model(LINEAR), ranges={"batch": (1, 2)})
    assert found.knees == ()
    assert "samples/s" not in render_sweep(found, Format.TEXT)


def test_the_command_sweeps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model(LINEAR).SerializeToString())
    arguments = ["sweep", str(path), "--hw", "v100", "--dim", "batch=1..4*2"]
    monkeypatch.setattr(sys, "argv", ["onnxroof", *arguments])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert not done.value.code
    assert "knee on v100" in capsys.readouterr().out


def test_the_command_wants_something_to_sweep(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["onnxroof", "sweep", "model.onnx", "--hw", "v100"])
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert done.value.code == 2
    assert "nothing to sweep" in capsys.readouterr().err
