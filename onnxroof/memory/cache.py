"""The key/value cache of a decoder graph: what grows with every token.

A pair is a graph input and the graph output that is the same tensor, longer: the Concat that
appends tells, and for attention operators that do it inside, the names (past…/present…).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.memory.records import CachedTensor, KVCache
from onnxroof.memory.sharing import cache_appends

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.cost import GraphCost
    from onnxroof.ops.call import TensorInfo


def find_cache(cost: GraphCost) -> KVCache | None:
    """The cache, or None when the graph keeps none."""
    tensors = cost.shaped.tensors
    pairs = dict(cache_appends(cost)) | _named_pairs(cost)
    order = {name: place for place, name in enumerate(cost.shaped.graph.outputs)}
    found = [
        cached
        for past, present in sorted(pairs.items(), key=lambda pair: order[pair[1]])
        if (cached := _cached(tensors, past, present)) is not None
    ]
    if not found:
        return None
    layers: dict[str, int] = {}
    for cached in found:
        number = re.search(r"\d+", cached.present)
        layer = number.group() if number else cached.present
        layers[layer] = layers.get(layer, 0) + cached.bytes_per_token
    return KVCache(tuple(found), tuple(layers.items()))


def _named_pairs(cost: GraphCost) -> dict[str, str]:
    """Inputs and outputs called alike but for "past" and "present"."""
    graph = cost.shaped.graph
    outputs = {_bare(name, "present"): name for name in graph.outputs if "present" in name}
    return {
        item.name: outputs[bare]
        for item in graph.inputs
        if "past" in item.name and (bare := _bare(item.name, "past")) in outputs
    }


def _bare(name: str, word: str) -> str:
    return name.replace("key_values", "").replace(word, "").strip("._-")


def _cached(tensors: Mapping[str, TensorInfo], past: str, present: str) -> CachedTensor | None:
    """The pair with its bytes per token: the axis along which the two differ is that of tokens."""
    old, new = tensors.get(past), tensors.get(present)
    if old is None or new is None or old.shape is None or new.shape is None or not new.nbytes:
        return None
    if len(old.shape) != len(new.shape) or old.dtype is not new.dtype:
        return None
    longer = [axis for axis, (a, b) in enumerate(zip(old.shape, new.shape, strict=True)) if a != b]
    if len(longer) != 1:
        return None
    tokens = upper(new.shape[longer[0]])
    nbytes = upper(new.nbytes)
    return CachedTensor(past, present, nbytes // tokens, nbytes, tokens)
