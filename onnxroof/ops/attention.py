"""Scaled dot-product attention: the count every form shares, and ai.onnx Attention itself.

Every query is charged against every key ("dense"), whatever a causal mask, a window or padding
hides; a kernel that skips hidden keys does less. Keys and values are read with their own number
of heads, so grouped-query attention multiplies as often but reads less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.bounded import largest, upper
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, Undetermined
from onnxroof.ops.registry import cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape


@dataclass(frozen=True, slots=True)
class Heads:
    """Sizes of one attention: queries [batch, heads, queries, head_size] against `keys` keys.

    `value_size` is the width of a value head, which may differ from that of a key head.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    head_size: int
    value_size: int

    @property
    def rows(self) -> int:
        """Query rows: one softmax each."""
        return self.batch * self.heads * self.queries

    @property
    def scores(self) -> int:
        """Elements of Q·Kᵀ."""
        return self.rows * self.keys


def attention_work(
    heads: Heads, *, biases: int = 0, softcap: bool = False, sink: bool = False
) -> OpCost:
    """Work of softmax(scale · Q·Kᵀ + bias) · V.

    With S = batch · heads · queries · keys scores in R = batch · heads · queries rows:
    macs = S · head_size + S · value_size;
    flops = 2 · macs + S (scale) + S per bias or mask added + 3 · S for a soft cap (division, tanh,
    product) + 5 · S − 2 · R (softmax). A sink, one more logit a row without a value, adds a
    comparison, a subtraction, an exponential and an addition a row.

    Args:
        heads: The sizes.
        biases: How many masks or biases are added to the scores.
        softcap: Whether logits are capped by tanh.
        sink: Whether each row has a sink logit.
    """
    rows, scores = heads.rows, heads.scores
    macs = scores * (heads.head_size + heads.value_size)
    flops = 2 * macs + scores * (1 + biases + 3 * softcap) + softmax_flops(rows, heads.keys)
    transcendentals = scores * (1 + softcap)
    if sink:
        flops, transcendentals = flops + 4 * rows, transcendentals + rows
    return OpCost(macs, flops, transcendentals)


def softmax_flops(rows: int, length: int) -> int:
    """5·n − 2 a row of n: n−1 comparisons, n differences, n exponentials, n−1 sums, n divisions."""
    return rows * largest(5 * length - 2, 0)


def projection_work(rows: int, inputs: int, outputs: int, *, bias: bool) -> OpCost:
    """A linear layer over `rows` rows: rows · inputs · outputs macs, one addition per bias."""
    macs = rows * inputs * outputs
    return OpCost(macs, 2 * macs + (rows * outputs if bias else 0))


def split_heads(width: int, heads: int, what: str) -> int:
    """Size of one head of a hidden dimension. Raises Impossible when it does not divide."""
    if heads < 1:
        raise Impossible(f"the number of heads of {what} must be positive, got {heads}")
    if upper(width) % heads:
        raise Impossible(f"{what} of width {width} does not split into {heads} heads")
    return width // heads


def required_attribute(call: OpCall, name: str) -> int:
    """A required integer attribute. Raises Impossible when absent."""
    value = call.attr(name, 0)
    if value < 1:
        raise Impossible(f"attribute {name} is required and must be positive")
    return value


# -- ai.onnx Attention ------------------------------------------------------------------------


@shape_rule("Attention")
def attention_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y like Q with the value width; present [B, Hkv, P + L, ·]; scores [B, Hq, S, P + L]."""
    heads, kv_heads = _heads(call), _key_heads(call)
    query, key, value = call.input(0), call.input(1), call.input(2)
    if query.rank == 3:
        y: Shape = (heads.batch, heads.queries, heads.heads * heads.value_size)
    else:
        y = (heads.batch, heads.heads, heads.queries, heads.value_size)
    batch, keys = key.dims[0], heads.keys
    return [
        query.like(y),
        key.like((batch, kv_heads, keys, heads.head_size)),
        value.like((batch, kv_heads, keys, heads.value_size)),
        query.like((heads.batch, heads.heads, heads.queries, keys)),
    ]


def _heads(call: OpCall) -> Heads:
    query, key, value = call.shape(0), call.shape(1), call.shape(2)
    if len(query) not in (3, 4) or not len(query) == len(key) == len(value):
        raise Impossible(
            f"Q, K and V must all have 3 or all 4 dimensions, got {len(query)}, {len(key)}"
            f" and {len(value)}"
        )
    past = call.shape(4)[2] if call.has(4) else 0
    if len(query) == 4:
        heads = Heads(query[0], query[1], query[2], past + key[2], query[3], value[3])
        key_size = key[3]
    else:
        number = required_attribute(call, "q_num_heads")
        kv_number = required_attribute(call, "kv_num_heads")
        heads = Heads(
            query[0],
            number,
            query[1],
            past + key[1],
            split_heads(query[2], number, "Q"),
            split_heads(value[2], kv_number, "V"),
        )
        key_size = split_heads(key[2], kv_number, "K")
    if not upper(heads.head_size) == upper(key_size):
        raise Impossible(f"heads of Q have size {heads.head_size}, heads of K {key_size}")
    if upper(heads.heads) % max(upper(_key_heads(call)), 1):
        raise Impossible(
            f"{heads.heads} query heads are not a multiple of {_key_heads(call)} key heads"
        )
    return heads


def _key_heads(call: OpCall) -> int:
    key = call.shape(1)
    return key[1] if len(key) == 4 else required_attribute(call, "kv_num_heads")


@cost_rule("Attention")
def attention_cost(call: OpCall) -> OpCost:
    """Scaled dot-product attention with grouped key heads, past keys, mask and soft cap.

    Shapes
        Q [B, Hq, S, d] or [B, S, Hq·d]    K [B, Hkv, L, d]    V [B, Hkv, L, e]
        past [B, Hkv, P, ·]    keys = P + L    Y [B, Hq, S, e] or [B, S, Hq·e]
    Formula
        scores = B · Hq · S · (P + L)
        macs = scores · (d + e)
        flops = 2 · macs + scores (scale) + scores if attn_mask is given + 3 · scores if softcap
        + 5 · scores − 2 · B · Hq · S (softmax)
    Convention
        Dense: causal, windowed and padded keys are charged. K and V are read with Hkv heads, past
        and new once each; a present output is written whole, since the operator concatenates.
    Source
        ONNX operator reference, Attention.
    """
    cost = attention_work(
        _heads(call), biases=int(call.has(3)), softcap=call.attr("softcap", 0.0) != 0
    )
    if call.has(6) or call.attr("left_window_size", -1) >= 0:
        return _noted(cost, "keys beyond nonpad_kv_seqlen or the window are charged too")
    return cost


def _noted(cost: OpCost, note: str) -> OpCost:
    return OpCost(cost.macs, cost.flops, cost.transcendentals, note=note)


declare("Attention", control=(6,))


# -- ai.onnx.preview FlexAttention ------------------------------------------------------------

PREVIEW = "ai.onnx.preview"


@shape_rule("FlexAttention", domain=PREVIEW)
def flex_attention_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [B, Hq, S, e]."""
    heads = _heads(call)
    return [call.input(0).like((heads.batch, heads.heads, heads.queries, heads.value_size))]


@cost_rule("FlexAttention", domain=PREVIEW)
def flex_attention_cost(call: OpCall) -> OpCost:
    """Attention without mask or soft cap.

    Formula
        macs = B · Hq · S · L · (d + e)
        flops = 2 · macs + B · Hq · S · L (scale) + 5 · B · Hq · S · L − 2 · B · Hq · S (softmax)
    Convention
        With a score_mod or prob_mod body, whose work is not a number of its own, the cost is
        unknown.
    Source
        ONNX operator reference, ai.onnx.preview FlexAttention.
    """
    if call.node.subgraphs:
        names = " and ".join(name for name, _ in call.node.subgraphs)
        raise Undetermined(f"the work of its {names} body is not known")
    return attention_work(_heads(call))
