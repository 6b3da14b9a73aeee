from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import onnxroof
from onnxroof.bounded import BoundedInt
from onnxroof.graph.types import DType
from onnxroof.hardware.profile import EngineProfile, HardwareProfile, MemoryLevel, Peak
from onnxroof.report.render import Format, TableOptions, render
from onnxroof.roofline import Bound, Device, compute_type
from tests.builders import model

if TYPE_CHECKING:
    from onnxroof.analysis import Analysis

CPU, GPU = "10980xe", "v100"


def toy(
    *peaks: Peak,
    bandwidth: float,
    matrix: tuple[Peak, ...] = (),
    overhead: float = 0.0,
    special: float | None = None,
) -> HardwareProfile:
    """A device of a few numbers."""
    return HardwareProfile(
        name="toy", title="toy", vendor="none", kind="npu",
        vector_engine=EngineProfile("vector", peaks),
        matrix_engine=EngineProfile("matrix", matrix) if matrix else None,
        memory=(MemoryLevel("dram", vendor_bytes_per_second=bandwidth),),
        kernel_overhead_seconds=overhead, runtime="none",
        special_function_ops_per_second=special,
    )  # fmt: skip


def depthwise(channels: int = 256) -> str:
    """3×3 over 20×20 with bias, padded by one: 20×20 outputs."""
    return f"""agraph (float[1,{channels},20,20] x, float[{channels},1,3,3] w, float[{channels}] b)
        => (float y) {{ y = Conv <group = {channels}, pads = [1,1,1,1]> (x, w, b) }}"""


def dense(channels: int = 256, outputs: int = 256, size: int = 20, dtype: str = "float") -> str:
    return f"""agraph ({dtype}[1,{channels},{size},{size}] x, {dtype}[{outputs},{channels},3,3] w,
        {dtype}[{outputs}] b) => ({dtype} y) {{ y = Conv <pads = [1,1,1,1]> (x, w, b) }}"""


def on(text: str, *devices: str | HardwareProfile, peak: str = "vendor") -> Analysis:
    return onnxroof.analyze(model(text), devices, peak=peak)


# -- figures known from the literature -------------------------------------------------------


def test_ridge_points_of_the_10980xe() -> None:
    # 4.608 TFLOP/s over 96 GB/s; 2.86 over 74 as measured
    (vendor,) = on(dense(), CPU).rooflines
    (measured,) = on(dense(), CPU, peak="sustained").rooflines
    assert vendor.ridge_points["fp32"] == pytest.approx(48.0)
    assert measured.ridge_points["fp32"] == pytest.approx(38.6, abs=0.05)


def test_ridge_points_of_the_v100() -> None:
    # 125 TFLOP/s over the data sheet's 900 GB/s; the CUDA cores 15.7 over 900
    (found,) = on(dense(), GPU).rooflines
    assert found.ridge_points["fp16"] == pytest.approx(138.9, abs=0.05)
    assert found.ridge_points["fp32"] == pytest.approx(17.44, abs=0.01)


@pytest.mark.parametrize("channels", [1, 32, 256, 1024])
def test_a_depthwise_convolution_has_one_intensity_whatever_its_channels(channels: int) -> None:
    # A channel: 400 outputs · (2·9 + 1) = 7600 FLOPs; 4 bytes of 400 in, 400 out, 9 taps, 1 bias
    # = 3240: 2.346 FLOP/byte
    (kernel,) = on(depthwise(channels), CPU).rooflines[0].kernels
    assert kernel.arithmetic_intensity == pytest.approx(7600 / 3240)
    assert kernel.arithmetic_intensity == pytest.approx(2.346, abs=0.0005)


def test_a_depthwise_convolution_is_memory_bound_at_5_percent_of_peak() -> None:
    # 2.346 / 48 of the peak: 4.9 %
    (kernel,) = on(depthwise(), CPU).rooflines[0].kernels
    assert kernel.bound is Bound.MEMORY
    assert kernel.attainable_ops_per_second is not None
    assert kernel.attainable_ops_per_second / 4.608e12 == pytest.approx(0.049, abs=0.0005)


def test_cutting_flops_130_fold_cuts_time_6_fold_only() -> None:
    # A dense 3×3 of the same outputs costs (2·9·C + 1) / 19 times the FLOPs; 130-fold is the
    # factor at C = 137. The dense one is bound by its arithmetic, the depthwise one by memory: of
    # the 130 remain 130 · 2.346 / 48, both without launch overhead.
    factor = 130
    channels = round((19 * factor - 1) / 18)
    assert channels == 137
    big, small = on(dense(channels, channels), CPU), on(depthwise(channels), CPU)
    work = big.totals.flops / small.totals.flops
    assert work == pytest.approx(factor, abs=0.5)
    (slow,), (fast,) = big.rooflines[0].kernels, small.rooflines[0].kernels
    assert (slow.bound, fast.bound) == (Bound.COMPUTE, Bound.MEMORY)
    assert slow.compute_seconds is not None
    assert fast.memory_seconds is not None
    gained = slow.compute_seconds / fast.memory_seconds
    assert gained == pytest.approx(130 * 2.346 / 48, abs=0.05)
    assert 6 < gained < 7


def test_a_convolution_is_compute_bound_on_a_cpu_and_memory_bound_on_tensor_cores() -> None:
    # 24 channels in and out: 24 · (2·9·24 + 1) = 10,392 FLOPs a pixel; 48 numbers of 4 bytes move
    # in fp32: 54 FLOP/byte, above 48; of 2 bytes in fp16: 108, below 138.9
    text, as_fp16 = dense(24, 24, 224), dense(24, 24, 224, "float16")
    (cpu,) = on(text, CPU).rooflines[0].kernels
    (gpu,) = on(as_fp16, GPU).rooflines[0].kernels
    assert cpu.arithmetic_intensity == pytest.approx(54, abs=0.5)
    assert gpu.arithmetic_intensity == pytest.approx(108, abs=0.5)
    assert (cpu.bound, gpu.bound) == (Bound.COMPUTE, Bound.MEMORY)


# -- toy devices by hand ---------------------------------------------------------------------


def test_a_matrix_vector_product_is_memory_bound() -> None:
    # 131,072 FLOPs; 512 + 131,072 + 512 bytes; ridge 100: 13.2096 µs against 0.131 µs
    text = "agraph (float16[1,256] x, float16[256,256] w) => (float16 y) { y = MatMul(x, w) }"
    device = toy(Peak("fp16", 1e12), bandwidth=1e10)
    result = on(text, device).rooflines[0]
    (kernel,) = result.kernels
    assert result.ridge_points["fp16"] == pytest.approx(100)
    assert kernel.arithmetic_intensity == pytest.approx(0.9922480620155039)
    assert kernel.compute_seconds == pytest.approx(0.131072e-6)
    assert kernel.memory_seconds == pytest.approx(13.2096e-6)
    assert kernel.seconds == pytest.approx(13.2096e-6)
    assert kernel.bound is Bound.MEMORY
    assert result.latency_seconds == kernel.seconds


@pytest.mark.parametrize(
    ("peak", "bound", "seconds"),
    [(989.5e12, Bound.COMPUTE, 2.17027e-6), (1979e12, Bound.MEMORY, 1.87805e-6)],
)
def test_a_sparse_peak_would_flip_the_verdict(peak: float, bound: Bound, seconds: float) -> None:
    # 2³¹ FLOPs, 3 · 2 MiB: with the dense peak compute-bound, with the sparse one memory-bound
    text = "agraph (float16[1024,1024] x, float16[1024,1024] w) => (float16 y) { y = MatMul(x, w) }"
    (kernel,) = on(text, toy(Peak("fp16", peak), bandwidth=3.35e12)).rooflines[0].kernels
    assert kernel.bound is bound
    assert kernel.seconds == pytest.approx(seconds, rel=1e-5)


MATMUL = "agraph (float[100,100] x, float[100,100] w) => (float y) { y = MatMul(x, w) }"
GEMM = """agraph (float[100,100] x, float[100,100] w, float[100] b) => (float y)
    { y = Gemm(x, w, b) }"""


def test_only_matrix_products_run_on_the_matrix_engine() -> None:
    # 10⁶ MACs at 10¹² and 10⁴ bias additions at 10⁹: the engines overlap, 10 µs against 2 µs
    device = toy(Peak("fp32", 1e9), matrix=(Peak("fp32", 1e12),), bandwidth=1e15)
    (kernel,) = on(GEMM, device).rooflines[0].kernels
    assert kernel.compute_seconds == pytest.approx(10e-6)
    relu = "agraph (float[1000] x) => (float y) { y = Relu(x) }"
    (kernel,) = on(relu, device).rooflines[0].kernels
    assert kernel.compute_seconds == pytest.approx(1e-6)


def test_bounded_work_takes_the_time_of_its_upper_end() -> None:
    # at most 10⁶ MACs and 10⁴ additions: max(2·10⁶ / 10¹², 10⁴ / 10⁹) = 10 µs; additions as an
    # interval would be 2.01·10⁶ − 0 at most, which the kernel never has
    device = toy(Peak("fp32", 1e9), matrix=(Peak("fp32", 1e12),), bandwidth=1e15)
    (exact,) = on(GEMM, device).kernels.kernels
    assert exact.macs is not None
    assert exact.flops is not None
    bounded = replace(exact, macs=BoundedInt(exact.macs), flops=BoundedInt(exact.flops))
    for order in ((exact, bounded), (bounded, exact)):
        roofs = Device(device, "vendor")
        for kernel in order:
            assert roofs.time(kernel, {}).compute_seconds == pytest.approx(10e-6)


def test_on_one_engine_everything_adds_up() -> None:
    # (2·10⁶ + 10⁴) / 10⁹
    (kernel,) = on(GEMM, toy(Peak("fp32", 1e9), bandwidth=1e15)).rooflines[0].kernels
    assert kernel.compute_seconds == pytest.approx(2.01e-3)


def test_special_functions_have_their_own_rate() -> None:
    # 1000 exponentials at 10⁶ a second: 1 ms, though 1000 FLOPs at 10⁹ take 1 µs
    text = "agraph (float[1000] x) => (float y) { y = Exp(x) }"
    (slow,) = on(text, toy(Peak("fp32", 1e9), bandwidth=1e15, special=1e6)).rooflines[0].kernels
    (fast,) = on(text, toy(Peak("fp32", 1e9), bandwidth=1e15)).rooflines[0].kernels
    assert (slow.compute_seconds, fast.compute_seconds) == pytest.approx((1e-3, 1e-6))


def test_a_launch_costs_its_overhead() -> None:
    # Two kernels that do almost nothing: 2 · 5 µs, bound by overhead
    text = "agraph (float[2,3] x) => (float y) { a = ReduceMax(x) y = Softmax(a) }"
    result = on(text, toy(Peak("fp32", 1e12), bandwidth=1e12, overhead=5e-6)).rooflines[0]
    assert len(result.kernels) == 2
    assert result.latency_seconds == pytest.approx(10e-6, rel=1e-3)
    assert result.bound_shares[Bound.OVERHEAD] == pytest.approx(1.0)


def test_a_type_without_a_peak_has_no_compute_time_and_makes_the_plan_a_lower_bound() -> None:
    # fp32 work on a device that knows int8 alone: 120,000 bytes at 10⁹ is what remains
    result = on(MATMUL, toy(Peak("int8", 1e12), bandwidth=1e9)).rooflines[0]
    (kernel,) = result.kernels
    assert kernel.compute_seconds is None
    assert kernel.attainable_ops_per_second is None
    assert kernel.bound is Bound.MEMORY
    assert kernel.seconds == pytest.approx(1.2e-4)
    assert result.is_lower_bound_of_plan
    assert any("compute time unknown" in sentence for sentence in result.assumptions)


def test_a_wider_type_stands_in_and_is_said_to() -> None:
    # fp16 work at the fp32 rate: 2·10⁶ / 10⁹
    text = MATMUL.replace("float[", "float16[").replace("(float y)", "(float16 y)")
    result = on(text, toy(Peak("fp32", 1e9), bandwidth=1e15)).rooflines[0]
    assert result.kernels[0].compute_seconds == pytest.approx(2e-3)
    assert any("no fp16 peak" in sentence for sentence in result.assumptions)


def test_a_stand_in_is_said_of_the_models_it_was_used_for_and_of_each_of_them() -> None:
    # times are kept for the next model on the device; what had to be assumed for them with them
    device = toy(Peak("fp32", 1e9), bandwidth=1e9)
    said = [
        any("no fp16 peak" in sentence for sentence in on(text, device).rooflines[0].assumptions)
        for text in (dense(dtype="float16"), dense(), dense(dtype="float16"))
    ]
    assert said == [True, False, True]


def test_equal_kernels_of_two_models_are_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device = toy(Peak("fp32", 1e9), bandwidth=1e9)
    first = on(depthwise(), device).rooflines[0].kernels
    monkeypatch.setattr(Device, "_terms_of", None)  # a kernel that is not known would stumble here
    assert on(depthwise(), device).rooflines[0].kernels == first


def test_an_uncounted_operator_has_no_time_but_its_traffic() -> None:
    proto = model("agraph (float[1000] x) => (float[1000] y) { y = my.Foo(x) }", opsets={"my": 1})
    result = onnxroof.analyze(proto, toy(Peak("fp32", 1e9), bandwidth=1e9)).rooflines[0]
    (kernel,) = result.kernels
    assert (kernel.compute_seconds, kernel.bound) == (None, Bound.MEMORY)
    assert kernel.memory_seconds == pytest.approx(8e-6)
    assert kernel.arithmetic_intensity is None
    assert result.is_lower_bound_of_plan


def test_nothing_known_is_unknown_not_instant() -> None:
    proto = model("agraph (float[] x) => (float[] y) { y = my.Foo(x) }", opsets={"my": 1})
    (kernel,) = onnxroof.analyze(proto, CPU).rooflines[0].kernels
    assert kernel.bound is Bound.UNKNOWN
    assert (kernel.compute_seconds, kernel.memory_seconds) == (None, None)


def test_an_empty_batch_takes_no_time_and_divides_by_nothing() -> None:
    text = "agraph (float[0,8] x) => (float y) { y = Relu(x) }"
    result = on(text, toy(Peak("fp32", 1e9), bandwidth=1e9)).rooflines[0]
    assert result.latency_seconds == 0
    assert (result.flops_per_second, result.share_of_peak) == (0.0, None)
    assert all(kernel.arithmetic_intensity is None for kernel in result.kernels)


def test_a_loop_takes_its_trips() -> None:
    # 5 trips of 2·100³ FLOPs at 10⁹
    text = """agraph (float[100,100] x, float[100,100] w) => (float y)
        <int64 m = {5}, bool c = {1}> {
        y = Loop(m, c, x) <body = b (int64 i, bool go, float[100,100] h)
            => (bool on, float[100,100] next) { on = Identity(go) next = MatMul(h, w) }> }"""
    result = on(text, toy(Peak("fp32", 1e9), bandwidth=1e15)).rooflines[0]
    assert result.latency_seconds == pytest.approx(5 * 2e-3, rel=1e-3)
    assert result.kernels[-1].bound is Bound.COMPUTE


def test_an_undecided_branch_takes_the_slower_one() -> None:
    text = """agraph (float[100,100] x, float[100,100] w, bool c) => (float y) {
        y = If(c) <then_branch = t () => (float a) { a = MatMul(x, w) },
                   else_branch = e () => (float b) { b = Relu(x) }> }"""
    result = on(text, toy(Peak("fp32", 1e9), bandwidth=1e15)).rooflines[0]
    assert result.latency_seconds == pytest.approx(2e-3, rel=1e-3)
    assert result.at_upper_bounds


# -- sums ------------------------------------------------------------------------------------


def test_shares_of_time_add_up_to_one() -> None:
    text = """agraph (float[1,64,56,56] x, float[64,64,3,3] w) => (float y)
        { a = Conv <pads = [1,1,1,1]> (x, w) b = Softmax(a) y = ReduceMean(b) }"""
    for device in (CPU, GPU, "mobile-arm"):
        result = on(text, device).rooflines[0]
        assert sum(result.bound_shares.values()) == pytest.approx(1.0)
        assert sum(result.time_shares.values()) == pytest.approx(1.0)
        assert result.bound_seconds == pytest.approx(sum(k.seconds for k in result.kernels))
        assert result.latency_seconds == pytest.approx(sum(result.kernel_seconds))


def test_the_share_of_peak_is_what_the_whole_model_reaches() -> None:
    # 2·10⁶ FLOPs in 2·10⁶ / 10⁹ seconds, bound by compute: all of it
    result = on(MATMUL, toy(Peak("fp32", 1e9), bandwidth=1e15)).rooflines[0]
    assert (result.main_type, result.share_of_peak) == ("fp32", pytest.approx(1.0))
    assert result.flops_per_second == pytest.approx(1e9)
    assert result.peak_type == "fp32"


def test_a_share_of_peak_names_the_type_whose_peak_it_is() -> None:
    # no fp16 peak: the next wider type's stands in, and its name stands beside the share
    device = toy(Peak("fp32", 1e9), bandwidth=1e15)
    analysis = onnxroof.analyze(model(MATMUL), device, precision="fp16")
    result = analysis.rooflines[0]
    assert (result.main_type, result.peak_type) == ("fp16", "fp32")
    assert result.share_of_peak == pytest.approx(1.0)
    assert "100 % of fp32" in render(analysis, Format.TEXT, TableOptions())


def test_several_devices_come_in_the_order_asked_for() -> None:
    found = on(MATMUL, GPU, CPU).rooflines
    assert [result.hardware.name for result in found] == [GPU, CPU]


def test_sustained_figures_are_never_faster_than_the_vendor_s() -> None:
    for text in (dense(), depthwise()):
        for device in (CPU, GPU, "mobile-arm"):
            (vendor,), (measured,) = (
                on(text, device, peak=kind).rooflines for kind in ("vendor", "sustained")
            )
            assert measured.latency_seconds >= vendor.latency_seconds


@pytest.mark.parametrize(
    ("dtype", "label"),
    [
        (DType.FLOAT, "fp32"), (DType.UINT8, "int8"), (DType.BOOL, "int8"), (DType.UINT4, "int4"),
        (DType.FLOAT8E5M2, "fp8"), (DType.FLOAT4E2M1, "fp4"), (DType.COMPLEX64, "fp32"),
        (DType.BFLOAT16, "bf16"), (None, "fp32"),
    ],
)  # fmt: skip
def test_element_types_compute_at_the_rate_of_a_label(dtype: DType | None, label: str) -> None:
    assert compute_type(dtype) == label
