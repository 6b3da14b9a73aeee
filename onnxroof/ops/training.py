"""Losses, and the optimizers of ai.onnx.preview.training."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxroof.ops.activation import log_softmax_cost
from onnxroof.ops.call import Impossible, OpCost, TensorInfo, Undetermined
from onnxroof.ops.registry import cost_rule, declare, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall, Shape

PREVIEW = "ai.onnx.preview.training"

_GROUPS = {"Adagrad": 3, "Adam": 4, "Momentum": 3}
"""Tensors an optimizer keeps per weight among its inputs: X, gradient, and its state."""

declare("Adagrad", "Adam", "Momentum", domain=PREVIEW, control=(0, 1))
declare("Gradient", domain=PREVIEW)


# -- losses ----------------------------------------------------------------------------------


@shape_rule("NegativeLogLikelihoodLoss")
def nll_loss_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The shape of the labels with reduction "none", else a scalar."""
    return (call.input(0).like(_loss_shape(call)),)


@shape_rule("SoftmaxCrossEntropyLoss")
def cross_entropy_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The loss as NegativeLogLikelihoodLoss, then the log-probabilities in the shape of scores."""
    return (call.input(0).like(_loss_shape(call)), call.input(0).like())


@cost_rule("NegativeLogLikelihoodLoss")
def nll_loss_cost(call: OpCall) -> OpCost:
    """Negative log-likelihood of the labels.

    Shapes
        input [N, C, *D]    target [N, *D]    weight [C] optional    n = N · prod(D)
    Formula
        flops = n negations, plus n products with weight, plus the reduction: sum n − 1, mean n,
        weighted mean 2·(n − 1) + 1 (the sum of the losses, that of the weights, a division)
    Traffic
        Of the input only the n elements the labels name are read.
    Source
        ONNX operator reference.
    """
    reads = {0: call.input(1).elements * _element_bytes(call.input(0))}
    return OpCost(flops=_loss_flops(call), reads=reads)


@cost_rule("SoftmaxCrossEntropyLoss")
def cross_entropy_cost(call: OpCall) -> OpCost:
    """Softmax cross entropy: LogSoftmax over the classes, then negative log-likelihood.

    Shapes
        scores [N, C, *D]    labels [N, *D]    weights [C] optional    n = N · prod(D)
    Formula
        flops = n · (5·C − 1) for LogSoftmax, plus those of NegativeLogLikelihoodLoss
        transcendentals = n · (C + 1)
    Source
        ONNX operator reference.
    """
    rows = call.input(1).elements
    return log_softmax_cost(rows, call.shape(0)[1]) + OpCost(flops=_loss_flops(call))


def _loss_shape(call: OpCall) -> Shape:
    scores, labels = call.shape(0), call.shape(1)
    if len(scores) < 2 or (scores[0], *scores[2:]) != labels:
        raise Impossible(f"labels of shape {labels} do not fit scores of shape {scores}")
    return labels if call.attr("reduction", "mean") == "none" else ()


def _loss_flops(call: OpCall) -> int:
    samples = call.input(1).elements
    if not samples:
        return 0
    weighted = call.has(2)
    per_sample = samples * (2 if weighted else 1)
    reduction = call.attr("reduction", "mean")
    if reduction == "none":
        return per_sample
    if reduction == "sum":
        return per_sample + samples - 1
    return per_sample + (2 * (samples - 1) + 1 if weighted else samples)


def _element_bytes(info: TensorInfo) -> int:
    if info.dtype is None or info.dtype.bits is None:
        raise Undetermined("the element type of input 0 is not known")
    return info.dtype.bits // 8


# -- optimizers ------------------------------------------------------------------------------


@shape_rule(*_GROUPS, domain=PREVIEW)
def optimizer_shape(call: OpCall) -> Sequence[TensorInfo]:
    """The new weights, then their new states; each like the input it replaces.

    Inputs are R, T, then all weights, all gradients, all states (Adam: two of them).
    """
    groups = _groups(call)
    return tuple(info.like() for group in (groups[0], *groups[2:]) for info in group)


@cost_rule("Adagrad", domain=PREVIEW)
def adagrad_cost(call: OpCall) -> OpCost:
    """One Adagrad update of weights of n elements in all.

    Formula
        flops = 9·n: regularized gradient 2, squared-gradient sum 2, root 1, epsilon 1, step 3
        (product, division, difference); plus 3 for the decayed rate; transcendentals = n
    Source
        ONNX operator reference, ai.onnx.preview.training.
    """
    elements = _elements(call)
    return OpCost(flops=9 * elements + 3, transcendentals=elements)


@cost_rule("Momentum", domain=PREVIEW)
def momentum_cost(call: OpCall) -> OpCost:
    """One momentum update of weights of n elements in all.

    Formula
        standard: flops = 7·n: regularized gradient 2, momentum 3, step 2
        nesterov: flops = 9·n: 2 more for gradient + alpha · momentum
    Source
        ONNX operator reference, ai.onnx.preview.training.
    """
    operations = 9 if call.attr("mode", "standard") == "nesterov" else 7
    return OpCost(flops=operations * _elements(call))


@cost_rule("Adam", domain=PREVIEW)
def adam_cost(call: OpCall) -> OpCost:
    """One Adam update of weights of n elements in all.

    Formula
        flops = 15·n: regularized gradient 2, mean 3, mean square 4, root 1, epsilon 1, step 3
        (product, division, difference), final scale 1; plus per weight tensor 7 for the bias
        correction of the rate (two powers, two differences, root, product, division)
        transcendentals = n, plus 3 per weight tensor
    Source
        ONNX operator reference, ai.onnx.preview.training.
    """
    elements, tensors = _elements(call), len(_groups(call)[0])
    return OpCost(flops=15 * elements + 7 * tensors, transcendentals=elements + 3 * tensors)


def _groups(call: OpCall) -> list[tuple[TensorInfo, ...]]:
    """The inputs after R and T, split into weights, gradients and states."""
    tensors = call.given()[2:]
    count = _GROUPS[call.op_type]
    if not tensors or len(tensors) % count:
        raise Impossible(f"{len(tensors)} tensors cannot be {count} for each weight")
    size = len(tensors) // count
    return [tensors[first : first + size] for first in range(0, len(tensors), size)]


def _elements(call: OpCall) -> int:
    return sum(math.prod(info.dims) for info in _groups(call)[0])


@shape_rule("Gradient", domain=PREVIEW)
def gradient_shape(call: OpCall) -> Sequence[TensorInfo]:
    """One derivative for each tensor named in `xs`, like the input that gives its value."""
    count = len(call.attr("xs", ()))
    return tuple(call.input(position).like() for position in range(count))


@cost_rule("Gradient", domain=PREVIEW)
def gradient_cost(call: OpCall) -> OpCost:
    """Unknown: the work depends on how a runtime differentiates the graph between xs and y."""
    names = call.attributes.get("y", "")
    raise Undetermined(f"how a runtime differentiates the graph up to {names!r:.60}")
