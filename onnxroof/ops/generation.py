"""Operators that run a whole decoder until a stop token, and nodes that hold a compiled model.

How often a decoder runs depends on the tokens it produces, so their work is unknown, not zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.bounded import interval, lower, upper
from onnxroof.graph.types import DType
from onnxroof.ops.call import OpCost, TensorInfo, Undetermined, no_work
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall


@shape_rule("BeamSearch", "WhisperBeamSearch", domain=MICROSOFT)
def beam_search_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Sequences [B, returned, longest], their scores [B, returned], scores per step."""
    batch = call.shape(0)[0]
    (longest,) = call.ints(1, "the longest sequence")
    (beams,) = call.ints(3, "the number of beams")
    (returned,) = call.ints(4, "the number of returned sequences")
    scores = call.input(5).like if call.has(5) else TensorInfo(DType.FLOAT, ()).like
    vocabulary = call.attr("vocab_size", -1)
    steps = longest - call.shape(0)[1]
    per_step = (steps, batch, beams, vocabulary) if vocabulary > 0 else None
    outputs = [
        TensorInfo(DType.INT32, (batch, returned, longest)),
        scores((batch, returned)),
        TensorInfo(scores(()).dtype, per_step),
    ]
    if call.op_type == "BeamSearch":
        return outputs
    return [*outputs, TensorInfo(DType.FLOAT, None), scores((batch,))]


@shape_rule("GreedySearch", "Sampling", domain=MICROSOFT)
def greedy_search_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Sequences [B, longest]; for Sampling the filtered logits [B, vocabulary]."""
    batch = call.shape(0)[0]
    (longest,) = call.ints(1, "the longest sequence")
    vocabulary = call.attr("vocab_size", -1)
    logits = TensorInfo(DType.FLOAT, (batch, vocabulary) if vocabulary > 0 else None)
    return [TensorInfo(DType.INT32, (batch, longest)), logits]


declare("BeamSearch", "WhisperBeamSearch", domain=MICROSOFT, control=(1, 2, 3, 4))
declare("GreedySearch", domain=MICROSOFT, control=(1, 2))
declare("Sampling", domain=MICROSOFT, control=(1, 2), random=True)


@cost_rule("BeamSearch", "WhisperBeamSearch", "GreedySearch", "Sampling", domain=MICROSOFT)
def search_cost(call: OpCall) -> OpCost:
    """Unknown: the decoder runs until the stop token, at most max_length times."""
    raise Undetermined(
        f"{call.op_type} runs its decoder until a stop token: analyze the decoder by itself"
    )


@shape_rule("EPContext", "Snpe", domain=MICROSOFT)
def compiled_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Unknown: the types that the file declares are taken."""
    raise Undetermined(f"{call.op_type} holds a model compiled for one device, not a graph")


@cost_rule("EPContext", "Snpe", domain=MICROSOFT)
def compiled_cost(call: OpCall) -> OpCost:
    """Unknown: what was compiled cannot be seen."""
    raise Undetermined(f"{call.op_type} holds a model compiled for one device, not a graph")


@shape_rule("NGramRepeatBlock", domain=MICROSOFT)
def repeat_block_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Like scores."""
    return [call.input(1).like()]


declare("NGramRepeatBlock", domain=MICROSOFT, free="compares token ids and overwrites scores")
cost_rule("NGramRepeatBlock", domain=MICROSOFT)(no_work)


@shape_rule("BifurcationDetector", domain=MICROSOFT)
def bifurcation_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Tokens, at least the current and at most the predicted ones more; an index."""
    current = call.shape(1)[0]
    predicted = call.shape(3)[0] if call.has(3) else 0
    length = interval(lower(current), upper(current + predicted))
    return [TensorInfo(DType.INT64, (length,)), call.input(2).like()]


declare("BifurcationDetector", domain=MICROSOFT, data_dependent=True, free="compares token ids")
cost_rule("BifurcationDetector", domain=MICROSOFT)(no_work)


# -- hashes of n-grams ------------------------------------------------------------------------


@shape_rule("NGramHashMapping", domain=MICROSOFT)
def ngram_hash_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Hashes [B, S, heads]; the last ids [B, n − 1]."""
    ids = call.input(0)
    return [
        ids.like((*ids.dims, call.shape(2)[0])),
        ids.like((ids.dims[0], call.attr("max_ngram_size", 2) - 1)),
    ]


@shape_rule("VarlenNGramHashMapping", domain=MICROSOFT)
def varlen_ngram_hash_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Hashes [T, heads]; the last ids and segments [B, n − 1]; captured states."""
    ids, batch = call.input(0), call.shape(3)[0] - 1
    history = call.attr("max_ngram_size", 2) - 1
    capacity = call.attr("state_update_capacity", 0)
    return [
        ids.like((ids.dims[0], call.shape(2)[0])),
        ids.like((batch, history)),
        TensorInfo(DType.INT32, (batch, history)),
        ids.like((batch, capacity, history)),
    ]


@cost_rule("NGramHashMapping", "VarlenNGramHashMapping", domain=MICROSOFT)
def ngram_hash_cost(call: OpCall) -> OpCost:
    """Products and exclusive ors of shifted ids, one remainder per head.

    Formula
        Per token: n products + (n − 1) exclusive ors + heads (remainders) + heads if head_offsets,
        n = max_ngram_size
    Source
        ONNX Runtime contrib operators, NGramHashMapping, VarlenNGramHashMapping.
    """
    longest, heads = call.attr("max_ngram_size", 2), call.shape(2)[0]
    offsets = call.has(4 if call.op_type == "NGramHashMapping" else 5)
    return OpCost(0, call.input(0).elements * (2 * longest - 1 + heads * (1 + offsets)))


declare("NGramHashMapping", domain=MICROSOFT, control=(1, 2, 4, 5))
declare("VarlenNGramHashMapping", domain=MICROSOFT, control=(1, 2, 3, 5, 6, 9))
