"""Normalizations: over the batch, instances, groups, layers, neighbours, and by a norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import is_exact
from onnxroof.graph.types import DTYPE_BY_CODE, DType
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, unless_none
from onnxroof.ops.checks import require_equal, require_rank_at_least
from onnxroof.ops.fused import fused_activation
from onnxroof.ops.geometry import normalize_axes, normalize_axis
from onnxroof.ops.layout import split_channels
from onnxroof.ops.registry import INTERNAL_NHWC, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape

DEFAULT_MVN_AXES = (0, 2, 3)


def standardized(rows: int, each: int, *, scale: bool = True, bias: bool = True) -> OpCost:
    """Rows of `each` elements made zero-mean and unit-variance, then scaled and shifted.

    Per row of n: mean n, deviation n, square n, variance n, epsilon 1, root 1, division n; scale n
    and shift n if there are any.
    """
    return unless_none(each, OpCost(0, rows * ((5 + scale + bias) * each + 2), rows))


def root_mean_square(rows: int, each: int) -> OpCost:
    """Rows divided by their root mean square, then scaled.

    Per row of n: square n, mean n, epsilon 1, root 1, division n, scale n.
    """
    return unless_none(each, OpCost(0, rows * (4 * each + 2), rows))


def per_row(call: OpCall) -> tuple[int, int]:
    """(rows, elements of each) when normalized over the axes from `axis` on."""
    x = call.shape(0)
    axis = normalize_axis(call.attr("axis", -1), len(x))
    return math.prod(x[:axis]), math.prod(x[axis:])


@shape_rule("BatchNormalization")
@shape_rule("BatchNormalization", domain=INTERNAL_NHWC)
def batch_normalization_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y like X; the running (and saved) statistics like the mean and variance given.

    Five outputs before opset 14, three from then on.
    """
    x, mean, variance = call.input(0), call.input(3), call.input(4)
    _check_channels(call)
    outputs = [x.like(), mean.like(), variance.like(), mean.like(), variance.like()]
    return outputs[: max(call.output_count, 1)]


def _check_channels(call: OpCall) -> None:
    """Scale must have one value a channel (opset < 9 may have one an element: spatial = 0)."""
    x, scale = call.inputs[0], call.inputs[1]
    if x is None or x.shape is None or scale is None or scale.shape is None:
        return
    if x.rank < 2 or len(scale.shape) != 1:
        return
    require_equal(
        split_channels(call, x.shape)[1], scale.shape[0], "channels of X and values of scale differ"
    )


def is_training(call: OpCall) -> bool:
    """Whether statistics are computed from the batch: by attribute, before opset 14 by outputs."""
    if call.opset >= 14:
        return call.attr("training_mode", 0) != 0
    return any(call.wants(position) for position in range(1, 5))


@cost_rule("BatchNormalization")
@cost_rule("BatchNormalization", domain=INTERNAL_NHWC)
def batch_normalization_cost(call: OpCall) -> OpCost:
    """Scale and shift of every channel; in training mode with the statistics of the batch.

    Shapes
        X [N, C, *D]    scale, B, mean, var [C]    Y like X
    Formula
        inference: flops = 2 per element (the four parameters fold into a scale and a shift)
        training: 4 more per element (mean, deviation, square, variance) and, per channel, 6 for
        the running mean and variance
    Convention
        Training mode: attribute training_mode; before opset 14, that statistics are outputs.
    Source
        ONNX operator reference, BatchNormalization.
    """
    elements = call.input(0).elements
    if not is_training(call):
        return OpCost(0, 2 * elements) + fused_activation(call)
    return OpCost(0, 6 * elements + 6 * call.input(3).elements) + fused_activation(call)


@shape_rule("InstanceNormalization", "GroupNormalization", "LRN", "LpNormalization")
@shape_rule("MeanVarianceNormalization")
@shape_rule("InstanceNormalization", "LRN", domain=INTERNAL_NHWC)
def same_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y like X."""
    return [call.input(0).like()]


@cost_rule("InstanceNormalization")
@cost_rule("InstanceNormalization", domain=INTERNAL_NHWC)
def instance_normalization_cost(call: OpCall) -> OpCost:
    """Every channel of every sample standardized over its n = prod(D) elements.

    Shapes
        X [N, C, *D]    scale, B [C]    Y like X
    Formula
        flops = N · C · (7n + 2), transcendentals = N · C
    Source
        ONNX operator reference, InstanceNormalization.
    """
    batch, channels, spatial = split_channels(call, call.shape(0))
    return standardized(batch * channels, math.prod(spatial)) + fused_activation(call)


@cost_rule("GroupNormalization")
def group_normalization_cost(call: OpCall) -> OpCost:
    """Groups of channels of every sample standardized over their n elements.

    Shapes
        X [N, C, *D]    scale, bias [C] (per group before opset 21)    Y like X
    Formula
        n = C / num_groups · prod(D); flops = N · num_groups · (7n + 2),
        transcendentals = N · num_groups
    Source
        ONNX operator reference, GroupNormalization.
    """
    return grouped(call.shape(0)[:2], call.input(0), call.attr("num_groups", 0))


def grouped(leading: Shape, x: TensorInfo, groups: int) -> OpCost:
    """Cost of standardizing the groups of channels of (batch, channels)."""
    require_rank_at_least(x.rank, 2, "X")
    batch, channels = leading
    if groups < 1 or (is_exact(channels) and channels % groups):
        raise Impossible(f"{channels} channels do not divide into {groups} groups")
    return standardized(batch * groups, math.prod(x.dims[1:]) // groups)


@shape_rule("LayerNormalization")
def layer_normalization_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y like X; Mean and InvStdDev have size 1 on the normalized axes and the stash type."""
    x = call.input(0)
    statistics = TensorInfo(_stash_type(call), _row_shape(call))
    return [x.like(), statistics, statistics][: max(call.output_count, 1)]


def _row_shape(call: OpCall) -> Shape:
    x = call.shape(0)
    axis = normalize_axis(call.attr("axis", -1), len(x))
    return (*x[:axis], *(1,) * (len(x) - axis))


def _stash_type(call: OpCall) -> DType | None:
    return DTYPE_BY_CODE.get(call.attr("stash_type", 1))


@cost_rule("LayerNormalization")
def layer_normalization_cost(call: OpCall) -> OpCost:
    """The axes from `axis` on standardized together, n elements a row.

    Shapes
        X [*rows, *normalized]    Scale and B broadcast to X, B optional    Y like X
    Formula
        per row: 6n + 2, plus n if B is given; transcendentals 1
    Source
        ONNX operator reference, LayerNormalization.
    """
    rows, each = per_row(call)
    return standardized(rows, each, bias=call.has(2))


@shape_rule("RMSNormalization")
def rms_normalization_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y like X, of the type of scale."""
    normalize_axis(call.attr("axis", -1), call.input(0).rank)
    return [call.input(0).like(dtype=call.input(1).dtype)]


@shape_rule("SimplifiedLayerNormalization")
def simplified_layer_normalization_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y like X, of the type of scale; inv_std_var with size 1 on the normalized axes."""
    statistics = TensorInfo(_stash_type(call), _row_shape(call))
    y = call.input(0).like(dtype=call.input(1).dtype)
    return [y, statistics][: max(call.output_count, 1)]


@cost_rule("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization_cost(call: OpCall) -> OpCost:
    """The axes from `axis` on divided by their root mean square, n elements a row.

    Shapes
        X [*rows, *normalized]    scale broadcasts to X    Y like X
    Formula
        per row: 4n + 2, transcendentals 1
    Source
        ONNX operator reference, RMSNormalization; ONNX Runtime, SimplifiedLayerNormalization.
    """
    return root_mean_square(*per_row(call))


@cost_rule("LRN")
@cost_rule("LRN", domain=INTERNAL_NHWC)
def lrn_cost(call: OpCall) -> OpCost:
    """Every element divided by a power of the squares of its neighbour channels.

    Formula
        per element with window `size`: size squares, size − 1 additions, alpha/size and bias 2,
        power 1, division 1: 2 · size + 3; transcendentals 1
    Convention
        The window is charged whole at the first and last channels, too.
    Source
        ONNX operator reference, LRN.
    """
    size = call.attr("size", 0)
    if size < 1:
        raise Impossible(f"attribute size must be positive, got {size}")
    elements = call.input(0).elements
    return OpCost(0, elements * (2 * size + 3), elements)


@cost_rule("LpNormalization")
def lp_normalization_cost(call: OpCall) -> OpCost:
    """Every row along `axis` divided by its Lp norm.

    Formula
        per row of n: 3n for p = 2 (squares, sum, root, division; transcendentals 1),
        3n − 1 for p = 1 (absolute values, sum, division)
    Source
        ONNX operator reference, LpNormalization.
    """
    x = call.shape(0)
    axis = normalize_axis(call.attr("axis", -1), len(x))
    rows = math.prod(dim for position, dim in enumerate(x) if position != axis)
    if not x:
        return OpCost()
    if call.attr("p", 2) == 1:
        return unless_none(x[axis], OpCost(0, rows * (3 * x[axis] - 1)))
    return unless_none(x[axis], OpCost(0, rows * 3 * x[axis], rows))


@cost_rule("MeanVarianceNormalization")
def mean_variance_normalization_cost(call: OpCall) -> OpCost:
    """(X − mean) / √variance over `axes`, n elements together.

    Formula
        per row: mean n, deviation n, square n, variance n, root 1, division n: 5n + 1;
        transcendentals 1
    Source
        ONNX operator reference, MeanVarianceNormalization (axes [0, 2, 3] by default).
    """
    x = call.shape(0)
    axes = normalize_axes(call.ints_attr("axes") or DEFAULT_MVN_AXES, len(x))
    each = math.prod(x[axis] for axis in axes)
    rows = math.prod(dim for axis, dim in enumerate(x) if axis not in axes)
    return unless_none(each, OpCost(0, rows * (5 * each + 1), rows))


declare("BatchNormalization", pointwise=True)
declare("BatchNormalization", domain=INTERNAL_NHWC, pointwise=True)
