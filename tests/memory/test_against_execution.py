"""The liveness peak of an execution, step by step, is exactly ours.

onnx's reference evaluator runs the nodes one by one on small inputs; arrays are freed after their
last use, an input's as any other, an output's never. What derives from weights or shapes alone is
not counted, as a runtime computes it before the first inference.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxroof.bindings import Bindings
from onnxroof.cost import count_costs
from onnxroof.fusion.plan import plan_kernels
from onnxroof.graph.load import load_model
from onnxroof.memory import plan_memory
from onnxroof.shapes import infer_shapes
from tests.fusion.plans import MODELS

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALL = {"batch": 1, "sequence": 5, "past_sequence": 4, "past_sequence + 1": 5}
IMAGES = 64

EXECUTED = (
    "bigru_2x256_dynamo",
    "convnext_tiny",
    pytest.param("deepspeech2", marks=pytest.mark.slow),
    "efficientnet_b0",
    "light_densenet121",
    "lstm_2x512_dynamic",
    "minilm_l6_dynamo",
    "mobilenet_v2_unfused",
    "mobilenet_v3_large",
    "resnet50_dynamo",
    "resnet50_unfused",
    "squeezenet1_1",
    pytest.param("whisper_tiny_decoder", marks=pytest.mark.slow),
)


def weights_filled(name: str) -> onnx.ModelProto:
    """A shipped model with random weights in place of those left out."""
    sys.path.insert(0, str(MODELS))
    try:
        from weightless import fill_missing_weights
    finally:
        sys.path.remove(str(MODELS))
    proto = onnx.load(MODELS / f"{name}.onnx", load_external_data=False)
    fill_missing_weights(proto)
    return proto


def small_model(name: str) -> onnx.ModelProto:
    """The model with weights, free dimensions small and images of 64×64."""
    proto = weights_filled(name)
    for item in proto.graph.input:
        dims = item.type.tensor_type.shape.dim
        for dim in dims:
            if dim.HasField("dim_param"):
                dim.dim_value = SMALL.get(dim.dim_param, 1)
        if len(dims) == 4 and dims[1].dim_value == 3:
            dims[2].dim_value = dims[3].dim_value = IMAGES
    return proto


def inputs_of(proto: onnx.ModelProto) -> dict[str, NDArray[np.generic]]:
    made = {}
    weights = {tensor.name for tensor in proto.graph.initializer}
    for item in proto.graph.input:
        if item.name in weights:
            continue
        kind = item.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        made[item.name] = np.ones([dim.dim_value for dim in kind.shape.dim], dtype)
    return made


def executed_peak(proto: onnx.ModelProto) -> int:
    """Most bytes alive while one node runs."""
    session = ReferenceEvaluator(proto)
    values = dict(session.rt_inits_)
    known = {"", *values}
    alive = inputs_of(proto)
    last = {name: step for step, node in enumerate(session.rt_nodes_) for name in node.input}
    for item in proto.graph.output:
        last[item.name] = len(session.rt_nodes_)
    alive = {name: array for name, array in alive.items() if name in last}
    peak = 0
    for step, node in enumerate(session.rt_nodes_):
        with np.errstate(all="ignore"):  # random weights: variances below zero
            results = node.run(
                *[values.get(name, alive.get(name)) if name else None for name in node.input]
            )
        folded = node.op_type in ("Shape", "Size") or known.issuperset(node.input)
        for name, result in zip(node.output, results, strict=False):
            if folded:
                known.add(name)
                values[name] = result
            elif name:
                alive[name] = result
        if not folded:
            peak = max(peak, sum(array.nbytes for array in alive.values()))
        for name in {*node.input, *node.output}:
            if last.get(name, -1) <= step:
                alive.pop(name, None)
    return peak


@pytest.mark.parametrize("name", EXECUTED)
def test_our_peak_is_that_of_the_execution(name: str) -> None:
    proto = small_model(name)
    shaped, _ = infer_shapes(load_model(proto).graph, Bindings.of({}))
    plan = plan_memory(plan_kernels(count_costs(shaped)))
    assert plan.peak_activation_bytes == executed_peak(proto)
