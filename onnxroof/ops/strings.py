"""Operators on text: no arithmetic, and sizes that only the text tells.

Strings have no fixed byte size, so their traffic is unknown, not zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.bounded import BoundedInt
from onnxroof.graph.types import DType
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, Undetermined, no_work
from onnxroof.ops.geometry import broadcast
from onnxroof.ops.registry import MICROSOFT, cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall

_TEXT = "work on text, no arithmetic"


@shape_rule("StringConcat")
def string_concat_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Broadcast of both inputs."""
    return [TensorInfo(DType.STRING, broadcast(call.shape(0), call.shape(1)))]


@shape_rule("RegexFullMatch")
def regex_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Booleans, shaped like the input."""
    return [TensorInfo(DType.BOOL, call.shape(0))]


@shape_rule("StringSplit")
def string_split_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Pieces [*S, longest] and their numbers [*S]; `maxsplit` bounds the longest."""
    dims = call.shape(0)
    most = call.attributes.get("maxsplit")
    if isinstance(most, int) and most >= 0:
        pieces = TensorInfo(DType.STRING, (*dims, BoundedInt(most + 1)))
    else:
        pieces = TensorInfo(DType.STRING, None)
        call.reason = "into how many pieces the text splits is known at run time only"
    return [pieces, TensorInfo(DType.INT64, dims)]


@shape_rule("StringNormalizer")
def string_normalizer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[C] or [1, C], shorter by the stop words found; one empty string when nothing is left."""
    dims = call.shape(0)
    if len(dims) not in (1, 2) or (len(dims) == 2 and dims[0] != 1):
        raise Impossible("the input must be [C] or [1, C]")
    if not call.attributes.get("stopwords"):
        return [TensorInfo(DType.STRING, dims)]
    return [TensorInfo(DType.STRING, (*dims[:-1], BoundedInt(int(dims[-1]), 1)))]


declare("StringConcat", "RegexFullMatch", free=_TEXT)
declare("StringSplit", "StringNormalizer", free=_TEXT, data_dependent=True)
cost_rule("StringConcat", "RegexFullMatch", "StringSplit", "StringNormalizer")(no_work)


@shape_rule("TfIdfVectorizer")
def tfidf_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[entries] or [B, entries] with entries = 1 + the largest of ngram_indexes."""
    indexes = call.ints_attr("ngram_indexes")
    if not indexes:
        raise Impossible("attribute ngram_indexes is required")
    dims = call.shape(0)
    if len(dims) not in (1, 2):
        raise Impossible("the input must be [C] or [B, C]")
    return [TensorInfo(DType.FLOAT, (*dims[:-1], max(indexes) + 1))]


@cost_rule("TfIdfVectorizer")
def tfidf_cost(call: OpCall) -> OpCost:
    """Counts of n-grams, looked up in a table.

    Formula
        flops = elements of the output if mode is IDF or TFIDF (one product each), else 0
    Convention
        Finding the n-grams is look-up, not arithmetic.
    Source
        ONNX operator reference, TfIdfVectorizer.
    """
    weighted = call.attr("mode", "TF") in ("IDF", "TFIDF")
    return OpCost(0, call.output().elements if weighted else 0)


declare("TfIdfVectorizer", free="look-ups in a table of n-grams")


@shape_rule("Tokenizer", domain=MICROSOFT)
def tokenizer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """[C, tokens] or [N, C, tokens]; how many tokens is in the text."""
    call.shape(0)
    raise Undetermined("into how many tokens the text splits is known at run time only")


@shape_rule("MurmurHash3", domain=MICROSOFT)
def murmur_shape(call: OpCall) -> Sequence[TensorInfo]:
    """One 32-bit hash per element."""
    positive = call.attr("positive", 1)
    return [TensorInfo(DType.UINT32 if positive else DType.INT32, call.shape(0))]


@cost_rule("MurmurHash3", domain=MICROSOFT)
def murmur_cost(call: OpCall) -> OpCost:
    """One operation per element, as for every elementwise operator however it is implemented.

    Formula
        flops = elements of the output
    Source
        ONNX Runtime contrib operators, MurmurHash3.
    """
    return OpCost(0, call.output().elements)


declare("Tokenizer", domain=MICROSOFT, free=_TEXT)
cost_rule("Tokenizer", domain=MICROSOFT)(no_work)
