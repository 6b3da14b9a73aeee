"""com.microsoft operators that fit no other family: hyper-connections, gates, distances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.bounded import largest, upper
from onnxroof.graph.types import DTYPE_BY_CODE, DType
from onnxroof.ops.attention import required_attribute
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, no_work
from onnxroof.ops.geometry import broadcast
from onnxroof.ops.position import ROTATION_FLOPS, table_bytes
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall


def rms_flops(rows: int, length: int, *, scaled: bool = True) -> int:
    """Root-mean-square normalization: 4·n + 2 a row of n (squares, mean, division, scale)."""
    return rows * ((4 if scaled else 3) * length + 2)


# -- complex products, distances, checks ------------------------------------------------------


@shape_rule("ComplexMul", "ComplexMulConj", domain=MICROSOFT)
def complex_product_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Broadcast of both, the last axis [real, imaginary]."""
    return [call.input(0).like(broadcast(call.shape(0), call.shape(1)))]


@cost_rule("ComplexMul", "ComplexMulConj", domain=MICROSOFT)
def complex_product_cost(call: OpCall) -> OpCost:
    """Products of complex numbers.

    Formula
        flops = 3 · elements of the output, whose last axis is [real, imaginary]: 4 products, a sum
        and a difference for each complex number
    Source
        ONNX Runtime contrib operators, ComplexMul and ComplexMulConj.
    """
    return OpCost(0, 3 * call.output().elements)


@shape_rule("CDist", domain=MICROSOFT)
def distance_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Distances [M, K] between the rows of A [M, N] and of B [K, N]."""
    (rows, width), (others, other_width) = call.shape(0), call.shape(1)
    if upper(width) != upper(other_width):
        raise Impossible(f"rows of {width} and of {other_width} elements have no distance")
    return [call.input(0).like((rows, others))]


@cost_rule("CDist", domain=MICROSOFT)
def distance_cost(call: OpCall) -> OpCost:
    """Distance of every pair of rows.

    Formula
        sqeuclidean: per pair N differences, N squares, N − 1 sums; euclidean one root more
    Source
        ONNX Runtime contrib operators, CDist; the two metrics its kernel has.
    """
    pairs, width = call.output().elements, call.shape(0)[1]
    roots = 0 if call.attr("metric", "sqeuclidean") == "sqeuclidean" else pairs
    return OpCost(0, pairs * largest(3 * width - 1, 0) + roots, roots)


@shape_rule("IsAllFinite", domain=MICROSOFT)
def all_finite_shape(_: OpCall) -> Sequence[TensorInfo]:
    """A boolean scalar."""
    return [TensorInfo(DType.BOOL, ())]


@cost_rule("IsAllFinite", domain=MICROSOFT)
def all_finite_cost(call: OpCall) -> OpCost:
    """Whether every element of every input is finite.

    Formula
        flops = elements of all inputs, one check each
    Source
        ONNX Runtime contrib operators, IsAllFinite.
    """
    return OpCost(0, sum(info.elements for info in call.given()))


@shape_rule("SampleOp", domain=MICROSOFT)
def echo_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Like X."""
    return [call.input(0).like()]


declare("SampleOp", domain=MICROSOFT, free="copies its input")
cost_rule("SampleOp", domain=MICROSOFT)(no_work)


@shape_rule("GatherPacked", domain=MICROSOFT)
def gather_packed_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Embeddings [*, K] of attribute output_dtype, bfloat16 unless given."""
    dtype = DTYPE_BY_CODE.get(call.attr("output_dtype", DType.BFLOAT16.code))
    return [TensorInfo(dtype, (*call.shape(1), required_attribute(call, "K")))]


@cost_rule("GatherPacked", domain=MICROSOFT)
def gather_packed_cost(call: OpCall) -> OpCost:
    """Rows of a packed embedding table, dequantized as they are read.

    Shapes
        data [vocabulary, row bytes]    indices [*]    output [*, K]
    Formula
        flops = elements of the output (one dequantization each)
    Traffic
        of data the rows looked up, at most all
    Source
        ONNX Runtime contrib operators, GatherPacked.
    """
    reads = {0: table_bytes(call, 0, call.input(1).elements)}
    return OpCost(0, call.output().elements, reads=reads)


# -- normalizations with something around them ------------------------------------------------


@shape_rule("BranchwiseRMSNorm", "GatedRMSNorm", "GatedAdd", domain=MICROSOFT)
def like_first_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Like X."""
    return [call.input(0).like()]


@cost_rule("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_norm_cost(call: OpCall) -> OpCost:
    """Root-mean-square normalization of every branch.

    Formula
        flops per row of n = last axis / num_branches: 3·n + 2, plus n if scaled
        transcendentals: 1 per row
    Source
        ONNX Runtime contrib operators, BranchwiseRMSNorm.
    """
    x = call.input(0)
    branches = call.attr("num_branches", 0)
    length = x.dims[-1] // branches if branches else x.dims[-1]
    rows = x.elements // length if upper(length) else 0
    return OpCost(0, rms_flops(rows, length, scaled=call.has(1)), rows)


@cost_rule("GatedRMSNorm", domain=MICROSOFT)
def gated_norm_cost(call: OpCall) -> OpCost:
    """Root-mean-square normalization times an activated gate.

    Formula
        Per row of n = length of scale: 4·n + 2, + 2·n (activation of the gate, product)
    Source
        ONNX Runtime contrib operators, GatedRMSNorm.
    """
    elements, length = call.input(0).elements, call.input(1).elements
    rows = elements // length if upper(length) else 0
    return OpCost(0, rms_flops(rows, length) + 2 * elements, rows + elements)


@shape_rule("RMSNormRotary", domain=MICROSOFT)
def norm_rotary_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [B, S, heads·width] or [1, B·S, ·] in bfloat16 or float16; the normalized values."""
    batch, sequence, heads, _ = call.shape(0)
    width = call.input(1).elements
    lead = (1, batch * sequence) if call.attr("flatten_batch", 0) else (batch, sequence)
    dtype = DType.FLOAT16 if call.attr("output_fp16", 0) else DType.BFLOAT16
    return [
        TensorInfo(dtype, (*lead, heads * width)),
        TensorInfo(DType.FLOAT, (batch, sequence, heads, width)),
    ]


@cost_rule("RMSNormRotary", domain=MICROSOFT)
def norm_rotary_cost(call: OpCall) -> OpCost:
    """Root-mean-square normalization, then rotary embedding.

    Formula
        Per head vector of n, r of it rotated: 4·n + 2 + 3·r
    Traffic
        of the input the channels normalized; of the tables the rows of B · S positions, at most all
    Source
        ONNX Runtime contrib operators, RMSNormRotary.
    """
    batch, sequence, heads, stride = call.shape(0)
    width = call.input(1).elements
    vectors = batch * sequence * heads
    rotated = required_attribute(call, "rotary_embedding_dim")
    flops = rms_flops(vectors, width) + ROTATION_FLOPS * rotated * vectors
    reads = {p: table_bytes(call, p, batch * sequence) for p in (3, 4)}
    if upper(stride):
        reads[0] = (call.input(0).nbytes or 0) // stride * width
    return OpCost(0, flops, vectors, reads=reads)


declare("RMSNormRotary", domain=MICROSOFT, control=(2, 5))


# -- gates ------------------------------------------------------------------------------------


@cost_rule("GatedAdd", domain=MICROSOFT)
def gated_add_cost(call: OpCall) -> OpCost:
    """X + Y · gate, the gate given or projected.

    Formula
        flops = 2 per element; with gate_weight [K, 1] per row K macs and a sigmoid more
    Source
        ONNX Runtime contrib operators, GatedAdd.
    """
    flops = 2 * call.input(0).elements
    if not call.has(3):
        return OpCost(0, flops)
    gate = call.input(2)
    rows = math.prod(gate.dims[:-1])
    return OpCost(gate.elements, flops + 2 * gate.elements + rows, rows)


@shape_rule("EngramGate", domain=MICROSOFT)
def engram_gate_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Both outputs like key."""
    return [call.input(0).like(), call.input(0).like()]


@cost_rule("EngramGate", domain=MICROSOFT)
def engram_gate_cost(call: OpCall) -> OpCost:
    """A gate from the product of normalized key and query, applied to a value.

    Formula
        Per vector of n: 2 · (4·n + 2) (normalizations) + 2·n − 1 (product) + 1 (scale)
        + 6 (magnitude, maximum, root, sign, product, sigmoid) + n (gate · value),
        + 4·n + 2 if gated_value_normed is wanted
    Source
        ONNX Runtime contrib operators, EngramGate.
    """
    key = call.input(0)
    width = key.dims[-1]
    vectors = math.prod(key.dims[:-1])
    norms = 2 + call.wants(1)
    flops = rms_flops(norms * vectors, width) + vectors * (3 * width + 6)
    return OpCost(0, flops, vectors * (norms + 2))


@shape_rule("RouterGateUpProj", domain=MICROSOFT)
def router_gate_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Router logits [*, router_size]; activated [*, inter]."""
    x = call.input(0)
    router = required_attribute(call, "router_size")
    inner = (call.shape(1)[1] - router) // 2
    return [x.like((*x.dims[:-1], router)), x.like((*x.dims[:-1], inner))]


@cost_rule("RouterGateUpProj", domain=MICROSOFT)
def router_gate_cost(call: OpCall) -> OpCost:
    """One product for router, gate and up, then SwiGLU.

    Formula
        macs = rows · K · N; flops = 2 · macs + 2 per activated element (Swish and product),
        1 more with activation_beta, 2 more with limit
    Source
        ONNX Runtime contrib operators, RouterGateUpProj.
    """
    inputs, width = call.shape(1)
    macs = math.prod(call.shape(0)[:-1]) * inputs * width
    activated = call.output(1).elements
    further = (call.attr("activation_beta", 0.0) != 0) + 2 * (call.attr("limit", 0.0) > 0)
    return OpCost(macs, 2 * macs + activated * (2 + further), activated)


@shape_rule("MoEGroupRouter", domain=MICROSOFT)
def group_router_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Routed log-scores, or full scores and weights in float: all [tokens, experts]."""
    logits = call.input(0)
    dims = (math.prod(logits.dims[:-1]), call.input(1).elements)
    scores = TensorInfo(DType.FLOAT, dims)
    return [logits.like(dims), scores, scores]


@cost_rule("MoEGroupRouter", domain=MICROSOFT)
def group_router_cost(call: OpCall) -> OpCost:
    """Sigmoid scores with a bias, and the choice of experts.

    Formula
        Per token of E experts:
        macs = width · E if projection_weight [E, width] is given, else 0
        flops = 2 · macs + E (sigmoids) + E (sums); when router_probs is wanted also E − 1
        comparisons per expert chosen (top_k) and 2 per expert chosen (maximum, logarithm)
    Source
        ONNX Runtime contrib operators, MoEGroupRouter.
    """
    tokens, experts = call.output().dims
    macs = tokens * experts * call.shape(2)[1] if call.has(2) else 0
    flops, evaluations = 2 * tokens * experts, tokens * experts
    if call.wants(0):
        chosen = required_attribute(call, "top_k")
        flops = flops + tokens * chosen * (experts + 1)
        evaluations = evaluations + tokens * chosen
    return OpCost(macs, 2 * macs + flops, evaluations)


# -- hyper-connections ------------------------------------------------------------------------


def _streams(call: OpCall) -> tuple[tuple[int, ...], int, int]:
    """(leading axes, branches C, width H) of grouped [*, C, H] or flattened [*, C·H] streams."""
    dims = call.shape(0)
    branches = call.attr("num_branches", 0)
    if not branches:
        return dims[:-2], dims[-2], dims[-1]
    if upper(dims[-1]) % branches:
        raise Impossible(f"streams of width {dims[-1]} do not split into {branches} branches")
    return dims[:-1], branches, dims[-1] // branches


@shape_rule("HyperConnectionPreMix", domain=MICROSOFT)
def pre_mix_shape(call: OpCall) -> Sequence[TensorInfo]:
    """One feature tensor [*, H]."""
    lead, _, width = _streams(call)
    return [call.input(0).like((*lead, width))]


@cost_rule("HyperConnectionPreMix", domain=MICROSOFT)
def pre_mix_cost(call: OpCall) -> OpCost:
    """Streams times gates, summed over the C branches and scaled.

    Formula
        flops = 2 · C per element of the output: C products, C − 1 additions, 1 scale
    Source
        ONNX Runtime contrib operators, HyperConnectionPreMix.
    """
    _, branches, _ = _streams(call)
    return OpCost(0, call.output().elements * 2 * branches)


@shape_rule("HyperConnectionPostMix", domain=MICROSOFT)
def post_mix_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Like streams."""
    return [call.input(0).like()]


@cost_rule("HyperConnectionPostMix", domain=MICROSOFT)
def post_mix_cost(call: OpCall) -> OpCost:
    """Streams mixed by a C × C matrix, if given, plus the gated block output.

    Formula
        macs = elements · C if stream_mix is given; flops = 2 · macs + 2 · elements
    Source
        ONNX Runtime contrib operators, HyperConnectionPostMix.
    """
    elements = call.input(0).elements
    macs = elements * _streams(call)[1] if call.has(3) else 0
    return OpCost(macs, 2 * macs + 2 * elements)


@shape_rule("HyperConnectionLowRankMix", domain=MICROSOFT)
def low_rank_mix_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Block input [*, H]; gate of the next call [*, C]; streams."""
    x = call.input(0)
    lead, branches, width = _streams(call)
    return [x.like((*lead, width)), x.like((*lead, branches)), x.like()]


@cost_rule("HyperConnectionLowRankMix", domain=MICROSOFT)
def low_rank_mix_cost(call: OpCall) -> OpCost:
    """A hyper-connection block with a low-rank gate network.

    Formula
        Per row, C branches of H, rank R: macs = 2 · C·H·R + C·H·C
        flops = 2 · macs + [2·C·H prologue] + C · (4·H + 2) (normalization) + 3·R (scaled SiLU)
        + C·H (sigmoid) + 2·C·H (product, sum over branches, scale) + 3·C (inject gate)
    Source
        ONNX Runtime contrib operators, HyperConnectionLowRankMix.
    """
    lead, branches, width = _streams(call)
    rows, all_width, rank = math.prod(lead), branches * width, call.shape(2)[1]
    macs = rows * (2 * all_width * rank + all_width * branches)
    flops = rms_flops(rows * branches, width)
    flops = flops + rows * (3 * rank + 3 * all_width + 3 * branches)
    if call.has(5):
        flops = flops + 2 * rows * all_width
    evaluations = rows * (branches + rank + all_width + branches)
    return OpCost(macs, 2 * macs + flops, evaluations)
