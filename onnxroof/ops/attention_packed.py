"""Attention over sequences without padding, in pages, in blocks and in windows.

How long the packed sequences are is data. Work is exact where the lengths are constants of the
file, otherwise between the bounds that the shapes leave.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from onnxroof.bounded import BoundedInt, interval, largest, lower, smallest, upper
from onnxroof.graph.types import DType
from onnxroof.ops.attention import (
    projection_work,
    required_attribute,
    split_heads,
)
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, no_work
from onnxroof.ops.geometry import ceil_div
from onnxroof.ops.position import ROTATION_FLOPS, table_bytes
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall


def pair_work(
    pairs: int, rows: int, heads: int, sizes: tuple[int, int], *, biases: int, softcap: bool = False
) -> OpCost:
    """Attention over `pairs` of a query and a key it sees, in `rows` query rows per head.

    As `attention_work`, with the sum of the rows' key counts in place of rows · keys.
    """
    scores, rows = heads * pairs, heads * rows
    macs = scores * (sizes[0] + sizes[1])
    softmax = largest(5 * scores - 2 * rows, 0)
    flops = 2 * macs + scores * (1 + biases + 3 * softcap) + softmax
    return OpCost(macs, flops, scores * (1 + softcap))


def packed_pairs(call: OpCall, tokens: int, batch: int, longest: int, position: int) -> int:
    """Σ length² of packed sequences: exact from constant offsets, else bounded by the shapes.

    `batch` sequences of at most `longest` tokens hold `tokens` together, so the sum lies between
    tokens² / batch (all alike) and tokens · longest.
    """
    offsets = call.value(position)
    if offsets is not None:
        ends = offsets.ravel().tolist()
        return sum((end - start) ** 2 for start, end in pairwise(ends))
    low = ceil_div(lower(tokens) ** 2, upper(batch)) if upper(batch) else 0
    high = upper(tokens) * min(upper(longest), upper(tokens))
    return interval(min(low, high), high)


# -- PackedAttention, PackedMultiHeadAttention ------------------------------------------------


@shape_rule("PackedAttention", domain=MICROSOFT)
def packed_attention_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [tokens, Dv]."""
    x = call.input(0)
    sizes = call.ints_attr("qkv_hidden_sizes")
    width = call.shape(1)[1]
    return [x.like((x.dims[0], sizes[2] if sizes else width // 3))]


@cost_rule("PackedAttention", domain=MICROSOFT)
def packed_attention_cost(call: OpCall) -> OpCost:
    """Attention with its input projection over the real tokens of a batch.

    Shapes
        input [T, I]    weights [I, D + D + Dv]    token_offset [B, S]    cumulative lengths [B + 1]
    Formula
        macs = T · I · (2·D + Dv) + Σ length² · (D + Dv)
        flops = 2 · macs + T · (2·D + Dv) if bias is given, plus per score, N · Σ length² of them,
        a scale, one for attention_bias if given and 5 for softmax, less 2 a row
    Convention
        Σ length² is exact when the cumulative lengths are constants, else at most T · S and at
        least T² / B.
    Source
        ONNX Runtime contrib operators, PackedAttention.
    """
    tokens, inputs = call.shape(0)
    width = call.shape(1)[1]
    number = required_attribute(call, "num_heads")
    value_width = call.output().dims[1]
    sizes = call.ints_attr("qkv_hidden_sizes")
    head = split_heads(sizes[0] if sizes else width // 3, number, "Q")
    batch, longest = call.shape(3)
    pairs = packed_pairs(call, tokens, batch, longest, 4)
    projection = projection_work(tokens, inputs, width, bias=call.has(2))
    return projection + pair_work(
        pairs, tokens, number, (head, value_width // number), biases=int(call.has(5))
    )


declare("PackedAttention", domain=MICROSOFT, control=(4,))


@shape_rule("PackedMultiHeadAttention", domain=MICROSOFT)
def packed_multi_head_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [tokens, Dv]."""
    query = call.input(0)
    if query.rank == 4:
        return [query.like((query.dims[0], query.dims[1] * query.dims[3]))]
    return [query.like((query.dims[0], call.shape(2)[1]))]


@cost_rule("PackedMultiHeadAttention", domain=MICROSOFT)
def packed_multi_head_cost(call: OpCall) -> OpCost:
    """Attention over projected, packed tokens.

    Shapes
        query [T, D] or packed [T, N, 3, d]    key [T, D]    value [T, Dv]    token_offset [B, S]
    Formula
        macs = Σ length² · (D + Dv)
        flops = 2 · macs + T · (2·D + Dv) if bias is given, plus per score, N · Σ length² of them,
        a scale, one for attention_bias if given and 5 for softmax, less 2 a row
    Convention
        Σ length² as in PackedAttention.
    Source
        ONNX Runtime contrib operators, PackedMultiHeadAttention.
    """
    query = call.shape(0)
    number = required_attribute(call, "num_heads")
    width = number * query[3] if len(query) == 4 else query[1]
    value_width = call.output().dims[1]
    batch, longest = call.shape(4)
    pairs = packed_pairs(call, query[0], batch, longest, 5)
    sizes = (split_heads(width, number, "Q"), split_heads(value_width, number, "V"))
    cost = pair_work(pairs, query[0], number, sizes, biases=int(call.has(6)))
    bias = query[0] * (2 * width + value_width) if call.has(3) else 0
    return replace(cost, flops=cost.flops + bias)


declare("PackedMultiHeadAttention", domain=MICROSOFT, control=(5,))


# -- paddings ---------------------------------------------------------------------------------


@shape_rule("RemovePadding", domain=MICROSOFT)
def remove_padding_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Tokens [T, D], T at most B · S; offsets [B, S]; cumulative lengths [B + 1]; longest [1]."""
    x = call.input(0)
    batch, sequence, width = x.dims
    counts = call.value(1)
    tokens = BoundedInt(upper(batch * sequence)) if counts is None else sum(counts.ravel().tolist())
    return [
        x.like((tokens, width)),
        TensorInfo(DType.INT32, (batch, sequence)),
        TensorInfo(DType.INT32, (batch + 1,)),
        TensorInfo(DType.INT32, (1,)),
    ]


@cost_rule("RemovePadding", domain=MICROSOFT)
def remove_padding_cost(call: OpCall) -> OpCost:
    """Free of arithmetic: the real tokens are copied.

    Traffic
        of the input as many bytes as the output has
    """
    return OpCost(reads={0: call.output().nbytes or 0})


declare("RemovePadding", domain=MICROSOFT, control=(1,), data_dependent=True, free="copies tokens")


@shape_rule("RestorePadding", domain=MICROSOFT)
def restore_padding_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, S, D]."""
    return [call.input(0).like((*call.shape(1), call.shape(0)[1]))]


declare("RestorePadding", domain=MICROSOFT, free="copies tokens and writes zeros between them")
cost_rule("RestorePadding", domain=MICROSOFT)(no_work)


# -- PagedAttention ---------------------------------------------------------------------------


@shape_rule("PagedAttention", domain=MICROSOFT)
def paged_attention_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [T, N·e]; the caches as they are."""
    query = call.input(0)
    number = required_attribute(call, "num_heads")
    head, value_size = _paged_sizes(call)
    outputs = [query.like((query.dims[0], number * (value_size or head))), call.input(3).like()]
    return [*outputs, call.input(4).like()] if call.has(4) else outputs


def _paged_sizes(call: OpCall) -> tuple[int, int]:
    number, kv_number = (required_attribute(call, name) for name in ("num_heads", "kv_num_heads"))
    packed = number if call.has(1) else number + 2 * kv_number
    head = split_heads(call.shape(0)[1], packed, "Q")
    return head, call.attr("v_head_size", 0) or head


@cost_rule("PagedAttention", domain=MICROSOFT)
def paged_attention_cost(call: OpCall) -> OpCost:
    """Attention of packed tokens over a cache of blocks.

    Shapes
        query [T, N·d] or packed [T, (N + 2·Nkv)·d]    caches [blocks, block size, Nkv, d]
        block_table [B, blocks per sequence]    output [T, N·e]
    Formula
        macs = N · pairs · (d + e), pairs = Σ new length · (past + new length)
        flops = 2 · macs + scale, soft cap, softmax + 3 · r · T · (N + Nkv) if do_rotary
    Traffic
        of the caches at most the blocks that block_table reaches; the new tokens' rows are
        written; of the rotary tables one row a token
    Convention
        Exact when cumulative and past lengths are constants; else every token sees at most blocks
        per sequence · block size keys and at least itself. Caches are read as far as block_table
        can reach and written where T new rows go.
    Source
        ONNX Runtime contrib operators, PagedAttention.
    """
    tokens = call.shape(0)[0]
    number, kv_number = (required_attribute(call, name) for name in ("num_heads", "kv_num_heads"))
    sizes = _paged_sizes(call)
    cost = pair_work(
        _paged_pairs(call, tokens), tokens, number, sizes,
        biases=0, softcap=call.attr("softcap", 0.0) != 0,
    )  # fmt: skip
    heads = tokens * (number + kv_number)
    flops = 0
    if call.attr("do_rotary", 0) and call.has(8):
        flops = ROTATION_FLOPS * 2 * call.shape(8)[-1] * heads
    roots = heads if call.has(12) else 0
    flops = flops + roots * (4 * sizes[0] + 2)
    reads, writes = _paged_traffic(call, tokens)
    return replace(
        cost, flops=cost.flops + flops, transcendentals=cost.transcendentals + roots,
        reads=reads, writes=writes,
    )  # fmt: skip


def _paged_pairs(call: OpCall, tokens: int) -> int:
    offsets, past = call.value(5), call.value(6)
    if offsets is not None and past is not None:
        ends = offsets.ravel().tolist()
        news = [end - start for start, end in pairwise(ends)]
        return sum(n * (n + p) for n, p in zip(news, past.ravel().tolist(), strict=False))
    longest = call.shape(7)[1] * call.shape(3)[1]
    return interval(min(lower(tokens), upper(tokens * longest)), upper(tokens * longest))


def _paged_traffic(call: OpCall, tokens: int) -> tuple[dict[int, int], dict[int, int]]:
    blocks, block, *_ = call.shape(3)
    reachable = smallest(blocks, call.shape(7)[0] * call.shape(7)[1])
    reads: dict[int, int] = {}
    writes: dict[int, int] = {}
    for position in (3, 4):
        if call.has(position) and blocks and block:
            per_block = (call.input(position).nbytes or 0) // blocks
            reads[position] = interval(0, upper(reachable * per_block))
            writes[position - 2] = tokens * (per_block // block)
    reads.update({p: table_bytes(call, p, tokens) for p in (8, 9) if call.has(p)})
    return reads, writes


declare("PagedAttention", domain=MICROSOFT, control=(5, 6, 7, 10, 16), quantization=(14, 15))


# -- SparseAttention, LongformerAttention -----------------------------------------------------


@shape_rule("SparseAttention", domain=MICROSOFT)
def sparse_attention_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, S, N·d]; the caches as they are."""
    query = call.input(0)
    number = required_attribute(call, "num_heads")
    return [
        query.like((*query.dims[:2], number * _sparse_head(call))),
        call.input(3).like(),
        call.input(4).like(),
    ]


def _sparse_head(call: OpCall) -> int:
    number, kv_number = (required_attribute(call, name) for name in ("num_heads", "kv_num_heads"))
    packed = number if call.has(1) else number + 2 * kv_number
    return split_heads(call.shape(0)[2], packed, "Q")


@cost_rule("SparseAttention", domain=MICROSOFT)
def sparse_attention_cost(call: OpCall) -> OpCost:
    """Attention over the blocks of a mask.

    Shapes
        query [B, S, N·d] or packed    caches [B, Nkv, C, d]    block columns [layouts, blocks]
    Formula
        macs = B · N · pairs · 2·d
        flops = 2 · macs + 6 per score, B · N · pairs of them (scale, softmax), less 2 a row,
        + 3 · r · B · S · (N + Nkv) if do_rotary
    Traffic
        of the caches at most the past rows; the new rows are written
    Convention
        pairs, queries times the keys they see: at most all blocks listed · block size² and at most
        S · T (T = total_sequence_length, or the cache's capacity while that is not known); at
        least S, each token itself. The cache is appended to in place.
    Source
        ONNX Runtime contrib operators, SparseAttention.
    """
    batch, sequence, _ = call.shape(0)
    number, kv_number = (required_attribute(call, name) for name in ("num_heads", "kv_num_heads"))
    head, capacity = _sparse_head(call), call.shape(3)[2]
    value = call.value(7)
    total = capacity if value is None else value.ravel().tolist()[0]
    listed = call.shape(6)[-1] * required_attribute(call, "sparse_block_size") ** 2
    most = min(upper(sequence * total), upper(listed))
    pairs = interval(min(lower(sequence), most), most)
    cost = pair_work(batch * pairs, batch * sequence, number, (head, head), biases=0)
    if call.attr("do_rotary", 0) and call.has(9):
        turned = batch * sequence * (number + kv_number)
        rotation = ROTATION_FLOPS * 2 * call.shape(9)[-1] * turned
        cost = replace(cost, flops=cost.flops + rotation)
    if not capacity:
        return cost
    rows = {p: (call.input(p).nbytes or 0) // capacity for p in (3, 4)}
    past = interval(0, max(upper(total) - lower(sequence), 0))
    return replace(
        cost,
        reads={p: past * row for p, row in rows.items()},
        writes={p - 2: sequence * row for p, row in rows.items()},
    )


declare("SparseAttention", domain=MICROSOFT, control=(5, 6, 7, 8))


@shape_rule("LongformerAttention", "QOrderedLongformerAttention", domain=MICROSOFT)
def longformer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output like the input."""
    if call.input(0).rank != 3:
        raise Impossible("the input must be [batch, sequence, width]")
    return [call.input(0).like()]


@cost_rule("LongformerAttention", domain=MICROSOFT)
def longformer_cost(call: OpCall) -> OpCost:
    """Attention in a sliding window, and of and to a few global tokens, projections included.

    Shapes
        input [B, S, D]    weight, global_weight [D, 3·D]    global flags [B, S]
    Formula
        With W the one-sided window, G global tokens over the batch, w = min(2·W + 1, S):
        macs = B·S·D·3·D (local Q, K, V) + [G·D·D + B·S·D·2·D if G > 0] (global Q, K, V)
        + B·S·w·2·D (window) + G·S·2·D (to global tokens) + G·S·2·D (of global tokens)
        flops = 2 · macs + one per element projected (bias), plus per score, N · (B·S·w + 2·G·S)
        of them, a scale, a mask and 5 for softmax, less 2 a row
    Convention
        Windows are charged whole at the ends. G comes from constant flags, else 0 ≤ G ≤ B · S.
    Source
        ONNX Runtime contrib operators, LongformerAttention.
    """
    return _longformer(call, flags=6)


@cost_rule("QOrderedLongformerAttention", domain=MICROSOFT)
def ordered_longformer_cost(call: OpCall) -> OpCost:
    """LongformerAttention on 8-bit integers.

    Formula
        macs as LongformerAttention
        flops as LongformerAttention, plus one product (rescaling) per element of Q, K, V and of the
        output
    Source
        ONNX Runtime contrib operators, QOrderedLongformerAttention.
    """
    cost = _longformer(call, flags=12)
    rescaled = 3 * call.input(0).elements + call.output().elements
    return replace(cost, flops=cost.flops + rescaled, compute_dtype=call.input(0).dtype)


def _longformer(call: OpCall, flags: int) -> OpCost:
    batch, sequence, width = call.shape(0)
    number = required_attribute(call, "num_heads")
    head = split_heads(width, number, "the input")
    tokens = batch * sequence
    marks = call.value(flags)
    chosen: int = BoundedInt(upper(tokens))
    if marks is not None:
        chosen = sum(1 for mark in marks.ravel().tolist() if mark > 0)
    window = smallest(2 * required_attribute(call, "window") + 1, sequence)
    local = projection_work(tokens, width, 3 * width, bias=True)
    chosen_query = projection_work(chosen, width, width, bias=True)
    chosen_keys = projection_work(tokens if upper(chosen) else 0, width, 2 * width, bias=True)
    if not lower(chosen) and upper(chosen):
        chosen_keys = OpCost(
            interval(0, upper(chosen_keys.macs)), interval(0, upper(chosen_keys.flops))
        )
    scores = number * (tokens * window + 2 * chosen * sequence)
    macs = scores * 2 * head
    rows = number * (tokens + chosen)
    softmax = largest(5 * scores - 2 * rows, 0)
    own = OpCost(macs, 2 * macs + 2 * scores + softmax, scores)
    return local + chosen_query + chosen_keys + own


declare("LongformerAttention", domain=MICROSOFT, control=(6,))
declare(
    "QOrderedLongformerAttention",
    domain=MICROSOFT,
    control=(12,),
    quantization=(1, 3, 5, 6, 9, 11, 13),
)
