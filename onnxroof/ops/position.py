"""Positions in attention: rotary embeddings and relative position biases.

A rotation turns pairs of channels: (x₁·cos − x₂·sin, x₁·sin + x₂·cos), 4 products, a difference and
a sum per pair, so 3 operations per rotated channel. Cosines and sines come from tables, of which
the rows of the positions in use are read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import smallest
from onnxroof.ops.attention import required_attribute, split_heads
from onnxroof.ops.call import FREE, Impossible, OpCost
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, TensorInfo

ROTATION_FLOPS = 3
"""Operations per rotated channel."""


def table_bytes(call: OpCall, position: int, rows: int) -> int:
    """Bytes of `rows` rows of a 2-D look-up table, at most the whole table."""
    table = call.input(position)
    whole = table.nbytes or 0
    if table.rank != 2 or not table.dims[0]:
        return whole
    return smallest(rows, table.dims[0]) * (whole // table.dims[0])


# -- RotaryEmbedding --------------------------------------------------------------------------


@shape_rule("RotaryEmbedding")
@shape_rule("RotaryEmbedding", "MRotaryEmbedding", domain=MICROSOFT)
def rotary_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y like X."""
    if call.input(0).rank not in (2, 3, 4):
        raise Impossible(f"the input must have 3 or 4 dimensions, got {call.input(0).rank}")
    return [call.input(0).like()]


@cost_rule("RotaryEmbedding")
def rotary_cost(call: OpCall) -> OpCost:
    """Rotary position embedding of all or of the first rotary_embedding_dim channels of a head.

    Shapes
        X [B, H, S, d] or [B, S, H·d]    cos, sin [positions, r/2] or [B, S, r/2]    Y like X
    Formula
        flops = 3 · B · S · H · r, with r rotated channels of d
    Traffic
        with position_ids, of the tables the rows of B · S positions, at most all
    Source
        ONNX operator reference, RotaryEmbedding.
    """
    x = call.input(0)
    rotated = 2 * call.shape(1)[-1]
    tokens, channels = _tokens(call)
    head = (
        x.dims[3]
        if x.rank == 4
        else split_heads(channels, required_attribute(call, "num_heads"), "X")
    )
    flops = ROTATION_FLOPS * tokens * channels // head * rotated if head else 0
    reads = {p: table_bytes(call, p, tokens) for p in (1, 2)} if call.has(3) else None
    return OpCost(0, flops, reads=reads)


@cost_rule("RotaryEmbedding", "MRotaryEmbedding", domain=MICROSOFT)
def rotary_contrib_cost(call: OpCall) -> OpCost:
    """Rotary position embedding; with three position streams (MRotaryEmbedding) as with one.

    Shapes
        input [B, H, S, d] or [B, S, H·d]    position_ids    cos, sin [positions, r/2]
    Formula
        flops = 3 · B · S · H · r
    Traffic
        of the tables the rows of B · S positions (S when one offset serves all), at most all
    Convention
        r is twice the width of the tables; without num_heads a head is r wide. Of the tables the
        rows of B · S positions are read (S when one offset serves all), at most all.
    Source
        ONNX Runtime contrib operators, RotaryEmbedding, MRotaryEmbedding.
    """
    x = call.input(0)
    rotated = 2 * call.shape(2)[-1]
    tokens, channels = _tokens(call)
    number = call.attr("num_heads", 0)
    head = x.dims[3] if x.rank == 4 else channels // number if number else rotated
    flops = ROTATION_FLOPS * tokens * channels // head * rotated if head else 0
    offset_only = call.shape(1) in ((), (1,))
    rows = tokens // x.dims[0] if offset_only and x.dims[0] else tokens
    return OpCost(0, flops, reads={p: table_bytes(call, p, rows) for p in (2, 3)})


def _tokens(call: OpCall) -> tuple[int, int]:
    """(batch · sequence, heads · head size) of a 4-D, 3-D or packed 2-D input."""
    dims = call.shape(0)
    if len(dims) == 4:
        return dims[0] * dims[2], dims[1] * dims[3]
    return math.prod(dims[:-1]), dims[-1]


@shape_rule("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma_rotary_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Both outputs like q and k."""
    return [call.input(1).like(), call.input(3).like()]


@cost_rule("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma_rotary_cost(call: OpCall) -> OpCost:
    """q·cos + q_rot·sin and the same of k, with sines and cosines computed from emb.

    Formula
        flops = 2 · elements(emb) + 3 · (elements(q) + elements(k)), the first transcendental
    Source
        ONNX Runtime contrib operators, GemmaRotaryEmbedding.
    """
    angles = 2 * call.input(0).elements
    rotated = call.input(1).elements + call.input(3).elements
    return OpCost(0, angles + ROTATION_FLOPS * rotated, angles)


# -- relative position biases -----------------------------------------------------------------


@shape_rule("RelativePositionBias", domain=MICROSOFT)
def relative_bias_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [1, heads, query length, key length] from the table [buckets, heads]."""
    (queries,) = call.ints(1, "the query length")
    (keys,) = call.ints(2, "the key length")
    return [call.input(0).like((1, call.shape(0)[1], queries, keys))]


declare(
    "RelativePositionBias",
    domain=MICROSOFT,
    control=(1, 2),
    free="a look-up in the bias table; finding the bucket is index arithmetic",
)


@cost_rule("RelativePositionBias", domain=MICROSOFT)
def relative_bias_cost(call: OpCall) -> OpCost:
    """Free of arithmetic on values: each output element is looked up in the bias table."""
    call.output()
    return FREE


@shape_rule("GatedRelativePositionBias", domain=MICROSOFT)
def gated_bias_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, heads, S, S]."""
    batch, sequence = (call.shape(6) if call.has(6) else call.shape(0))[:2]
    heads = required_attribute(call, "num_heads")
    return [call.input(0).like((batch, heads, sequence, sequence))]


@cost_rule("GatedRelativePositionBias", domain=MICROSOFT)
def gated_bias_cost(call: OpCall) -> OpCost:
    """A bias gated by a small linear layer over each head's query.

    Shapes
        query [B, S, H·d]    weight [d, D]    rel_pos [1, H, S, S]    output [B, H, S, S]
    Formula
        macs = B · H · S · d · D
        flops = 2 · macs + B·S·H·d (query bias) + B·H·S · (D bias + (D − 2) sums + 2 sigmoids
        + 4 for the gate) + B·H·S·S (product)
    Source
        ONNX Runtime contrib operators, GatedRelativePositionBias.
    """
    batch, heads, sequence, _ = call.output().dims
    head, width = call.shape(3)
    rows = batch * heads * sequence
    macs = rows * head * width
    gate = width + (width - 2) + 2 + 4
    flops = 2 * macs + call.input(0).elements + rows * gate + call.output().elements
    return OpCost(macs, flops, 2 * rows)
