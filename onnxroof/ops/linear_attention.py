"""Linear attention: a recurrent state of keys and values instead of scores over all keys.

Counted as the recurrence of the text, token by token; chunked algorithms do more arithmetic to
run in parallel. The state is read and written once per call, since compulsory traffic counts a
tensor once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxroof.bounded import largest, upper
from onnxroof.graph.types import DType
from onnxroof.ops.attention import required_attribute, split_heads
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, no_work
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall

UPDATE_RULES = ("linear", "gated", "delta", "gated_delta")


@dataclass(frozen=True, slots=True)
class State:
    """Sizes of a linear attention: `tokens` over the whole batch, a state [d, e] per key head."""

    tokens: int
    query_heads: int
    state_heads: int
    key_size: int
    value_size: int

    @property
    def cells(self) -> int:
        """State elements touched over all tokens."""
        return self.tokens * self.state_heads * self.key_size * self.value_size


def recurrence_work(call: OpCall, state: State, decays: int) -> OpCost:
    """Work of S ← decay·S + k⊗update, o = scale·qᵀS over all tokens.

    Per token, with Hs states of d × e and Hq queries: macs = Hs·d·e (outer product) + Hq·d·e
    (read-out) + Hs·d·e (retrieval, delta rules). Further flops: Hq·e (scale); for gated rules one
    exponential per decay and Hs·d·e products; for delta rules 2·Hs·e (v − retrieved, times β).

    Args:
        call: For attribute update_rule.
        state: The sizes.
        decays: Decay values over all tokens.
    """
    rule = call.attr("update_rule", "gated_delta")
    if rule not in UPDATE_RULES:
        raise Impossible(f"update_rule {rule!r} is none of {', '.join(UPDATE_RULES)}")
    gated, delta = rule.startswith("gated"), rule.endswith("delta")
    read_out = state.tokens * state.query_heads * state.key_size * state.value_size
    macs = state.cells * (1 + delta) + read_out
    flops = 2 * macs + state.tokens * state.query_heads * state.value_size
    if gated:
        flops = flops + decays + state.cells
    if delta:
        flops = flops + 2 * state.tokens * state.state_heads * state.value_size
    return OpCost(macs, flops, decays if gated else 0)


# -- LinearAttention --------------------------------------------------------------------------


@shape_rule("LinearAttention")
@shape_rule("LinearAttention", domain=MICROSOFT)
def linear_attention_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [B, T, H·e], H the larger number of heads; present_state [B, Hkv, d, e]."""
    state = _linear_state(call)
    query = call.input(0)
    present = (query.dims[0], state.state_heads, state.key_size, state.value_size)
    window = call.attr("state_window", 0)
    if window:
        present = (window, *present)  # type: ignore[assignment]
    stored = call.input(3) if call.has(3) else query
    output = (*query.dims[:2], state.query_heads * state.value_size)
    return [query.like(output), stored.like(present)]


def _linear_state(call: OpCall) -> State:
    query, key, value = call.shape(0), call.shape(1), call.shape(2)
    if not len(query) == len(key) == len(value) == 3:
        raise Impossible("query, key and value must be [batch, sequence, heads · size]")
    number, kv_number = (required_attribute(call, f"{x}_num_heads") for x in ("q", "kv"))
    size = split_heads(query[2], number, "query")
    if upper(split_heads(key[2], kv_number, "key")) != upper(size):
        raise Impossible(f"heads of query have size {size}, heads of key {key[2] // kv_number}")
    return State(
        query[0] * query[1],
        max(number, kv_number),
        kv_number,
        size,
        split_heads(value[2], kv_number, "value"),
    )


@cost_rule("LinearAttention")
@cost_rule("LinearAttention", domain=MICROSOFT)
def linear_attention_cost(call: OpCall) -> OpCost:
    """Linear attention with one of four update rules.

    Shapes
        query [B, T, Hq·d]    key [B, T, Hkv·d]    value [B, T, Hkv·e]    state [B, Hkv, d, e]
        decay [B, T, Hkv·d or Hkv]    beta [B, T, Hkv or 1]    output [B, T, Hq·e]
    Formula
        macs = B · T · d · e · (Hkv + Hq + Hkv if the rule is delta or gated_delta)
        flops = 2 · macs + B·T·Hq·e (scale)
        + elements of decay (exponentials) + B·T·Hkv·d·e (decay), for gated rules
        + 2 · B·T·Hkv·e, for delta rules
    Traffic
        of a windowed past state one slot is read
    Convention
        The recurrence of the text, whatever chunk_size says. Where Hkv exceeds Hq there is one
        output per key head. Of a windowed past state one slot is read.
    Source
        ONNX operator reference, LinearAttention; ONNX Runtime contrib operators.
    """
    decays = call.input(4).elements if call.has(4) else 0
    cost = recurrence_work(call, _linear_state(call), decays)
    window = call.attr("state_window", 0)
    if window and call.has(3):
        return replace(cost, reads={3: (call.input(3).nbytes or 0) // window})
    return cost


@shape_rule("LinearAttentionGate", domain=MICROSOFT)
def gate_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Decay like a; beta like b."""
    outputs = [call.input(0).like()]
    return [*outputs, call.input(3).like()] if call.has(3) else outputs


@cost_rule("LinearAttentionGate", domain=MICROSOFT)
def gate_cost(call: OpCall) -> OpCost:
    """decay_scale · Softplus(a + dt_bias), Sigmoid(b).

    Formula
        flops = 3 per element of a (sum, softplus, product) + 1 per element of b (sigmoid)
    Source
        ONNX Runtime contrib operators, LinearAttentionGate.
    """
    gates = call.input(0).elements
    rates = call.input(3).elements if call.has(3) else 0
    return OpCost(0, 3 * gates + rates, gates + rates)


# -- GatedDeltaNet ----------------------------------------------------------------------------


@shape_rule("GatedDeltaNet", domain=MICROSOFT)
def delta_net_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output [tokens, Hv, e]; final_state [B, Hv, e, d]; state_update [B, C · factors]."""
    state, key_heads, lead = _delta_state(call)
    query = call.input(0)
    output = query.like((*lead, state.query_heads, state.value_size))
    batch = call.shape(6)[0] if call.has(6) else call.shape(3)[0] - 1
    final = TensorInfo(DType.FLOAT, (batch, state.state_heads, state.value_size, state.key_size))
    capacity = call.attr("state_update_capacity", 0)
    per_dimension = call.has(4) and call.input(4).rank == len(lead) + 2
    factors = (
        state.state_heads * (state.key_size if per_dimension else 1)
        + key_heads * state.key_size
        + state.state_heads * state.value_size
    )
    return [output, final, TensorInfo(DType.FLOAT, (batch, capacity * factors))]


def _delta_state(call: OpCall) -> tuple[State, int, tuple[int, ...]]:
    """(sizes, key heads, leading token axes) from apart or packed query, key and value."""
    query = call.shape(0)
    if call.has(1):
        key, value = call.shape(1), call.shape(2)
        lead = query[:-2]
        heads, number, size = max(query[-2], value[-2]), key[-2], query[-1]
        state_heads, width = value[-2], value[-1]
    else:
        _, state_heads, width, size = call.shape(6)
        lead = query[:-1]
        number = (query[-1] - state_heads * width) // (2 * size)
        heads = largest(number, state_heads)
    return State(math.prod(lead), heads, state_heads, size, width), number, lead


@cost_rule("GatedDeltaNet", domain=MICROSOFT)
def delta_net_cost(call: OpCall) -> OpCost:
    """Linear attention over packed tokens with its gate activations inside.

    Shapes
        query, key [T, Hk, d]    value [T, Hv, e]    decay [T, Hv] or [T, Hv, d]    beta [T, Hv]
        state [B, Hv, e, d]
    Formula
        macs as LinearAttention with Hv states and Hv read-outs
        flops as LinearAttention, plus 4 per decay value for gate_activation (sum, activation,
        product with exp(a_log), sign or bound), plus 1 per beta for its sigmoid, plus 3·d + 1 per
        query and key head vector if qk_l2_norm (squares, sums, root, divisions)
    Source
        ONNX Runtime contrib operators, GatedDeltaNet.
    """
    state, key_heads, _ = _delta_state(call)
    decays = call.input(4).elements if call.has(4) else 0
    cost = recurrence_work(call, state, decays)
    flops = evaluations = 0
    if call.attr("gate_activation", "none") != "none":
        flops, evaluations = 4 * decays, decays
    if call.attr("beta_activation", "none") != "none" and call.has(5):
        rates = call.input(5).elements
        flops, evaluations = flops + rates, evaluations + rates
    if call.attr("qk_l2_norm", 0):
        vectors = 2 * state.tokens * key_heads
        flops = flops + vectors * (3 * state.key_size + 1)
        evaluations = evaluations + vectors
    return replace(
        cost,
        flops=cost.flops + flops,
        transcendentals=cost.transcendentals + evaluations,
    )


declare("GatedDeltaNet", domain=MICROSOFT, control=(3, 9, 10))


# -- replay of states -------------------------------------------------------------------------


@shape_rule("GatedDeltaNetStateReplay", "ConvStateReplay", domain=MICROSOFT)
def replay_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The destination's buffer."""
    return [call.input(2).like()]


@cost_rule("GatedDeltaNetStateReplay", domain=MICROSOFT)
def delta_replay_cost(call: OpCall) -> OpCost:
    """Captured transitions applied again: per transition and state element a product and a mac.

    Formula
        metadata names Hv, Dv, Dk and the kept count n: macs = n · Hv·Dv·Dk, flops = 3 · macs
    Traffic
        the state is read and written once; captured updates as they are
    Source
        ONNX Runtime contrib operators, GatedDeltaNetStateReplay.
    """
    metadata = call.ints(3, "the geometry of the state")
    elements, kept = math.prod(metadata[5:8]), metadata[10]
    state_bytes = 4 * elements
    macs = kept * elements
    return OpCost(macs, 3 * macs, reads={0: state_bytes, 2: 0}, writes={0: state_bytes})


@cost_rule("ConvStateReplay", domain=MICROSOFT)
def conv_replay_cost(call: OpCall) -> OpCost:
    """Free of arithmetic: a state is copied.

    Traffic
        batch · channels · history elements, in and out, of the captured inputs and the old state
    """
    metadata = call.ints(3, "the geometry of the state")
    dtype = call.input(0).dtype
    width = dtype.nbytes(1) or 0 if dtype is not None else 0
    moved = width * math.prod(metadata[3:6])
    return OpCost(reads={0: moved, 1: 0, 2: 0}, writes={0: moved})


declare("GatedDeltaNetStateReplay", domain=MICROSOFT, control=(3,))
declare("ConvStateReplay", domain=MICROSOFT, control=(3,), free="copies a state, no arithmetic")


# -- convolution and state space of packed tokens ---------------------------------------------


@shape_rule("VarlenCausalConvWithState", domain=MICROSOFT)
def varlen_conv_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output like input; final_state like initial_state; state_update [B, capacity, C]."""
    x, state = call.input(0), call.input(4)
    update = (state.dims[0], call.attr("state_update_capacity", 0), x.dims[1])
    return [x.like(), state.like(), x.like(update)]


@cost_rule("VarlenCausalConvWithState", domain=MICROSOFT)
def varlen_conv_cost(call: OpCall) -> OpCost:
    """Causal depthwise convolution over packed tokens.

    Shapes
        input [T, C]    weight [C, 1, K]    state [B, C, (K − 1) · dilation]
    Formula
        macs = T · C · K; flops = 2 · macs + T·C (bias, if given) + T·C (activation, if any)
        + 3 · T·C with previous_mask (two kernel deltas added, one mask product)
    Source
        ONNX Runtime contrib operators, VarlenCausalConvWithState.
    """
    elements = call.input(0).elements
    macs = elements * call.shape(1)[-1]
    active = call.attr("activation", "none") not in ("none", "")
    further = call.has(3) + active + 3 * call.has(7)
    return OpCost(macs, 2 * macs + elements * further, elements if active else 0)


declare("VarlenCausalConvWithState", domain=MICROSOFT, control=(2, 5))


@shape_rule("Mamba2Verify", domain=MICROSOFT)
def mamba_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [R, inner]; snapshots as they are; the convolution's and the recurrence's results."""
    projection = call.input(0)
    rows, inner = projection.dims[0], call.shape(8)[0]
    return [
        projection.like((rows, inner)),
        call.input(1).like(),
        call.input(2).like(),
        projection.like((rows, call.shape(1)[1])),
        TensorInfo(DType.FLOAT, (rows, inner)),
    ]


@cost_rule("Mamba2Verify", domain=MICROSOFT)
def mamba_cost(call: OpCall) -> OpCost:
    """Convolution, selective state-space recurrence and gated grouped normalization.

    Shapes
        projection [R, 2·di + 2·groups·n + heads]    ssm_state [slots, heads, n, head_dim]
    Formula
        di = heads · head_dim, C = di + 2·groups·n channels of the convolution:
        macs = R·C·4 (four taps) + R·di·n (dt·x·B into the state) + R·di·n (C·S) + R·di (D·x)
        flops = 2 · macs + 2·R·C (bias, SiLU) + R·heads · 5 (bias, softplus, clamp, product and
        exponential of the decay) + R·di (dt·x) + R·di·n (decay of the state) + 2·R·di (gate: SiLU,
        product) + 4·R·di + 2·R·groups (root mean square)
    Source
        ONNX Runtime contrib operators, Mamba2Verify.
    """
    rows, inner = call.output().dims
    channels = call.shape(1)[1]
    _, heads, states, _ = call.shape(2)
    groups = required_attribute(call, "n_groups")
    recurrent = rows * inner * states
    macs = 4 * rows * channels + 2 * recurrent + rows * inner
    flops = 2 * macs + 2 * rows * channels + 5 * rows * heads + recurrent
    flops = flops + 7 * rows * inner + 2 * rows * groups
    return OpCost(macs, flops, rows * (channels + 2 * heads + inner + groups))


declare("Mamba2Verify", domain=MICROSOFT, control=(9,))


@shape_rule("SpeculativePrefixCommit", domain=MICROSOFT)
def prefix_commit_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Lengths [batch]; control words and contexts as they are."""
    tokens = call.shape(0)
    batch = tokens[0] if len(tokens) == 2 else 1
    return [TensorInfo(DType.INT32, (batch,)), call.input(3).like(), call.input(4).like()]


declare(
    "SpeculativePrefixCommit", domain=MICROSOFT, free="compares token ids and moves a few words"
)
cost_rule("SpeculativePrefixCommit", domain=MICROSOFT)(no_work)
