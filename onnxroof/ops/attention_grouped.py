"""GroupQueryAttention: grouped key heads, rotary embedding and a key-value cache in one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxroof.bounded import BoundedInt, is_exact, largest, smallest, upper
from onnxroof.ops.attention import Heads, attention_work, required_attribute, split_heads
from onnxroof.ops.attention_contrib import Cache, cached_outputs, in_place, three
from onnxroof.ops.call import Impossible, OpCost, TensorInfo
from onnxroof.ops.position import ROTATION_FLOPS, table_bytes
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall


@shape_rule("GroupQueryAttention", domain=MICROSOFT)
def group_query_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, S, N·d]; present [B, Nkv, max(P, total), d] in the cache's type; scores."""
    heads, kv_heads, cache = _group_heads(call)
    outputs = cached_outputs(call.input(0), heads, kv_heads, cache)
    if call.has(3):
        for position in (3, 4):
            past = call.input(position)
            outputs[position - 2] = past.like((*past.dims[:2], cache.present, past.dims[3]))
    return outputs


def _group_heads(call: OpCall) -> tuple[Heads, int, Cache]:
    number = required_attribute(call, "num_heads")
    kv_number = required_attribute(call, "kv_num_heads")
    batch, sequence, width = three(call.shape(0))
    if call.has(1):
        head = split_heads(width, number, "Q")
        key = call.shape(1)
        keys = key[1] if len(key) == 3 else key[2]
    else:
        head = split_heads(width, number + 2 * kv_number, "the packed query")
        keys = sequence
    if number % kv_number:
        raise Impossible(f"{number} query heads are not a multiple of {kv_number} key heads")
    cache = group_cache(call, keys)
    return Heads(batch, number, sequence, cache.total, head, head), kv_number, cache


def group_cache(call: OpCall, new: int, length_input: int = 6) -> Cache:
    """Past and present; one buffer when the total length says that the past has room for it."""
    capacity = call.shape(3)[2] if call.has(3) else 0
    value = call.value(length_input)
    if value is None or value.size != 1:
        if not upper(capacity):
            return Cache(capacity, capacity, new, shared=False)
        call.note(
            "total_sequence_length is computed at run time: at most all rows of the past are in"
            " use, and present is a separate, longer buffer"
        )
        return Cache(capacity, BoundedInt(upper(capacity)), new, shared=None)
    total: int = value.ravel().tolist()[0]
    if call.attr("sliding_window_cache", 0) and upper(capacity):
        resident = smallest(total, capacity)
        return Cache(capacity, largest(resident - new, 0), new, shared=True)
    past = largest(total - new, 0)
    shared = is_exact(capacity) and 0 < total <= capacity
    return Cache(largest(capacity, past), past, new, shared=shared)


@cost_rule("GroupQueryAttention", domain=MICROSOFT)
def group_query_cost(call: OpCall) -> OpCost:
    """Attention with grouped key heads, a cache, and rotary embedding inside.

    Shapes
        query [B, S, N·d] or packed [B, S, (N + 2·Nkv)·d]    key, value [B, L, Nkv·d]
        past [B, Nkv, P, d]    cos, sin [positions, r/2]    output [B, S, N·d]
    Formula
        macs = B · N · S · T · 2·d, T = total_sequence_length when known, else P + L
        flops = 2 · macs + scale, bias, soft cap, sink, softmax as for Attention
        + 3 · r · B · (S·N + L·Nkv) if do_rotary
        + (4·d + 2) · B · (S·N + L·Nkv) if Q and K are normalized (root mean square)
        + one product per cached element if the cache is quantized
    Traffic
        a shared past buffer: the filled part is read, the new rows are written; of the rotary
        tables the rows of B · S positions (nothing without do_rotary)
    Convention
        Dense, also when causal or windowed. Where T fits into past the buffer is shared: its
        T − L filled rows are read and L rows written. Otherwise present is a copy. Where only a
        run tells T it is L to P + L.
    Source
        ONNX Runtime contrib operators, GroupQueryAttention.
    """
    heads, kv_heads, cache = _group_heads(call)
    sink = call.has(11) or call.attr("smooth_softmax", 0) == 1
    cost = attention_work(
        heads, biases=int(call.has(10)), softcap=call.attr("softcap", 0.0) != 0, sink=sink
    )
    turned = heads.batch * (heads.queries * heads.heads + cache.new * kv_heads)
    cost = cost + rotation_and_norm(call, turned, heads.head_size, tables=(7, 8), norm=14)
    if call.attr("k_quant_type", "NONE") != "NONE":
        cost = cost + OpCost(0, 2 * heads.batch * kv_heads * heads.keys * heads.head_size)
    reads, writes = in_place(call, cache, (3, 4), (1, 2))
    tables = _table_reads(call, (7, 8), heads.batch * heads.queries)
    return replace(cost, reads={**(reads or {}), **tables}, writes=writes)


def rotation_and_norm(
    call: OpCall, heads: int, head_size: int, tables: tuple[int, int], norm: int
) -> OpCost:
    """Rotary embedding and root-mean-square normalization of `heads` head vectors."""
    flops = roots = 0
    if call.attr("do_rotary", 0):
        rotated = 2 * call.shape(tables[0])[-1] if call.has(tables[0]) else head_size
        flops = ROTATION_FLOPS * rotated * heads
    if call.has(norm):
        flops, roots = flops + (4 * head_size + 2) * heads, heads
    return OpCost(0, flops, roots)


def _table_reads(call: OpCall, tables: tuple[int, int], rows: int) -> dict[int, int]:
    used = call.attr("do_rotary", 0) != 0
    return {p: table_bytes(call, p, rows) if used else 0 for p in tables if call.has(p)}


declare("GroupQueryAttention", domain=MICROSOFT, control=(5, 6, 9, 16), quantization=(12, 13))
