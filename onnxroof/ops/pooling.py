"""Pooling: windows, whole maps, regions of interest; quantized and channels-last forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import interval, lower, upper
from onnxroof.graph.types import DType
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, unless_none
from onnxroof.ops.checks import require_equal, require_rank
from onnxroof.ops.fused import fused_activation
from onnxroof.ops.geometry import ceil_div, sliding_window
from onnxroof.ops.layout import join_channels, split_channels
from onnxroof.ops.registry import INTERNAL_NHWC, MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape


def _kernel(call: OpCall) -> Shape:
    """The required kernel_shape. Raises Impossible when absent."""
    kernel = call.ints_attr("kernel_shape")
    if not kernel:
        raise Impossible("the required attribute kernel_shape is missing")
    return kernel


def pooled(call: OpCall) -> Shape:
    """Shape of a window operator's output in the layout of the call."""
    batch, channels, spatial = split_channels(call, call.shape(0))
    ceil_mode = call.attr("ceil_mode", 0) != 0
    dilations = call.ints_attr("dilations") or ()
    if call.attr("auto_pad", "NOTSET").startswith("SAME") and any(d != 1 for d in dilations):
        call.note(
            "auto_pad SAME makes the output ⌈input / stride⌉ by the operator text; runtimes that"
            " pad for the undilated window give less"
        )
    sizes = sliding_window(call, spatial, _kernel(call), ceil_mode=ceil_mode)
    return join_channels(call, batch, channels, sizes)


def _whole_map(call: OpCall) -> Shape:
    """Shape of a global pooling's output: every spatial size is 1."""
    batch, channels, spatial = split_channels(call, call.shape(0))
    return join_channels(call, batch, channels, (1,) * len(spatial))


def _norm_cost(exponent: float, outputs: int, each: int) -> OpCost:
    """`outputs` Lp norms of `each` values."""
    if exponent == 1:
        return unless_none(each, OpCost(0, outputs * (2 * each - 1)))
    if exponent == 2:
        return unless_none(each, OpCost(0, outputs * 2 * each, outputs))
    return unless_none(each, OpCost(0, outputs * 3 * each, outputs * (each + 1)))


def _exponent(call: OpCall) -> float:
    value = call.attributes.get("p", 2)
    if not isinstance(value, int | float):
        raise Impossible("attribute p should be a number")
    return value


@shape_rule("MaxPool")
@shape_rule("MaxPool", domain=INTERNAL_NHWC)
def max_pool_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, C, *O] and, if asked, int64 Indices of the same shape.

    O = ⌊(D + pads − dilation·(K − 1) − 1) / stride⌋ + 1; with ceil_mode ⌈·⌉, less a last window
    that would begin in the right padding.
    """
    x, shape = call.input(0), pooled(call)
    return [x.like(shape), TensorInfo(DType.INT64, shape)][: max(call.output_count, 1)]


@shape_rule("AveragePool", "LpPool")
@shape_rule("AveragePool", "LpPool", domain=INTERNAL_NHWC)
@shape_rule("MaxpoolWithMask", "NhwcMaxPool", domain=MICROSOFT)
def window_pool_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, C, *O], sized as MaxPool (channels last in the NHWC forms)."""
    return [call.input(0).like(pooled(call))]


@cost_rule("MaxPool")
@cost_rule("MaxPool", domain=INTERNAL_NHWC)
@cost_rule("MaxpoolWithMask", "NhwcMaxPool", domain=MICROSOFT)
def max_pool_cost(call: OpCall) -> OpCost:
    """Maximum over a window.

    Shapes
        X [N, C, *D]    Y [N, C, *O]    Indices like Y, optional
    Formula
        flops = elements of Y · (prod(K) − 1)
    Convention
        Windows are charged whole, on the padding too; keeping the indices is not charged.
    Source
        ONNX operator reference, MaxPool; ONNX Runtime contrib operators.
    """
    flops = call.output().elements * (math.prod(_kernel(call)) - 1)
    return OpCost(0, flops) + fused_activation(call)


@cost_rule("AveragePool")
@cost_rule("AveragePool", domain=INTERNAL_NHWC)
def average_pool_cost(call: OpCall) -> OpCost:
    """Mean over a window.

    Shapes
        X [N, C, *D]    Y [N, C, *O]
    Formula
        flops = elements of Y · prod(K): prod(K) − 1 additions and one division each, plus the fused
        activation of the com.ms.internal.nhwc form, one per element of Y
    Convention
        Windows are charged whole, on the padding too, whatever count_include_pad says.
    Source
        ONNX operator reference, AveragePool.
    """
    return OpCost(0, call.output().elements * math.prod(_kernel(call))) + fused_activation(call)


@cost_rule("LpPool")
@cost_rule("LpPool", domain=INTERNAL_NHWC)
def lp_pool_cost(call: OpCall) -> OpCost:
    """Lp norm of a window of K values.

    Formula
        per element of Y: 2K − 1 for p = 1 (absolute values, sum); 2K for p = 2 (squares, sum,
        root); 3K otherwise (absolute values, powers, sum, root)
        transcendentals: 0; 1; K + 1
    Source
        ONNX operator reference, LpPool.
    """
    return _norm_cost(_exponent(call), call.output().elements, math.prod(_kernel(call)))


@shape_rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
@shape_rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", domain=INTERNAL_NHWC)
def global_pool_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, C, 1, …]."""
    return [call.input(0).like(_whole_map(call))]


@cost_rule("GlobalAveragePool")
@cost_rule("GlobalAveragePool", domain=INTERNAL_NHWC)
def global_average_cost(call: OpCall) -> OpCost:
    """Mean of each channel's map.

    Shapes
        X [N, C, *D]    Y [N, C, 1, …]
    Formula
        flops = elements of X: prod(D) − 1 additions and one division per channel
    Source
        ONNX operator reference, GlobalAveragePool.
    """
    return OpCost(0, call.input(0).elements)


@cost_rule("GlobalMaxPool")
@cost_rule("GlobalMaxPool", domain=INTERNAL_NHWC)
def global_max_cost(call: OpCall) -> OpCost:
    """Maximum of each channel's map.

    Shapes
        X [N, C, *D]    Y [N, C, 1, …]
    Formula
        flops = elements of X − elements of Y: prod(D) − 1 comparisons per channel
    Source
        ONNX operator reference, GlobalMaxPool.
    """
    _, _, spatial = split_channels(call, call.shape(0))
    each = math.prod(spatial)
    return unless_none(each, OpCost(0, call.output().elements * (each - 1)))


@cost_rule("GlobalLpPool")
@cost_rule("GlobalLpPool", domain=INTERNAL_NHWC)
def global_lp_cost(call: OpCall) -> OpCost:
    """Lp norm of each channel's map.

    Formula
        flops and transcendentals as LpPool with K = prod(D)
    Source
        ONNX operator reference, GlobalLpPool.
    """
    _, _, spatial = split_channels(call, call.shape(0))
    return _norm_cost(_exponent(call), call.output().elements, math.prod(spatial))


@shape_rule("MaxUnpool")
@shape_rule("MaxUnpool", domain=INTERNAL_NHWC)
def max_unpool_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y of output_shape if given, else stride·(D − 1) + K − pads on every spatial axis."""
    x = call.input(0)
    if call.has(2):
        explicit = call.ints(2, "output_shape")
        require_equal(len(explicit), x.rank, "output_shape and X differ in rank")
        return [x.like(explicit)]
    batch, channels, spatial = split_channels(call, x.dims)
    kernel, rank = _kernel(call), len(spatial)
    strides = call.ints_attr("strides") or (1,) * rank
    pads = call.ints_attr("pads") or (0,) * (2 * rank)
    if not len(kernel) == len(strides) == rank or len(pads) != 2 * rank:
        raise Impossible(f"kernel_shape, strides and pads do not fit {rank} spatial axes")
    sizes = tuple(
        strides[i] * (size - 1) + kernel[i] - pads[i] - pads[i + rank]
        for i, size in enumerate(spatial)
    )
    return [x.like(join_channels(call, batch, channels, sizes))]


@cost_rule("MaxUnpool")
@cost_rule("MaxUnpool", domain=INTERNAL_NHWC)
def max_unpool_cost(call: OpCall) -> OpCost:  # noqa: ARG001 - the signature of a rule
    """Free of arithmetic: values are put where the indices say, zeros elsewhere."""
    return OpCost()


@shape_rule("MaxRoiPool")
def max_roi_pool_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [rois, C, *pooled_shape]."""
    x, pooled_shape = call.input(0), call.ints_attr("pooled_shape")
    require_rank(x.rank, 4, "X")
    if not pooled_shape or len(pooled_shape) != 2:
        raise Impossible("pooled_shape must have two values")
    return [x.like((call.shape(1)[0], x.dims[1], *pooled_shape))]


@cost_rule("MaxRoiPool")
def max_roi_pool_cost(call: OpCall) -> OpCost:
    """Maxima over the bins of regions whose size only the data tell.

    Formula
        flops ≤ rois · C · ((H + pooled_h) · (W + pooled_w) − pooled_h · pooled_w): a region is at
        most the whole map, and neighbouring bins share at most one row and one column
    Source
        ONNX operator reference, MaxRoiPool.
    """
    _, _, height, width = call.shape(0)
    rois, channels, rows, columns = call.output().dims
    most = upper(rois * channels * ((height + rows) * (width + columns) - rows * columns))
    return OpCost(0, interval(0, most), note="regions are charged as if each were the whole map")


@shape_rule("RoiAlign")
def roi_align_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [rois, C, output_height, output_width]."""
    x = call.input(0)
    require_rank(x.rank, 4, "X")
    size = (call.attr("output_height", 1), call.attr("output_width", 1))
    return [x.like((call.shape(1)[0], x.dims[1], *size))]


@cost_rule("RoiAlign")
def roi_align_cost(call: OpCall) -> OpCost:
    """Bilinear samples in every bin, averaged (or their maximum).

    Formula
        per element of Y with S samples: 7 · S to interpolate (4 products, 3 additions), and S for
        the mean (S − 1 additions, 1 division) or S − 1 for the maximum
        S = sampling_ratio²; with sampling_ratio 0 at most ⌈H / output_height⌉ · ⌈W / output_width⌉
    Convention
        Coordinates and weights, common to all channels, are not charged.
    Source
        ONNX operator reference, RoiAlign.
    """
    y = call.output()
    ratio = call.attr("sampling_ratio", 0)
    spared = 1 if call.attr("mode", "avg") == "max" else 0
    if ratio > 0:
        return OpCost(0, y.elements * (8 * ratio * ratio - spared))
    _, _, height, width = call.shape(0)
    samples = ceil_div(height, y.dims[2]) * ceil_div(width, y.dims[3]) if y.elements else 0
    most = y.elements * max(8 * upper(samples) - spared, 0)
    least = lower(y.elements) * (8 - spared) if samples else 0
    return OpCost(
        0,
        interval(least, upper(most)),
        note="the number of samples depends on the regions; charged for the whole map",
    )


@shape_rule("QLinearAveragePool", domain=MICROSOFT)
@shape_rule("QLinearAveragePool", domain=INTERNAL_NHWC)
def qlinear_average_pool_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y of the type of X, sized as AveragePool."""
    return [call.input(0).like(pooled(call))]


@cost_rule("QLinearAveragePool", domain=MICROSOFT)
@cost_rule("QLinearAveragePool", domain=INTERNAL_NHWC)
def qlinear_average_pool_cost(call: OpCall) -> OpCost:
    """AveragePool between a dequantization of X and a quantization of Y.

    Formula
        flops = elements of X + elements of Y · prod(K) + elements of Y
    Source
        ONNX Runtime contrib operators, QLinearAveragePool.
    """
    x, y = call.input(0).elements, call.output().elements
    return OpCost(0, x + y * math.prod(_kernel(call)) + y)


@shape_rule("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, C, 1, …] of the type of X (channels last if the attribute says so)."""
    return [call.input(0).like(_whole_map(call))]


@cost_rule("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_cost(call: OpCall) -> OpCost:
    """GlobalAveragePool between a dequantization of X and a quantization of Y.

    Formula
        flops = 2 · elements of X + elements of Y
    Source
        ONNX Runtime contrib operators, QLinearGlobalAveragePool.
    """
    x, y = call.input(0).elements, call.output().elements
    return OpCost(0, 2 * x + y)


_UNPOOLED = "it moves values to the places their indices name"
declare("MaxUnpool", control=(2,), free=_UNPOOLED)
declare("MaxUnpool", domain=INTERNAL_NHWC, control=(2,), free=_UNPOOLED)
declare(
    "QLinearAveragePool", "QLinearGlobalAveragePool", domain=MICROSOFT, quantization=(1, 2, 3, 4)
)
declare("QLinearAveragePool", domain=INTERNAL_NHWC, quantization=(1, 2, 3, 4))
