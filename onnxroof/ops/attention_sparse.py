"""Attention over keys that another operator selected, and the operators that select them.

Which keys are selected is data: work lies between none and all entries of the selection.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof.bounded import interval, smallest, upper
from onnxroof.graph.types import DType
from onnxroof.ops.attention import required_attribute, split_heads
from onnxroof.ops.attention_contrib import in_place
from onnxroof.ops.attention_grouped import group_cache, rotation_and_norm
from onnxroof.ops.attention_packed import pair_work
from onnxroof.ops.call import OpCost, TensorInfo, Undetermined, no_work
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall


def _head_size(call: OpCall) -> int:
    number, kv_number = (required_attribute(call, name) for name in ("num_heads", "kv_num_heads"))
    packed = number if call.has(1) else number + 2 * kv_number
    return split_heads(call.shape(0)[-1], packed, "the query")


def _selected_pairs(call: OpCall, queries: int, indices: int, counts: int, visible: int) -> int:
    """Queries times the keys they see: all counts when constant, else up to the whole selection.

    `visible` bounds the window that "local_plus_selected" adds for every query.
    """
    known = call.value(counts)
    if known is not None:
        pairs: int = sum(known.ravel().tolist())
    else:
        pairs = interval(0, upper(queries) * upper(call.shape(indices)[-1]))
    if call.attr("attention_mode", "selected_only") != "local_plus_selected":
        return pairs
    window = call.attr("local_window_size", -1)
    local = smallest(window, visible) if window >= 0 else visible
    return pairs + interval(queries if upper(local) else 0, queries * upper(local))


@shape_rule("DynamicSparseAttention", domain=MICROSOFT)
def dynamic_sparse_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, S, N·d]; present caches as for GroupQueryAttention; a status scalar."""
    query = call.input(0)
    batch, sequence, _ = query.dims
    heads, kv_heads = (required_attribute(call, name) for name in ("num_heads", "kv_num_heads"))
    size = _head_size(call)
    dtype = DType.BFLOAT16 if call.attr("output_bf16", 0) else query.dtype
    present = (batch, kv_heads, group_cache(call, sequence, 10).present, size)
    cache = call.input(3) if call.has(3) else query
    return [
        query.like((batch, sequence, heads * size), dtype),
        cache.like(present),
        cache.like(present),
        TensorInfo(DType.INT32, ()),
    ]


@cost_rule("DynamicSparseAttention", domain=MICROSOFT)
def dynamic_sparse_cost(call: OpCall) -> OpCost:
    """Grouped attention over selected keys, and over a local window if asked.

    Shapes
        query [B, S, N·d] or packed    selected_indices [B·S, entries]    output [B, S, N·d]
    Formula
        macs = N · pairs · 2·d; flops: + scale, softmax, rotary embedding, normalization as for
        GroupQueryAttention
    Traffic
        a shared past buffer: the filled part is read, the new rows are written
    Convention
        pairs: the sum of constant selected_counts, else at most B · S · entries; plus at most the
        local window per query.
    Source
        ONNX Runtime contrib operators, DynamicSparseAttention.
    """
    batch, sequence, _ = call.shape(0)
    heads, kv_heads = (required_attribute(call, name) for name in ("num_heads", "kv_num_heads"))
    size, cache = _head_size(call), group_cache(call, sequence, 10)
    queries = batch * sequence
    pairs = _selected_pairs(call, queries, 7, 8, cache.total)
    cost = pair_work(pairs, queries, heads, (size, size), biases=0)
    cost = cost + rotation_and_norm(call, queries * (heads + kv_heads), size, (11, 12), norm=14)
    reads, writes = in_place(call, cache, (3, 4), (1, 2))
    return replace(cost, reads=reads, writes=writes)


declare(
    "DynamicSparseAttention", domain=MICROSOFT, control=(8, 9, 10, 13, 17), quantization=(18, 19)
)


@shape_rule("SparsePagedAttention", domain=MICROSOFT)
def sparse_paged_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [T, N·d]; the caches as they are."""
    query = call.input(0)
    width = required_attribute(call, "num_heads") * _head_size(call)
    return [query.like((query.dims[0], width)), call.input(3).like(), call.input(4).like()]


@cost_rule("SparsePagedAttention", domain=MICROSOFT)
def sparse_paged_cost(call: OpCall) -> OpCost:
    """Attention over selected keys of a cache of blocks.

    Formula
        macs as DynamicSparseAttention, with T queries and at most blocks per sequence · block size
        keys in view
        flops as DynamicSparseAttention, with these queries and keys
    Traffic
        of the caches at most the keys in view; the new tokens' rows are written
    Source
        ONNX Runtime contrib operators, SparsePagedAttention.
    """
    tokens = call.shape(0)[0]
    heads, kv_heads = (required_attribute(call, name) for name in ("num_heads", "kv_num_heads"))
    size = _head_size(call)
    blocks, block, *_ = call.shape(3)
    visible = call.shape(7)[1] * block
    pairs = _selected_pairs(call, tokens, 9, 10, visible)
    capped = call.attr("softcap", 0.0) != 0
    cost = pair_work(pairs, tokens, heads, (size, size), biases=0, softcap=capped)
    cost = cost + rotation_and_norm(call, tokens * (heads + kv_heads), size, (14, 15), norm=17)
    rows = {p: (call.input(p).nbytes or 0) // max(blocks * block, 1) for p in (3, 4)}
    return replace(
        cost,
        reads={p: interval(0, upper(smallest(pairs, blocks * block) * r)) for p, r in rows.items()},
        writes={p - 2: tokens * row for p, row in rows.items()},
    )


declare(
    "SparsePagedAttention",
    domain=MICROSOFT,
    control=(5, 6, 7, 8, 10, 13, 21),
    quantization=(19, 20),
)


# -- the selection ----------------------------------------------------------------------------


def _selection_width(call: OpCall) -> int:
    if call.attr("policy_mode", "") == "csa":
        return required_attribute(call, "index_topk")
    ratio = required_attribute(call, "compress_ratio")
    return required_attribute(call, "token_budget") + ratio - 1


@shape_rule("SparseAttentionIndexer", domain=MICROSOFT)
def indexer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Indices [B, S, entries]; keys grown by what this call adds; the buffer of open windows."""
    batch, sequence, _ = call.shape(0)
    past = call.input(7)
    added, left = _compressed(call, sequence)
    fixed = call.has(12)
    keys = past.dims[1] if fixed else past.dims[1] + added
    indices = TensorInfo(DType.INT32, (batch, sequence, _selection_width(call)))
    buffer = past.like((2, batch, left, 2 * past.dims[2]))
    return [indices, past.like((batch, keys, past.dims[2])), buffer]


def _compressed(call: OpCall, sequence: int) -> tuple[int, int]:
    """(entries added to the keys, tokens left in the buffer)."""
    if call.attr("policy_mode", "") != "csa":
        return sequence, 0
    ratio = required_attribute(call, "compress_ratio")
    buffered = call.shape(13)[2] if call.has(13) else 0
    has_previous = buffered >= ratio
    waiting = (buffered - ratio if has_previous else buffered) + sequence
    added = waiting // ratio
    return added, waiting % ratio + (ratio if has_previous or added else 0)


@shape_rule("PackedSparseAttentionIndexer", domain=MICROSOFT)
def packed_indexer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Indices [T, entries] and counts [T]; states as they are; captured transitions."""
    tokens = call.shape(0)[0]
    state, buffer = call.input(12), call.input(13)
    entries = call.attr("max_output_entries", 0) or _selection_width(call)
    update = (state.dims[0], call.attr("state_update_capacity", 0), state.dims[2])
    return [
        TensorInfo(DType.INT32, (tokens, entries)),
        TensorInfo(DType.INT32, (tokens,)),
        state.like(),
        buffer.like(),
        buffer.like(),
        call.input(15).like(),
        buffer.like(update),
        TensorInfo(DType.INT32, (tokens,)),
        TensorInfo(DType.INT32, (state.dims[0],)),
    ]


@cost_rule("SparseAttentionIndexer", "PackedSparseAttentionIndexer", domain=MICROSOFT)
def indexer_cost(call: OpCall) -> OpCost:
    """Unknown: how many blocks are scored depends on positions that only the run knows."""
    raise Undetermined(f"how many blocks {call.op_type} pools and scores is known at run time only")


@shape_rule("PackedSparseAttentionIndexerMerge", domain=MICROSOFT)
def indexer_merge_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Indices [N, entries], counts [N], status [N]."""
    base, queries = call.input(0), call.input(2).elements
    entries = required_attribute(call, "max_output_entries")
    return [base.like((queries, entries)), base.like((queries,)), base.like((queries,))]


declare("PackedSparseAttentionIndexerMerge", domain=MICROSOFT, free="copies lists of positions")
cost_rule("PackedSparseAttentionIndexerMerge", domain=MICROSOFT)(no_work)
