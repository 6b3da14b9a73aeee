"""Conditions that several rules share. Each returns `FITS`, a reason, or `NO_CANDIDATE`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.fusion.chain import FITS, NO_CANDIDATE

if TYPE_CHECKING:
    from onnxroof.fusion.chain import Edge


def frozen_batchnorm(edge: Edge) -> str | None:
    """Inference-mode batch normalization with constant parameters after constant weights.

    γ·(W·x + b − μ)/σ + β = (γ/σ·W)·x + γ/σ·(b − μ) + β, so W and b absorb it.
    """
    call = edge.candidate.call
    if call.attributes.get("training_mode") or sum(map(bool, edge.candidate.node.outputs)) > 1:
        return "BatchNormalization in training mode computes its own statistics"
    if any(info is None or not info.constant for info in call.inputs[1:]):
        return "scale, shift or statistics are inputs of the run, not constants"
    return constant_weights(edge)


def constant_weights(edge: Edge) -> str | None:
    """The anchor's weights are constants, so that something can fold into them."""
    weights = edge.anchor.call.inputs[1] if len(edge.anchor.call.inputs) > 1 else None
    if weights is None or not weights.constant:
        return "the weights are computed at run time, nothing can fold into them"
    return FITS


def channel_constant(edge: Edge) -> str | None:
    """A constant operand with one value, or one a channel (axis 1; last where permuted)."""
    other, rank = edge.other(), _rank(edge)
    if other is None or not other.constant or other.shape is None or not rank:
        return NO_CANDIDATE
    dims = (1,) * (rank - len(other.shape)) + tuple(other.shape)
    permuted = not edge.grouping.graph.permuted.isdisjoint(edge.candidate.node.inputs)
    channels = rank - 1 if permuted else 1
    if len(dims) != rank or any(n != 1 for axis, n in enumerate(dims) if axis != channels):
        return NO_CANDIDATE
    if edge.candidate.kind in ("Sub", "Div") and not _is_first(edge):
        return NO_CANDIDATE
    return constant_weights(edge)


def last_axis_constant(edge: Edge) -> str | None:
    """A constant operand along the last axis only: a bias."""
    other = edge.other()
    if other is None or not other.constant or other.shape is None:
        return NO_CANDIDATE
    if math.prod(other.shape[:-1]) != 1 or len(other.shape) > _rank(edge):
        return NO_CANDIDATE
    return FITS


def scalar_constant(edge: Edge) -> str | None:
    """The other operand is a constant of one element."""
    other = edge.other()
    if other is None:
        return NO_CANDIDATE
    if not other.constant or other.shape is None or math.prod(other.shape) != 1:
        return NO_CANDIDATE
    return FITS


def makes_scaled(edge: Edge) -> str | None:
    """A producer that multiplies or divides by a constant of one element."""
    infos = edge.candidate.call.inputs
    constants = [info for info in infos if info is not None and info.constant]
    if len(infos) == 2 and len(constants) == 1 and constants[0].shape is not None:
        return FITS if math.prod(constants[0].shape) == 1 else NO_CANDIDATE
    return NO_CANDIDATE


def same_shape_residual(edge: Edge) -> str | None:
    """The other operand is an activation of the same shape and type."""
    other, info = edge.other(), edge.info()
    if other is None or info is None or other.constant or info.shape is None:
        return NO_CANDIDATE
    same = other.shape == info.shape and other.dtype is info.dtype
    return (
        FITS
        if same and edge.candidate.node.inputs[0] != edge.candidate.node.inputs[1]
        else (NO_CANDIDATE)
    )


def sum_of_activations(edge: Edge) -> str | None:
    """A producer that adds two tensors of one shape: a residual connection."""
    infos, info = edge.candidate.call.inputs, edge.info()
    if len(infos) != 2 or info is None or info.shape is None:
        return NO_CANDIDATE
    fits = all(i is not None and i.shape == info.shape for i in infos)
    return FITS if fits else NO_CANDIDATE


def sum_of_tokens(edge: Edge) -> str | None:
    """The same for at most three axes: batch, tokens, features."""
    return sum_of_activations(edge) if _rank(edge) <= 3 else NO_CANDIDATE


def constant_bounds(edge: Edge) -> str | None:
    """Bounds of a Clip, slope of a PRelu, are constants; anything else passes."""
    infos = edge.candidate.call.inputs[1:]
    if edge.candidate.kind in ("Clip", "PRelu") and any(
        info is not None and not info.constant for info in infos
    ):
        return f"the bounds of {edge.candidate.op_type} are computed at run time"
    return FITS


def lite_activation(edge: Edge) -> str | None:
    """What TensorFlow Lite fuses: ReLU, tanh, and a Clip to [0, ∞), [0, 6] or [−1, 1]."""
    answer = constant_bounds(edge)
    if edge.candidate.kind != "Clip" or answer is not FITS:
        return answer
    low, high = _bound(edge, "min", 1), _bound(edge, "max", 2)
    fits = (low == 0 and high in (6, None)) or (low == -1 and high == 1)
    return FITS if fits else "only clipping at 0, to [0, 6] or to [-1, 1] is fused"


def _bound(edge: Edge, name: str, position: int) -> float | None:
    """A bound of a Clip: an attribute before opset 11, then an input."""
    given = edge.candidate.call.attributes.get(name)
    if isinstance(given, int | float):
        return given
    names = edge.candidate.node.inputs
    value = edge.grouping.graph.value(names[position]) if position < len(names) else None
    return None if value is None or not value.size else float(value.ravel()[0])


def _rank(edge: Edge) -> int:
    """Rank of what the candidate makes; 0 when unknown."""
    outputs = edge.candidate.call.outputs
    return len(outputs[0].shape) if outputs and outputs[0].shape is not None else 0


def _is_first(edge: Edge) -> bool:
    first = edge.candidate.node.inputs[0]
    return edge.grouping.graph.source.get(first, first) == edge.tensor
