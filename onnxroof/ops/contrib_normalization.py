"""Normalizations as ONNX Runtime's optimizers write them: with residuals, embeddings, bias."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import smallest
from onnxroof.graph.types import DType
from onnxroof.ops.call import OpCost, TensorInfo
from onnxroof.ops.checks import require_rank, require_rank_at_least
from onnxroof.ops.fused import activation_cost
from onnxroof.ops.normalization import (
    grouped,
    per_row,
    rms_normalization_cost,
    root_mean_square,
    simplified_layer_normalization_shape,
    standardized,
)
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall

shape_rule("SimplifiedLayerNormalization", domain=MICROSOFT)(simplified_layer_normalization_shape)
cost_rule("SimplifiedLayerNormalization", domain=MICROSOFT)(rms_normalization_cost)


@shape_rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output and input_skip_bias_sum like input; float mean and inv_std_var [*rows, 1]."""
    x = call.input(0)
    require_rank_at_least(x.rank, 1, "input")
    statistics = TensorInfo(DType.FLOAT, (*x.dims[:-1], 1))
    return [x.like(), statistics, statistics, x.like()][: max(call.output_count, 1)]


@cost_rule("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization_cost(call: OpCall) -> OpCost:
    """LayerNormalization of input + skip (+ bias) over the last axis of n elements.

    Shapes
        input [*rows, n]    skip like input, or broadcast    gamma, beta, bias [n]
    Formula
        per row: n for skip, n for bias if given, 6n + 2, plus n if beta is given;
        transcendentals 1
    Source
        ONNX Runtime contrib operators, SkipLayerNormalization.
    """
    *rows, each = call.shape(0)
    added = call.input(0).elements * (1 + call.has(4))
    return standardized(math.prod(rows), each, bias=call.has(3)) + OpCost(0, added)


@cost_rule("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization_cost(call: OpCall) -> OpCost:
    """RMSNormalization of input + skip (+ bias) over the last axis of n elements.

    Formula
        per row: n for skip, n for bias if given, 4n + 2; transcendentals 1
    Source
        ONNX Runtime contrib operators, SkipSimplifiedLayerNormalization.
    """
    *rows, each = call.shape(0)
    added = call.input(0).elements * (1 + call.has(3))
    return root_mean_square(math.prod(rows), each) + OpCost(0, added)


@shape_rule("EmbedLayerNormalization", "QEmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output and embedding_sum [batch, sequence, hidden]; int32 mask_index [batch]."""
    ids, hidden = call.input(0), call.shape(2)[-1]
    require_rank(ids.rank, 2, "input_ids")
    quantized = call.op_type.startswith("Q")
    output = TensorInfo(call.input(8 if quantized else 2).dtype, (*ids.dims, hidden))
    mask_index = TensorInfo(DType.INT32, ids.dims[:1])
    return [output, mask_index, output][: max(call.output_count, 1)]


@cost_rule("EmbedLayerNormalization", "QEmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization_cost(call: OpCall) -> OpCost:
    """Rows of two or three embedding tables added and normalized.

    Shapes
        input_ids, segment_ids [B, S]    tables [rows, H]    gamma, beta [H]    output [B, S, H]
    Formula
        B · S rows of H: H per table after the first, 7H + 2; transcendentals B · S
        QEmbedLayerNormalization: H more per table (dequantization), and 2H in all for gamma, beta
        the mask, if it is counted: B · (S − 1) additions
    Traffic
        of each table the rows taken, at most the table; of the position table S rows when
        position_ids is not given
    Source
        ONNX Runtime contrib operators, EmbedLayerNormalization and QEmbedLayerNormalization.
    """
    (batch, sequence), hidden = call.shape(0), call.shape(2)[-1]
    rows = batch * sequence
    tables = 3 if call.has(4) else 2
    quantized = call.op_type.startswith("Q")
    added = rows * hidden * (tables - 1 + (tables if quantized else 0))
    added += 2 * hidden if quantized and rows else 0
    if call.has(7) and call.wants(1):
        added += rows - batch if rows else 0
    positions = rows if not quantized and call.has(8) else sequence
    reads = {
        at: _rows_read(call, at, taken)
        for at, taken in ((2, rows), (3, positions), (4, rows))
        if call.has(at)
    }
    work = standardized(rows, hidden)
    return OpCost(
        0,
        work.flops + added,
        work.transcendentals,
        reads={at: nbytes for at, nbytes in reads.items() if nbytes is not None},
    )


def _rows_read(call: OpCall, position: int, taken: int) -> int | None:
    """Bytes of the rows taken from a table, at most the table."""
    table = call.input(position)
    if table.dtype is None:
        return None
    return table.dtype.nbytes(smallest(taken, table.dims[0]) * table.dims[-1])


@shape_rule("GroupNorm", "BiasAdd", domain=MICROSOFT)
def like_input(call: OpCall) -> Sequence[TensorInfo]:
    """Y like X."""
    return [call.input(0).like()]


@shape_rule("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y and S (the sum of X, skip and bias) like X."""
    x = call.input(0)
    return [x.like(), x.like()][: max(call.output_count, 1)]


@cost_rule("GroupNorm", domain=MICROSOFT)
def group_norm_cost(call: OpCall) -> OpCost:
    """GroupNormalization, channels last by default, with an optional SiLU.

    Formula
        as GroupNormalization: N · groups · (7n + 2); plus one (transcendental) per element if
        activation is 1
    Source
        ONNX Runtime contrib operators, GroupNorm.
    """
    x = call.input(0)
    channels = x.dims[-1] if call.attr("channels_last", 1) else x.dims[1]
    activation = activation_cost("SiLU" if call.attr("activation", 0) else "", x.elements)
    return grouped((x.dims[0], channels), x, call.attr("groups", 0)) + activation


@cost_rule("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm_cost(call: OpCall) -> OpCost:
    """GroupNorm of X + skip (+ bias).

    Formula
        flops as GroupNorm, plus one addition per element for skip and one for bias if given
    Source
        ONNX Runtime contrib operators, SkipGroupNorm.
    """
    return group_norm_cost(call) + OpCost(0, call.input(0).elements * (1 + call.has(4)))


@cost_rule("BiasAdd", domain=MICROSOFT)
def bias_add_cost(call: OpCall) -> OpCost:
    """X + bias + skip.

    Formula
        flops = 2 per element of X
    Source
        ONNX Runtime contrib operators, BiasAdd.
    """
    return OpCost(0, 2 * call.input(0).elements)


@shape_rule("QOrderedLayerNormalization", domain=MICROSOFT)
def ordered_layer_normalization_shape(call: OpCall) -> Sequence[TensorInfo]:
    """int8 Y like X."""
    return [call.input(0).like()]


@cost_rule("QOrderedLayerNormalization", domain=MICROSOFT)
def ordered_layer_normalization_cost(call: OpCall) -> OpCost:
    """LayerNormalization between a dequantization of X and a quantization of Y.

    Formula
        per row of n: 6n + 2, plus n if B is given, plus 2n; transcendentals 1
    Source
        ONNX Runtime contrib operators, QOrderedLayerNormalization.
    """
    rows, each = per_row(call)
    return standardized(rows, each, bias=call.has(3)) + OpCost(0, 2 * rows * each)


declare("QOrderedLayerNormalization", domain=MICROSOFT, quantization=(1, 4))
declare("BiasAdd", domain=MICROSOFT, pointwise=True)
declare("QEmbedLayerNormalization", domain=MICROSOFT, quantization=tuple(range(8, 18)))
