"""Convolutions of any rank with what folds into their weights or runs on their results.

The order matters. BatchNormalization, scale and shift per channel are affine, so they fold into
weights and bias as long as only affine steps stand between; after an activation they do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxroof.fusion.chain import FITS, NO_CANDIDATE, Chain, Step
from onnxroof.fusion.rules.conditions import (
    channel_constant,
    constant_bounds,
    constant_weights,
    frozen_batchnorm,
    lite_activation,
    same_shape_residual,
)

if TYPE_CHECKING:
    from onnxroof.fusion.chain import Edge

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})

RESIDUAL = Step("the residual addition", frozenset({"Add", "Sum"}), same_shape_residual)

SIMPLE = frozenset({"Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid"})
SMOOTH = frozenset(
    ("HardSwish", "Elu", "Selu", "Softplus", "PRelu", "Gelu", "Mish", "Swish",
     "ThresholdedRelu", "Celu", "Softsign", "Abs")
)  # fmt: skip


LITE = Step("the activation", frozenset({"Relu", "Clip", "Tanh"}), lite_activation, notable=True)


def activation(kinds: frozenset[str]) -> Step:
    """The activation on the results, in registers."""
    return Step("the activation", kinds, constant_bounds, notable=True)


def zero_padding(edge: Edge) -> str | None:
    """Pad with zeros of spatial axes, which becomes the convolution's own padding."""
    call = edge.candidate.call
    mode = call.attributes.get("mode", "constant")
    if mode != "constant":
        return f"it pads by {mode}, a convolution only with zeros"
    if not _fills_with_zero(edge):
        return "it pads with something else than zero"
    source, result = call.inputs[0], call.outputs[0] if call.outputs else None
    if source is None or result is None or source.shape is None or result.shape is None:
        return NO_CANDIDATE
    if source.shape[:2] != result.shape[:2]:
        return "it pads batch or channels"
    if any(small > large for small, large in zip(source.shape, result.shape, strict=True)):
        return "it crops"
    return FITS


def _fills_with_zero(edge: Edge) -> bool:
    """The fill value is an attribute before opset 11, then an optional input."""
    call, names = edge.candidate.call, edge.candidate.node.inputs
    if not call.has(2):
        return call.attributes.get("value", 0.0) == 0.0
    fill = edge.grouping.graph.value(names[2])
    return fill is not None and (not fill.size or fill.ravel().tolist()[0] == 0)


def unpadded_batchnorm(edge: Edge) -> str | None:
    """W·(γ·x + β) = (W·γ)·x + W·β holds only where no zero padding mixes in."""
    answer = frozen_batchnorm(edge)
    if answer is not FITS:
        return answer
    pads = edge.anchor.call.attributes.get("pads", (0,))
    auto = edge.anchor.call.attributes.get("auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID") or (isinstance(pads, tuple) and any(pads)):
        return "the convolution pads with zeros, which the shift would have to reach"
    return constant_weights(edge)


_PAD = Step("Pad", frozenset({"Pad"}), zero_padding, notable=True)
_BATCHNORM_BEFORE = Step(
    "BatchNormalization before it", frozenset({"BatchNormalization"}), unpadded_batchnorm,
    folds=True,
)  # fmt: skip


def affine(edge: Edge) -> str | None:
    """Whatever folds into weights and bias: batch normalization, scale or shift per channel."""
    if edge.candidate.kind == "BatchNormalization":
        return frozen_batchnorm(edge)
    return channel_constant(edge)


FOLD = Step(
    "BatchNormalization", frozenset({"BatchNormalization", "Mul", "Div", "Add", "Sub"}), affine,
    folds=True, repeats=True, notable=True,
)  # fmt: skip

_WHY = "Affine steps fold into weights and bias: γ(W·x + b − μ)/σ + β = (γW/σ)·x + γ(b − μ)/σ + β. "

RULES = (
    Chain(
        name="convolution-activation",
        anchors=CONVOLUTIONS,
        then=(FOLD, activation(SIMPLE)),
        before=(_PAD,),
        why=_WHY + "The activation runs on the accumulators before they are stored.",
    ),
    Chain(
        name="convolution-lite-activation",
        anchors=CONVOLUTIONS,
        then=(FOLD, LITE),
        before=(_PAD,),
        why=_WHY + "The activation runs on the accumulators before they are stored.",
    ),
    Chain(
        name="convolution-residual-activation",
        anchors=CONVOLUTIONS,
        then=(FOLD, RESIDUAL, activation(SIMPLE | SMOOTH)),
        before=(_PAD, _BATCHNORM_BEFORE),
        why=_WHY + "Residual and activation run on the accumulators before they are stored.",
    ),
    Chain(
        name="pad-pool",
        anchors=frozenset({"AveragePool"}),
        then=(),
        before=(_PAD,),
        why="Zero padding becomes the pool's own padding, counted in the average.",
    ),
)
