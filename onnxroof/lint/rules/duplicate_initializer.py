"""WGT005."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxroof import units
from onnxroof.graph.weights import chunks
from onnxroof.lint.reading import labels, uses
from onnxroof.lint.rule import Severity, WeightRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxroof.analysis import Analysis
    from onnxroof.graph.types import Constant
    from onnxroof.graph.weights import Bits
    from onnxroof.lint.rule import Finding
    from onnxroof.lint.values import Measured, WeightValues

_SMALLEST_BYTES = 64
_SMALLEST_UNIFORM_BYTES = 1 << 16
"""Biases of zeros, scales of ones are equal often and cost nothing."""

_SAMPLES = 64


class DuplicateInitializer(WeightRule):
    """The same tensor is stored twice under two names.

    ## Why it costs
    Exporters write a tied weight (an embedding that is also the output projection, a layer that is
    called twice) once per use. The file, the download and the memory of the weights grow by a
    copy, and a cache holds both.

    ## Flagged
        # onnxroof lint --weights
        agraph (float[1,4] x) => (float[1,4] y)
        <float[4,4] a = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8,
                         0.9, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75},
         float[4,4] b = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8,
                         0.9, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75}>
        { h = MatMul (x, a)   y = MatMul (h, b) }

    ## Clean
        # onnxroof lint --weights
        agraph (float[1,4] x) => (float[1,4] y)
        <float[4,4] a = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8,
                         0.9, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75}>
        { h = MatMul (x, a)   y = MatMul (h, a) }

    ## What to do
    Let every use name one initializer. Optimizers that remove duplicate initializers do it.
    """

    code = "WGT005"
    name = "duplicate-initializer"
    severity = Severity.WARNING
    since = "0.1"

    def check_weights(self, analysis: Analysis, values: WeightValues) -> Iterator[Finding]:
        readers = uses(analysis)
        alike: dict[object, list[Constant]] = {}
        for item in _large(values):
            constant = item.constant
            sample = _sample(values, constant)
            if len(set(sample)) == 1 and (constant.stored_bytes or 0) < _SMALLEST_UNIFORM_BYTES:
                continue
            key = (constant.dtype, constant.shape, constant.nonzeros, sample)
            alike.setdefault(key, []).append(constant)
        for group in alike.values():
            for same in _equal(values, group):
                nbytes = (same[0].stored_bytes or 0) * (len(same) - 1)
                yield self.found(
                    f"{len(same)} tensors of {units.size(same[0].stored_bytes)} hold the same"
                    f" values; sharing one saves {units.size(nbytes)}",
                    nodes=labels(
                        use for constant in same for use in readers.get(constant.identity, ())
                    ),
                    tensors=[constant.name for constant in same],
                    nbytes=nbytes,
                    bytes_saved=nbytes,
                )


def _large(values: WeightValues) -> Iterator[Measured]:
    for item in values.measured:
        if (item.constant.stored_bytes or 0) >= _SMALLEST_BYTES:
            yield item


def _sample(values: WeightValues, constant: Constant) -> tuple[int, ...]:
    """A few elements from all over the tensor: tensors that differ here need no closer look."""
    bits = values.bits(constant)
    places = np.linspace(0, bits.size - 1, _SAMPLES).astype(np.int64)
    return tuple(bits[places].tolist()) if bits.size else ()


def _equal(values: WeightValues, group: list[Constant]) -> Iterator[list[Constant]]:
    """The tensors of a group that are equal throughout, in lists of two or more."""
    rest = group
    while len(rest) > 1:
        first = values.bits(rest[0])
        same = [rest[0], *(c for c in rest[1:] if _is_equal(first, values.bits(c)))]
        chosen = set(map(id, same))
        rest = [constant for constant in rest if id(constant) not in chosen]
        if len(same) > 1:
            yield same


def _is_equal(first: Bits, second: Bits) -> bool:
    return first.size == second.size and all(
        np.array_equal(a, b) for a, b in zip(chunks(first), chunks(second), strict=True)
    )
