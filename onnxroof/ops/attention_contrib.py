"""Attention as ONNX Runtime's optimizers fuse it: packed projections, caches, shared buffers.

A cache that past and present share is appended to in place: only the new rows are written, and
only the rows in use are read. Separate buffers are copied, as the file says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxroof.bounded import BoundedInt, interval, largest, lower, upper
from onnxroof.ops.attention import (
    Heads,
    attention_work,
    projection_work,
    required_attribute,
    split_heads,
)
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, Undetermined
from onnxroof.ops.position import ROTATION_FLOPS
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxroof.ops.call import OpCall, Shape


@dataclass(frozen=True, slots=True)
class Cache:
    """A key-value cache: rows it can hold, rows in use before this call, rows appended.

    `shared`: past and present are one buffer of `capacity` rows; None where only a run tells.
    """

    capacity: int
    past: int
    new: int
    shared: bool | None

    @property
    def total(self) -> int:
        """Keys attended to."""
        return self.past + self.new

    @property
    def present(self) -> int:
        """Rows of the present output."""
        return self.capacity if self.shared else largest(self.capacity, self.total)


def cache_of(call: OpCall, capacity: int, new: int, *, shared: bool, length_input: int) -> Cache:
    """The cache of an operator whose shared buffer says how much of it is in use by an input."""
    if not shared:
        return Cache(capacity, capacity, new, shared=False)
    value = call.value(length_input)
    if value is not None and value.size == 1:
        return Cache(capacity, value.ravel().tolist()[0], new, shared=True)
    return Cache(capacity, BoundedInt(upper(capacity) - lower(new)), new, shared=True)


def in_place(
    call: OpCall, cache: Cache, inputs: Sequence[int], outputs: Sequence[int]
) -> tuple[Mapping[int, int] | None, Mapping[int, int] | None]:
    """(reads, writes) of the past inputs and present outputs of what is, or may be, one buffer."""
    if cache.shared is False or not upper(cache.capacity):
        return None, None
    reads, writes = {}, {}
    for position in inputs:
        if call.has(position):
            reads[position] = (call.input(position).nbytes or 0) * cache.past // cache.capacity
    for position in outputs:
        if position < len(call.outputs):
            nbytes = call.output(position).nbytes or 0
            if cache.shared:
                writes[position] = nbytes * cache.new // cache.capacity
            else:  # the new rows, or all of a longer buffer
                rows = max(lower(cache.present), 1)
                writes[position] = interval(lower(nbytes) * lower(cache.new) // rows, upper(nbytes))
    return reads, writes


def with_traffic(
    cost: OpCost, traffic: tuple[Mapping[int, int] | None, Mapping[int, int] | None]
) -> OpCost:
    """The cost with the reads and writes given."""
    return replace(cost, reads=traffic[0], writes=traffic[1])


# -- Attention: the projection inside ---------------------------------------------------------


@shape_rule("Attention", "DecoderMaskedSelfAttention", domain=MICROSOFT)
def fused_attention_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, S, Dv]; present [2, B, N, P + S, dv], or past's shape where it is shared."""
    x = call.input(0)
    heads, cache = _fused_heads(call, past=4)
    present = (2, heads.batch, heads.heads, cache.present, heads.value_size)
    return [x.like((*x.dims[:-1], heads.heads * heads.value_size)), x.like(present)]


def _fused_heads(call: OpCall, past: int) -> tuple[Heads, Cache]:
    batch, sequence, inputs = three(call.shape(0))
    weight = call.shape(1)
    if upper(weight[0]) != upper(inputs):
        raise Impossible(f"weights of {weight[0]} rows do not fit an input of width {inputs}")
    number = required_attribute(call, "num_heads")
    query_width, value_width = _projected_widths(call, weight[1])
    capacity = call.shape(past)[3] if call.has(past) else 0
    shared = call.attr("past_present_share_buffer", 0) != 0 and call.has(past)
    cache = cache_of(call, capacity, sequence, shared=shared, length_input=6)
    heads = Heads(
        batch,
        number,
        sequence,
        cache.total,
        split_heads(query_width, number, "Q"),
        split_heads(value_width, number, "V"),
    )
    return heads, cache


def _projected_widths(call: OpCall, width: int) -> tuple[int, int]:
    """(width of Q and of K, width of V) of a merged weight of `width` columns."""
    sizes = call.ints_attr("qkv_hidden_sizes")
    if sizes is None:
        return split_heads(width, 3, "the merged weight"), width // 3
    if len(sizes) != 3 or sum(sizes) != width:
        raise Impossible(f"qkv_hidden_sizes {list(sizes)} do not add up to {width} columns")
    return sizes[0], sizes[2]


def three(shape: Shape) -> tuple[int, int, int]:
    """The dimensions of [batch, sequence, width]. Raises Impossible for another rank."""
    if len(shape) != 3:
        raise Impossible(f"the input must be [batch, sequence, width], got {len(shape)} dimensions")
    return shape[0], shape[1], shape[2]


@cost_rule("Attention", "DecoderMaskedSelfAttention", domain=MICROSOFT)
def fused_attention_cost(call: OpCall) -> OpCost:
    """Projection of Q, K and V by one merged weight, then attention.

    Shapes
        input [B, S, I]    weights [I, D + D + Dv]    past [2, B, N, P, d]    output [B, S, Dv]
    Formula
        macs = B · S · I · (2·D + Dv) + B · N · S · (P + S) · (d + e), e = Dv / N
        flops = 2 · macs + B · S · (2·D + Dv) (bias) + scale, masks, softmax as for Attention
        + 3 · B · S · 2·D if do_rotary
    Traffic
        a shared past buffer: the filled part is read, the new rows are written
    Convention
        Dense, also when unidirectional. A shared past buffer is read as far as it is filled and
        only the S new rows are written.
    Source
        ONNX Runtime contrib operators, Attention, DecoderMaskedSelfAttention.
    """
    heads, cache = _fused_heads(call, past=4)
    inputs, width = call.shape(1)
    rows = heads.batch * heads.queries
    cost = projection_work(rows, inputs, width, bias=call.has(2)) + attention_work(
        heads, biases=call.has(3) + call.has(5)
    )
    if call.attr("do_rotary", 0):
        head = call.attr("rotary_embedding_dim", 0) or heads.head_size
        cost = cost + OpCost(0, ROTATION_FLOPS * rows * heads.heads * 2 * head)
    return with_traffic(cost, in_place(call, cache, (4,), (1,)))


declare("Attention", domain=MICROSOFT, control=(6,))
declare("DecoderMaskedSelfAttention", domain=MICROSOFT, control=(6, 7))


@shape_rule("QAttention", domain=MICROSOFT)
def quantized_attention_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, S, D] of the scales' type; present [2, B, N, P + S, d]."""
    heads, cache = _fused_heads(call, past=8)
    result = call.input(3)
    batch, sequence, _ = call.shape(0)
    present = (2, batch, heads.heads, cache.present, heads.head_size)
    return [
        result.like((batch, sequence, heads.heads * heads.value_size)).marked(constant=False),
        result.like(present),
    ]


@cost_rule("QAttention", domain=MICROSOFT)
def quantized_attention_cost(call: OpCall) -> OpCost:
    """Attention whose input projection multiplies 8-bit integers.

    Formula
        macs as com.microsoft.Attention
        flops as com.microsoft.Attention, plus one subtraction per element of the input if it has a
        zero point and one product (dequantization) per element projected
    Traffic
        a shared past buffer: the filled part is read, the new rows are written
    Convention
        All macs are reported under the integer type of the projection; the two products of the
        attention itself run in floating point.
    Source
        ONNX Runtime contrib operators, QAttention.
    """
    heads, cache = _fused_heads(call, past=8)
    inputs, width = call.shape(1)
    rows = heads.batch * heads.queries
    cost = projection_work(rows, inputs, width, bias=True) + attention_work(
        heads, biases=int(call.has(5))
    )
    extra = rows * width + (call.input(0).elements if call.has(6) else 0)
    return with_traffic(
        replace(cost, flops=cost.flops + extra, compute_dtype=call.input(0).dtype),
        in_place(call, cache, (8,), (1,)),
    )


declare("QAttention", domain=MICROSOFT, quantization=(3, 4, 6, 7))


@shape_rule("QOrderedAttention", domain=MICROSOFT)
def ordered_attention_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, S, Dv]."""
    x = call.input(0)
    return [x.like((*x.dims[:-1], call.shape(7)[1]))]


@cost_rule("QOrderedAttention", domain=MICROSOFT)
def ordered_attention_cost(call: OpCall) -> OpCost:
    """Attention with three separate 8-bit projections and 8-bit products.

    Formula
        macs as com.microsoft.Attention
        flops as com.microsoft.Attention, plus one product (rescaling) per element projected, per
        score and per element of the output
    Source
        ONNX Runtime contrib operators, QOrderedAttention.
    """
    batch, sequence, inputs = three(call.shape(0))
    number = required_attribute(call, "num_heads")
    widths = [call.shape(position)[1] for position in (5, 6, 7)]
    heads = Heads(
        batch, number, sequence, sequence,
        split_heads(widths[0], number, "Q"), split_heads(widths[2], number, "V"),
    )  # fmt: skip
    rows = batch * sequence
    cost = projection_work(rows, inputs, sum(widths), bias=True) + attention_work(
        heads, biases=call.has(17) + call.has(19)
    )
    rescaled = rows * sum(widths) + heads.scores + call.output().elements
    return replace(cost, flops=cost.flops + rescaled, compute_dtype=call.input(0).dtype)


declare("QOrderedAttention", domain=MICROSOFT, quantization=(1, 2, 3, 4, 8, 9, 10, 14, 15, 16))


# -- MultiHeadAttention: projections outside --------------------------------------------------


@shape_rule("MultiHeadAttention", domain=MICROSOFT)
def multi_head_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, S, Dv]; present [B, N, P + L, ·] or the shared buffer's; scores [B, N, S, P+L]."""
    heads, cache = _multi_heads(call)
    return cached_outputs(call.input(0), heads, heads.heads, cache)


def cached_outputs(
    query: TensorInfo, heads: Heads, kv_heads: int, cache: Cache
) -> list[TensorInfo]:
    """Output, present key, present value and scores of an attention with a cache."""
    key = (heads.batch, kv_heads, cache.present, heads.head_size)
    value = (heads.batch, kv_heads, cache.present, heads.value_size)
    return [
        query.like((heads.batch, heads.queries, heads.heads * heads.value_size)),
        query.like(key),
        query.like(value),
        query.like((heads.batch, heads.heads, heads.queries, heads.keys)),
    ]


def _multi_heads(call: OpCall) -> tuple[Heads, Cache]:
    number = required_attribute(call, "num_heads")
    query = call.shape(0)
    keys, width, value_width = _key_sizes(call, number)
    capacity = call.shape(6)[2] if call.has(6) else 0
    cache = cache_of(call, capacity, keys, shared=call.has(6) and call.has(8), length_input=8)
    heads = Heads(
        query[0], number, query[1], cache.total,
        split_heads(width, number, "Q"), split_heads(value_width, number, "V"),
    )  # fmt: skip
    return heads, cache


def _key_sizes(call: OpCall, number: int) -> tuple[int, int, int]:
    """(keys, width of Q over all heads, width of V over all heads) of every way to give them."""
    query = call.shape(0)
    if len(query) == 5:
        return query[1], number * query[4], number * query[4]
    three(query)
    if not call.has(1):
        raise Impossible("without a key the query must be packed [batch, sequence, heads, 3, head]")
    key = call.shape(1)
    if len(key) == 5:
        return key[1], query[2], number * key[4]
    value = call.shape(2)
    if len(key) == 4:
        return key[2], query[2], number * value[3]
    return key[1], query[2], value[2]


@cost_rule("MultiHeadAttention", domain=MICROSOFT)
def multi_head_cost(call: OpCall) -> OpCost:
    """Attention over projected Q, K, V given apart, packed, or as cached keys and values.

    Shapes
        query [B, S, D], packed Q, K, V [B, S, N, 3, d]; key [B, L, D], packed K, V [B, L, N, 2, d]
        or cached [B, N, L, d]; past [B, N, P, d]; output [B, S, Dv]
    Formula
        macs = B · N · S · (P + L) · (d + e)
        flops = 2 · macs + B·S·D + B·L·(D + Dv) if bias is given (cached keys have theirs already)
        + scale, key padding mask, attention bias, softmax as for Attention
    Traffic
        a shared past buffer: the filled part is read, the new rows are written
    Convention
        Dense. A shared buffer (past_sequence_length given) is appended to in place.
    Source
        ONNX Runtime contrib operators, MultiHeadAttention.
    """
    heads, cache = _multi_heads(call)
    cost = attention_work(heads, biases=call.has(4) + call.has(5))
    if call.has(3):
        biased = heads.queries * heads.head_size
        if not (call.has(1) and call.input(1).rank == 4):
            biased = biased + cache.new * (heads.head_size + heads.value_size)
        cost = cost + OpCost(0, heads.batch * heads.heads * biased)
    return with_traffic(cost, in_place(call, cache, (6, 7), (1, 2)))


declare("MultiHeadAttention", domain=MICROSOFT, control=(8,))


@shape_rule("DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def masked_multi_head_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, 1, Dv]; present [B, N, P + 1, ·] or the shared buffer's."""
    heads, cache = _masked_heads(call)
    return cached_outputs(call.input(0), heads, heads.heads, cache)


def _masked_heads(call: OpCall) -> tuple[Heads, Cache]:
    number = required_attribute(call, "num_heads")
    batch, sequence, width = three(call.shape(0))
    if not call.has(1):
        width = value_width = split_heads(width, 3, "the packed query")
        keys = sequence
    else:
        key, value = call.shape(1), call.shape(2)
        keys = key[2] if len(key) == 4 else key[1]
        value_width = number * value[3] if len(value) == 4 else value[2]
    capacity = call.shape(5)[2] if call.has(5) else 0
    shared = call.has(5) and call.attr("past_present_share_buffer", 0) != 0
    cache = cache_of(call, capacity, keys, shared=shared, length_input=7)
    heads = Heads(
        batch, number, sequence, cache.total,
        split_heads(width, number, "Q"), split_heads(value_width, number, "V"),
    )  # fmt: skip
    return heads, cache


@cost_rule("DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def masked_multi_head_cost(call: OpCall) -> OpCost:
    """One decoding step of MultiHeadAttention.

    Formula
        macs as MultiHeadAttention with S = 1
        flops as MultiHeadAttention with S = 1; mask_index and attention_bias add to the scores
    Traffic
        a shared past buffer: the filled part is read, the new rows are written
    Source
        ONNX Runtime contrib operators, DecoderMaskedMultiHeadAttention.
    """
    heads, cache = _masked_heads(call)
    cost = attention_work(heads, biases=call.has(3) + call.has(4))
    if call.has(10):
        biased = heads.queries * heads.head_size
        if not (call.has(1) and call.input(1).rank == 4):
            biased = biased + cache.new * (heads.head_size + heads.value_size)
        cost = cost + OpCost(0, heads.batch * heads.heads * biased)
    return with_traffic(cost, in_place(call, cache, (5, 6), (1, 2)))


declare("DecoderMaskedMultiHeadAttention", domain=MICROSOFT, control=(7, 8))


# -- DecoderAttention -------------------------------------------------------------------------


@shape_rule("DecoderAttention", domain=MICROSOFT)
def decoder_attention_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [S, B, D] like query; new caches [B, N, keys, d]."""
    heads, _ = _decoder_heads(call)
    query = call.input(0)
    present = (heads.batch, heads.heads, heads.keys, heads.head_size)
    return [query.like(), query.like(present), query.like(present)]


def _decoder_heads(call: OpCall) -> tuple[Heads, int]:
    """Sizes, and how many rows are projected to keys and values."""
    sequence, batch, width = three(call.shape(0))
    number = required_attribute(call, "num_heads")
    static, use_past = _flag(call, 8, "static_kv"), _flag(call, 9, "use_past")
    cached = call.shape(6)[2] if use_past and call.has(6) else 0
    new = call.shape(1)[0] if static else sequence
    projected = 0 if static and use_past else new
    head = split_heads(width, number, "Q")
    return Heads(batch, number, sequence, cached + projected, head, head), projected


def _flag(call: OpCall, position: int, name: str) -> bool:
    value = call.value(position)
    if value is None:
        call.input(position)
        raise Undetermined(f"{name} (input {position}) is computed at run time")
    return bool(value.ravel().tolist()[0])


@cost_rule("DecoderAttention", domain=MICROSOFT)
def decoder_attention_cost(call: OpCall) -> OpCost:
    """Self- or cross-attention of a decoder with its projections and a cache.

    Shapes
        query [S, B, D]    key [L, B, D]    q_weight [D, D]    kv_weight [D, 2·D]
    Formula
        macs = B·S·D·D + B·L'·D·2·D + B·N·S·keys·2·d, with L' the rows projected: S for
        self-attention (static_kv false), L for cross-attention, 0 when its keys are cached;
        keys = L' plus the cached ones
        flops = 2 · macs + B·S·D + B·L'·2·D (bias) + scale, mask, softmax as for Attention
    Source
        ONNX Runtime contrib operators, DecoderAttention.
    """
    heads, projected = _decoder_heads(call)
    width = call.shape(0)[2]
    query = projection_work(heads.batch * heads.queries, width, width, bias=True)
    key_value = projection_work(heads.batch * projected, width, 2 * width, bias=True)
    return query + key_value + attention_work(heads, biases=int(call.has(5)))


declare("DecoderAttention", domain=MICROSOFT, control=(8, 9, 10, 11))
