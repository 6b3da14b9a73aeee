"""What expected times must satisfy whatever the constants are: order, bounds, threads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import onnxroof
from onnxroof.api import memo_for
from onnxroof.hardware.profile import EngineProfile, HardwareProfile, MemoryLevel, Peak
from onnxroof.hardware.read import available_profiles, load_profile
from onnxroof.latency.runtime_read import available_runtimes
from onnxroof.roofline import Bound
from tests.builders import model

if TYPE_CHECKING:
    from onnxroof.hardware.profile import PeakKind
    from onnxroof.roofline import RooflineResult
    from onnxroof.shapes import Memo

MODELS = Path(__file__).parents[2] / "models"

GPU, CPU, PHONE = "gtx-1080-ti", "xeon-gold-6240", "raspberry-pi-4"


def conv(
    *, batch: int = 1, channels: int = 64, filters: int = 64, size: int = 28, window: int = 3,
    group: int = 1, stride: int = 1,
) -> str:  # fmt: skip
    pad = window // 2
    return f"""agraph (float[{batch},{channels},{size},{size}] x,
        float[{filters},{channels // group},{window},{window}] w) => (float y)
        {{ y = Conv <pads = [{pad},{pad},{pad},{pad}], group = {group},
           strides = [{stride},{stride}]> (x, w) }}"""


def matmul(m: int, n: int, k: int) -> str:
    return f"agraph (float[{m},{k}] x, float[{k},{n}] w) => (float y) {{ y = MatMul (x, w) }}"


def expect(
    text: str, hardware: str | HardwareProfile, runtime: str | None = None, **how: object
) -> RooflineResult:
    return onnxroof.analyze(model(text), hardware, runtime=runtime, **how).rooflines[0]  # type: ignore[arg-type]


def seconds(text: str, hardware: str, runtime: str | None = None, **how: object) -> float:
    return expect(text, hardware, runtime, **how).latency_seconds


# -- the expectation and the bound -------------------------------------------------------------


@pytest.mark.parametrize("hardware", available_profiles())
def test_no_device_is_expected_to_beat_its_bound_with_a_direct_algorithm(hardware: str) -> None:
    for text in (
        conv(stride=2), conv(group=64), conv(window=1), conv(window=5, channels=3),
        matmul(1, 4096, 4096), matmul(512, 512, 512),
        "agraph (float[1,1000,1000] x) => (float y) { y = Softmax (x) }",
        "agraph (float[1,64,56,56] x) => (float y) { y = Transpose <perm = [0,2,3,1]> (x) }",
    ):  # fmt: skip
        for runtime in ("pytorch-eager", "tensorrt", "ncnn"):
            result = expect(text, hardware, runtime)
            assert result.latency_seconds >= result.bound_seconds, (text, runtime)


@pytest.mark.parametrize("runtime", available_runtimes())
@pytest.mark.parametrize("hardware", [GPU, CPU, PHONE, "mobile-arm"])
def test_any_pair_of_device_and_runtime_works(hardware: str, runtime: str) -> None:
    result = expect(conv(), hardware, runtime)
    assert result.runtime == runtime
    assert 0 < result.latency_seconds < 1
    assert result.latency_seconds == pytest.approx(sum(t.seconds for t in result.expected))


def test_a_fusion_set_alone_gives_the_bound() -> None:
    result = expect(conv(), GPU, "basic")
    assert (result.runtime, result.expected) == ("", ())
    assert result.latency_seconds == result.bound_seconds > 0


def test_only_winograd_may_beat_the_bound_of_the_direct_algorithm() -> None:
    result = expect(conv(batch=64, channels=512, filters=512, size=56), GPU, "pytorch-eager")
    assert result.expected[0].algorithm == "Winograd F(2×2)"
    # four multiplications an output in place of nine
    assert result.bound_seconds * 4 / 9 < result.latency_seconds < result.bound_seconds * 1.2


def test_a_kernel_of_unknown_work_keeps_its_bound() -> None:
    text = "agraph (float[64,64] x) => (float[64,64] y) { y = acme.Mystery (x) }"
    proto = model(text, opsets={"acme": 1})
    result = onnxroof.analyze(proto, GPU, runtime="pytorch-eager").rooflines[0]
    assert result.is_lower_bound_of_plan
    assert result.latency_seconds == pytest.approx(result.bound_seconds)


# -- more work takes more time -----------------------------------------------------------------


@pytest.mark.parametrize("hardware", [GPU, "v100", CPU, PHONE])
@pytest.mark.parametrize("runtime", ["tensorrt", "onnxruntime", "caffe", "torch-compile"])
def test_time_never_falls_with_the_batch(hardware: str, runtime: str) -> None:
    times = [seconds(conv(batch=batch), hardware, runtime) for batch in (1, 2, 4, 16, 64, 256)]
    assert times == sorted(times)
    assert times[-1] > 4 * times[0]


@pytest.mark.parametrize("hardware", [GPU, CPU, PHONE])
def test_time_never_falls_with_any_size_of_a_product(hardware: str) -> None:
    base = seconds(matmul(512, 512, 512), hardware, "onnxruntime")
    for sizes in ((1024, 512, 512), (512, 1024, 512), (512, 512, 1024)):
        assert seconds(matmul(*sizes), hardware, "onnxruntime") >= base


def test_half_precision_on_tensor_cores_is_faster() -> None:
    text = matmul(4096, 4096, 4096)
    # 125 against 15.7 TFLOP/s: eight times the rate
    assert seconds(text, "v100", precision="fp16") * 5 < seconds(text, "v100")


# -- shapes ------------------------------------------------------------------------------------


def test_narrow_channels_waste_a_tile() -> None:
    # a quarter of the filters, as wide a tile: by no means a quarter of the time
    wide = seconds(conv(batch=256, channels=64, filters=64, window=5), GPU, "pytorch-eager")
    narrow = seconds(conv(batch=256, channels=64, filters=16, window=5), GPU, "pytorch-eager")
    assert narrow > 0.8 * wide


@pytest.mark.parametrize("hardware", [GPU, "v100", CPU, PHONE])
def test_a_depthwise_convolution_costs_more_per_operation(hardware: str) -> None:
    dense = expect(conv(batch=16, channels=256, filters=256), hardware, "onnxruntime")
    light = expect(conv(batch=16, channels=256, filters=256, group=256), hardware, "onnxruntime")
    dense_macs, light_macs = 256 * 256 * 9, 256 * 9
    per_mac = light.latency_seconds / light_macs, dense.latency_seconds / dense_macs
    assert per_mac[0] > 3 * per_mac[1]
    assert light.expected[0].algorithm == "depthwise"


def test_a_loop_over_groups_makes_a_cheap_network_slow() -> None:
    text = conv(channels=512, filters=512, size=14, group=512)
    kernel, loop = expect(text, GPU, "pytorch-eager"), expect(text, GPU, "caffe")
    assert loop.expected[0].algorithm == "one product a group"
    assert loop.latency_seconds > 10 * kernel.latency_seconds
    # 512 launches of at least the kernel overhead each
    overhead = load_profile(GPU).kernel_overhead_seconds
    assert loop.expected[0].overhead_seconds == pytest.approx(512 * overhead)


def test_winograd_is_for_3_by_3_at_stride_1() -> None:
    def algorithm(text: str) -> str:
        return expect(text, GPU, "pytorch-eager").expected[0].algorithm

    assert algorithm(conv(batch=8, channels=256, filters=256)).startswith("Winograd")
    for other in (conv(batch=8, stride=2), conv(batch=8, window=1), conv(batch=8, group=2)):
        assert not algorithm(other).startswith("Winograd")


def test_the_im2col_matrix_is_written_unless_the_window_is_one_pixel() -> None:
    three = expect(conv(batch=8, window=3), GPU, "caffe").expected[0]
    one = expect(conv(batch=8, window=1), GPU, "caffe").expected[0]
    assert three.algorithm == one.algorithm == "im2col"
    # nine times the input, written and read, beside input, weights and output
    assert three.memory_seconds > 5 * one.memory_seconds


def test_a_recurrent_layer_takes_its_steps_one_after_the_other() -> None:
    def lstm(steps: int) -> float:
        text = f"""agraph (float[{steps},1,256] x, float[1,1024,256] w, float[1,1024,256] r)
            => (float y) {{ y = LSTM <hidden_size = 256> (x, w, r) }}"""
        return seconds(text, GPU, "tensorrt")

    assert lstm(100) == pytest.approx(10 * lstm(10), rel=0.2)


# -- launches and the host ---------------------------------------------------------------------


def chain(length: int, channels: int) -> str:
    body = " ".join(f"t{i + 1} = Relu (t{i})" for i in range(length))
    return f"agraph (float[1,{channels},8,8] t0) => (float t{length}) {{ {body} }}"


def test_small_kernels_of_an_eager_gpu_are_ranked_by_their_number() -> None:
    few_and_wide = seconds(chain(10, 256), GPU, "pytorch-eager")
    many_and_narrow = seconds(chain(40, 16), GPU, "pytorch-eager")
    assert many_and_narrow == pytest.approx(4 * few_and_wide)
    assert expect(chain(10, 256), GPU, "pytorch-eager").kernel_bounds == (Bound.OVERHEAD,) * 10


def test_large_kernels_of_an_eager_gpu_hide_the_host() -> None:
    text = "agraph (float[64,256,56,56] x) => (float y) { y = Relu (x) }"
    result = expect(text, GPU, "pytorch-eager")
    time = result.expected[0]
    assert time.memory_seconds > time.host_seconds
    assert time.seconds < time.memory_seconds + time.host_seconds
    assert result.kernel_bounds == (Bound.MEMORY,)


def test_a_slower_host_slows_only_what_waits_for_it() -> None:
    quick = load_profile("v100")
    from dataclasses import replace

    slow = replace(quick, host_factor=2 * quick.host_factor)
    tiny, large = chain(10, 16), matmul(8192, 8192, 8192)
    assert seconds(tiny, slow, "pytorch-eager") == pytest.approx(  # type: ignore[arg-type]
        2 * seconds(tiny, quick, "pytorch-eager")  # type: ignore[arg-type]
    )
    assert seconds(large, slow, "pytorch-eager") == seconds(large, quick, "pytorch-eager")  # type: ignore[arg-type]


# -- threads -----------------------------------------------------------------------------------


def test_compute_scales_with_threads_and_loses_some() -> None:
    text = conv(channels=256, filters=256, size=56)
    one, two, eighteen = (seconds(text, CPU, "onnxruntime", threads=count) for count in (1, 2, 18))
    assert one / 2 < two < one
    assert one / 18 < eighteen < two


def test_bandwidth_saturates() -> None:
    text = "agraph (float[1,512,512,512] x) => (float y) { y = Relu (x) }"
    times = [seconds(text, CPU, "onnxruntime", threads=count) for count in (1, 4, 12, 18)]
    # one core draws 12 GB/s, all together 0.8 · 140.8
    assert times[0] / times[1] == pytest.approx(4, rel=0.05)
    assert times[2] == pytest.approx(times[3], rel=0.25)


def test_more_threads_than_cores_are_refused() -> None:
    with pytest.raises(onnxroof.ProfileError, match="no figures for 64 threads"):
        seconds(conv(), CPU, threads=64)


def test_the_big_cores_come_first() -> None:
    one, four = (load_profile("snapdragon-855").for_threads(count) for count in (1, 4))
    # 2.84 GHz, and with 3 · 2.42 GHz; 16 FLOP a cycle
    assert one.peak_ops_per_second("fp32", "vector").ops_per_second == pytest.approx(45.44e9)
    assert four.peak_ops_per_second("fp32", "vector").ops_per_second == pytest.approx(161.6e9)


# -- known machines ----------------------------------------------------------------------------


def test_a_v100_reaches_four_fifths_of_its_peak_on_large_products() -> None:
    # DeepBench, 160 GEMM shapes in fp32: median 12.4 of 15.7 TFLOP/s, best 14.8
    result = expect(matmul(4096, 4096, 4096), "v100", "tensorrt")
    rate = 2 * 4096**3 / result.latency_seconds
    assert 12.4e12 < rate < 14.8e12


def test_mobilenet_on_an_eager_gpu_waits_for_the_host_at_batch_1() -> None:
    text = " ".join(f"t{i + 1} = Conv <group = 64, pads = [1,1,1,1]> (t{i}, w)" for i in range(20))
    graph = f"agraph (float[1,64,28,28] t0, float[64,1,3,3] w) => (float t20) {{ {text} }}"
    assert expect(graph, "rtx-2080-ti").time_shares[Bound.OVERHEAD] == pytest.approx(1)


@pytest.mark.parametrize("kind", ["cpu", "gpu", "npu", "mcu"])
def test_a_profile_of_peaks_and_bandwidth_alone_has_an_expectation(kind: str) -> None:
    sheet = HardwareProfile(
        name="sheet", title="data sheet", vendor="none", kind=kind,  # type: ignore[arg-type]
        vector_engine=EngineProfile("vector", (Peak("fp32", 1e12),)),
        memory=(MemoryLevel("dram", vendor_bytes_per_second=1e11),),
        kernel_overhead_seconds=1e-6, runtime="onnxruntime", threads=4 if kind == "cpu" else None,
    )  # fmt: skip
    for text in (conv(), conv(group=64), matmul(64, 64, 64)):
        result = expect(text, sheet)
        assert result.bound_seconds <= result.latency_seconds < 100 * result.bound_seconds


def test_vendor_and_sustained_figures_of_one_process_do_not_mix() -> None:
    # some of its kernels take what the roofline says, which the figures chosen decide
    path, figures = MODELS / "bert_small_dynq.onnx", ("vendor", "sustained", "vendor")
    shared = memo_for("")
    together = [expected(path, peak, shared) for peak in figures]
    alone = [expected(path, peak, memo_for("")) for peak in figures]
    assert together == alone
    assert together[0] < together[1]


def expected(path: Path, peak: PeakKind, memo: Memo) -> float:
    analysis = onnxroof.analyze(path, "10980xe", peak=peak, memo=memo)
    return analysis.rooflines[0].latency_seconds
