"""Mixture of experts: all experts are stored, each token passes through k of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import interval, lower, smallest, upper
from onnxroof.graph.types import DType
from onnxroof.ops.call import Impossible, OpCost
from onnxroof.ops.fused import activation_cost
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, TensorInfo

_LAYERS = {"MoE": ((2, 3), (4, 5), (6, 7)), "QMoE": ((2, 4), (5, 7), (8, 10))}
"""Input positions of (weights, bias) of fc1, fc2 and fc3."""


@shape_rule("MoE", "QMoE", domain=MICROSOFT)
def moe_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output like input."""
    return [call.input(0).like()]


def _stored_bits(call: OpCall, layer: int, dtype: DType | None) -> tuple[int, int]:
    """(bits of a stored element, bits of a weight): packed bytes hold several weights."""
    if call.op_type == "MoE" or dtype is None or dtype is not DType.UINT8:
        return 1, 1
    bits = call.attr("expert_weight_bits", 4)
    return 8, call.attr(f"fc{layer}_expert_weight_bits", 0) or bits


@cost_rule("MoE", "QMoE", domain=MICROSOFT)
def moe_cost(call: OpCall) -> OpCost:
    """Router softmax, then k experts of two or three matrices for every token.

    Shapes
        input [*tokens, H]    router_probs [tokens, E]    fc1 [E, f · I, H]    fc2 [E, H, I]
        fc3 [E, I, H] optional (f = 2 where gate and value share fc1)    output like input
    Formula
        macs = tokens · k · (f · H · I + I · H + I · H if fc3 is given)
        flops = 2 · macs, plus tokens · k per element of every bias, plus tokens · k · I for the
        activation (twice that when gated), plus tokens · (5E − 2) for the softmax and
        tokens · H · (2k − 1) to weigh and add; QMoE dequantizes each expert used once
    Traffic
        weights and biases of min(E, tokens · k) experts, the most that can differ
    Convention
        Weights read: those of min(E, tokens · k) experts, the most that can differ. Selecting the
        top k is not charged.
    Source
        ONNX Runtime contrib operators, MoE and QMoE.
    """
    x, experts = call.shape(0), call.shape(1)[-1]
    hidden, tokens, k = x[-1], math.prod(x[:-1]), call.attr("k", 1)
    if k < 1 or k > experts:
        raise Impossible(f"k is {k}, there are {experts} experts")
    used = smallest(experts, tokens * k)
    weights = biases = 0
    reads: dict[int, int] = {}
    for layer, (at, bias_at) in enumerate(_LAYERS[call.op_type], start=1):
        if not call.has(at):
            continue
        each = _weights_of_expert(call, layer, at)
        weights += each
        biases += call.input(bias_at).elements // experts if call.has(bias_at) else 0
        reads |= _expert_bytes(call, (at, bias_at), used, experts)
    macs = tokens * k * weights
    inter = _weights_of_expert(call, 2, _LAYERS[call.op_type][1][0]) // hidden
    work = OpCost(macs, 2 * macs + tokens * k * biases + tokens * hidden * (2 * k - 1))
    work += _activated(call, tokens * k * inter)
    if call.op_type == "MoE" or not call.has(14):
        work += OpCost(0, tokens * (5 * experts - 2), tokens * experts)
    if call.op_type == "QMoE":
        work += OpCost(0, used * weights)
    return OpCost(
        work.macs, work.flops, work.transcendentals, reads=reads,
        note=f"{k} of {experts} experts for each token; at most {upper(used)} are read",
    )  # fmt: skip


def _weights_of_expert(call: OpCall, layer: int, at: int) -> int:
    info = call.input(at)
    stored, bits = _stored_bits(call, layer, info.dtype)
    return math.prod(info.dims[1:]) * stored // bits


def _expert_bytes(
    call: OpCall, positions: tuple[int, ...], used: int, experts: int
) -> dict[int, int]:
    """Bytes read of inputs that have one slice an expert."""
    found: dict[int, int] = {}
    for position in positions:
        nbytes = call.input(position).nbytes if call.has(position) else None
        if nbytes is not None:
            found[position] = interval(
                nbytes * lower(used) // experts, nbytes * upper(used) // experts
            )
    return found


def _activated(call: OpCall, elements: int) -> OpCost:
    """The experts' activation, and the product with the other half where it is gated."""
    name = call.attr("activation_type", "relu")
    third = _LAYERS[call.op_type][2][0]
    gated = call.has(third) or name in ("swiglu", "geglu")
    return activation_cost(name, elements) + OpCost(0, elements if gated else 0)


@shape_rule("MoEPacked", domain=MICROSOFT)
def packed_moe_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output like input."""
    return [call.input(0).like()]


@cost_rule("MoEPacked", domain=MICROSOFT)
def packed_moe_cost(call: OpCall) -> OpCost:
    """As MoE, with weights packed in blocks: gate and up [E, I, bytes], down [E, H, bytes].

    Formula
        macs = tokens · k · H · I · (2, or 3 if up is given)
        flops = 2 · macs, plus activation, softmax and weighing as MoE without biases, plus one
        per weight of every expert used to dequantize it
    Traffic
        weights of min(E, tokens · k) experts, the most that can differ
    Source
        ONNX Runtime contrib operators, MoEPacked.
    """
    x, (experts, inter, _) = call.shape(0), call.shape(2)
    hidden, tokens, k = x[-1], math.prod(x[:-1]), call.attr("k", 1)
    gated = call.has(3)
    used = smallest(experts, tokens * k)
    weights = hidden * inter * (3 if gated else 2)
    macs = tokens * k * weights
    reads: dict[int, int] = {}
    for position in (2, 3, 4):
        reads |= _expert_bytes(call, (position,), used, experts)
    elements = tokens * k * inter
    work = OpCost(macs, 2 * macs + tokens * hidden * (2 * k - 1) + used * weights)
    work += activation_cost(call.attr("activation_type", "swiglu"), elements)
    work += OpCost(0, elements if gated else 0)
    if not call.has(5):
        work += OpCost(0, tokens * (5 * experts - 2), tokens * experts)
    return OpCost(work.macs, work.flops, work.transcendentals, reads=reads)


def _unpacked(call: OpCall, position: int) -> int:
    """Values in the packed weights of the experts; elements of anything else."""
    for layer, (at, _) in enumerate(_LAYERS["QMoE"], start=1):
        if position == at:
            stored, bits = _stored_bits(call, layer, call.input(at).dtype)
            return call.input(at).elements * stored // bits
    return call.input(position).elements


declare(
    "QMoE", domain=MICROSOFT, unpacked=_unpacked,
    quantization=(3, 6, 9, 11, 12, 13, 15, 16, 17, 18, 19, 20),
)  # fmt: skip
