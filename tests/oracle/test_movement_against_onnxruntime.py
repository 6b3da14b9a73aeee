"""Sizes of operators that move, select and resize, against what ONNX Runtime really returns."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxroof.bounded import lower, upper
from onnxroof.ops.slicing import sliced_size
from tests.builders import shaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.generic]

pytestmark = pytest.mark.oracle
runtime = pytest.importorskip("onnxruntime")

FIRST = "x"
"""The run-time input; all others are frozen, as in real files."""


def image(*shape: int) -> Array:
    return np.linspace(0, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def ints(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def model_of(node: onnx.NodeProto, given: Mapping[str, Array], opset: int) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(given[FIRST].dtype)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(FIRST, kind, given[FIRST].shape)],
        [helper.make_value_info(name, onnx.TypeProto()) for name in node.output],
        [numpy_helper.from_array(value, name) for name, value in given.items() if name != FIRST],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(feed))  # type: ignore[no-any-return]


def case(
    op_type: str,
    given: Mapping[str, Array],
    outputs: int = 1,
    domain: str = "",
    **attributes: object,
) -> tuple[onnx.NodeProto, Mapping[str, Array]]:
    names = [f"y{position}" for position in range(outputs)]
    return helper.make_node(op_type, list(given), names, domain=domain, **attributes), given


def contrib(
    op_type: str, given: Mapping[str, Array], outputs: int = 1, **attributes: object
) -> tuple[onnx.NodeProto, Mapping[str, Array]]:
    return case(op_type, given, outputs, "com.microsoft", **attributes)


CASES = [
    contrib(
        "CropAndResize",
        {
            FIRST: image(2, 3, 10, 12),
            "rois": np.zeros((5, 4), np.float32),
            "batch": np.zeros(5, np.int32),
            "size": np.array([4, 6], np.int32),
        },
    ),
    contrib("DynamicTimeWarping", {FIRST: image(1, 4, 6)}),
    contrib("UnfoldTensor", {FIRST: image(2, 8, 5)}, dim=1, size=3, step=2),
    contrib("Trilu", {FIRST: image(2, 8, 5), "k": np.array(1, np.int64)}),
    contrib("Pad", {FIRST: image(2, 3), "pads": ints(0, 1, 2, 3)}),
    contrib("Unique", {FIRST: np.array([2, 1, 1, 3], np.float32)}, 3),
    contrib("ExpandDims", {FIRST: image(2, 3), "axis": np.array(-1, np.int32)}),
    contrib("GatherND", {FIRST: image(2, 3, 4), "i": np.zeros((5, 2), np.int64)}),
    contrib("GridSample", {FIRST: image(2, 3, 4, 5), "grid": image(2, 6, 7, 2)}),
    case("Unique", {FIRST: image(3, 4).round()}, 4, axis=0),
    case("NonZero", {FIRST: image(3, 4).round()}),
    case("Compress", {FIRST: image(3, 4), "c": np.array([True, False, True])}, axis=0),
    case("TopK", {FIRST: image(3, 4), "k": ints(2)}, 2, axis=0),
    case("Split", {FIRST: image(7, 4)}, 3, num_outputs=3),
    case("CenterCropPad", {FIRST: image(7, 4), "s": ints(5, 9)}),
    case("Expand", {FIRST: image(3, 1), "s": ints(2, 1, 4)}),
    case("Reshape", {FIRST: image(2, 6), "s": ints(0, -1, 3)}),
    case("Pad", {FIRST: image(4, 5), "p": ints(1, -2, 0, 1)}, mode="edge"),
    case(
        "NonMaxSuppression",
        {FIRST: image(1, 6, 4), "scores": image(1, 2, 6), "most": ints(3)},
    ),
]


@pytest.mark.parametrize(("node", "given"), CASES, ids=lambda case: getattr(case, "op_type", ""))
def test_sizes_and_types_are_those_of_a_real_run(
    node: onnx.NodeProto, given: Mapping[str, Array]
) -> None:
    model = model_of(node, given, opset=18)
    graph, findings = shaped(model)
    assert not findings.problems
    for name, real in zip(node.output, run(model, {FIRST: given[FIRST]}), strict=True):
        info = graph.tensors[name]
        assert info.dtype is not None
        assert info.dtype.code == helper.np_dtype_to_tensor_dtype(real.dtype)
        assert len(info.dims) == real.ndim
        for dim, size in zip(info.dims, real.shape, strict=True):
            assert lower(dim) <= size <= upper(dim)
        if info.exact:
            assert info.shape == real.shape


def test_slices_are_those_of_a_real_run_for_any_bounds() -> None:
    names = ("start", "end", "axis", "step")
    node = helper.make_node("Slice", [FIRST, *names], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(FIRST, TensorProto.FLOAT, ["n"]),
            *(helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in names),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    chance = random.Random(1)
    extremes = (-(2**63), 2**63 - 1)
    for _ in range(2000):
        size, step = chance.randint(0, 8), chance.choice([-4, -3, -2, -1, 1, 2, 3, 5])
        start, end = (chance.choice([chance.randint(-12, 12), *extremes]) for _ in range(2))
        feed = {"start": ints(start), "end": ints(end), "axis": ints(0), "step": ints(step)}
        real = session.run(None, {FIRST: np.zeros(size, np.float32), **feed})[0]
        assert real.shape == (sliced_size(size, start, end, step),), (size, start, end, step)
