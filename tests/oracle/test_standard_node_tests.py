"""The standard's own tests: what it expects of every operator, sized here without running it.

Shapes of outputs and of intermediate values are taken out of each model; inputs other than the
first that are small integers or floats become initializers, as they are in real models. Then every
output must have the expected shape and type, or bounds that hold, or be said to be unknown.
"""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxroof.bindings import Bindings
from onnxroof.bounded import BoundedInt, lower
from onnxroof.graph.load import load_model
from onnxroof.graph.types import DTYPE_BY_CODE
from onnxroof.shapes import infer_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    Case = tuple[str, onnx.ModelProto, list[object], list[object]]

pytestmark = pytest.mark.oracle

LARGEST_FROZEN = 64
FROZEN_TYPES = {"int64", "int32", "float32"}


def node_cases() -> Iterator[Case]:
    """The cases that the standard generates, one or more an operator."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    for case in cases:
        if case.model is not None:
            inputs, outputs = case.data_sets[0]
            yield case.name, case.model, list(inputs), list(outputs)


def stored_cases() -> Iterator[Case]:
    """The models that come with the standard's package, with the data they expect."""
    root = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(root.glob("*/*/model.onnx")):
        data = path.parent / "test_data_set_0"
        yield (
            f"{path.parent.parent.name}/{path.parent.name}",
            onnx.load(path, load_external_data=False),
            [tensor(file) for file in sorted(data.glob("input_*.pb"), key=position)],
            [tensor(file) for file in sorted(data.glob("output_*.pb"), key=position)],
        )


def position(file: Path) -> int:
    return int(file.stem.rpartition("_")[2])


def tensor(file: Path) -> object:
    proto = TensorProto()
    proto.ParseFromString(file.read_bytes())
    return proto if proto.data_type else None


def expected(value: object) -> tuple[int, tuple[int, ...]] | None:
    """(element type, shape) of a tensor; None for sequences, maps and absent values."""
    if isinstance(value, TensorProto):
        return value.data_type, tuple(value.dims)
    if isinstance(value, list | tuple | dict) or value is None:
        return None
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        return TensorProto.STRING, array.shape
    return helper.np_dtype_to_tensor_dtype(array.dtype), array.shape


def as_in_real_models(case: Case) -> onnx.ModelProto:
    """The case with sizes taken out and its small further inputs frozen."""
    _, source, inputs, _ = case
    proto = onnx.ModelProto()
    proto.CopyFrom(source)
    del proto.graph.value_info[:]
    for output in proto.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    known = {item.name for item in proto.graph.initializer}
    given = [item for item in proto.graph.input if item.name not in known]
    for index, (item, value) in enumerate(zip(given, inputs, strict=False)):
        if not index or not isinstance(value, np.ndarray | np.generic | TensorProto):
            continue
        array = (
            numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
        )
        if array.size <= LARGEST_FROZEN and array.dtype.name in FROZEN_TYPES:
            proto.graph.initializer.append(numpy_helper.from_array(array, item.name))
            proto.graph.input.remove(item)
    return proto


def verdicts(case: Case) -> Iterator[tuple[str, str]]:
    """(verdict, what was seen) of every tensor a case makes."""
    proto = as_in_real_models(case)
    model = load_model(proto)
    shaped, _ = infer_shapes(model.graph, Bindings.of())
    for item, value in zip(proto.graph.output, case[3], strict=False):
        wanted = expected(value)
        info = shaped.tensors.get(item.name)
        if wanted is None or info is None:
            continue
        code, shape = wanted
        seen = f"{case[0]}: {item.name} expected {shape}, got {info}"
        if info.shape is None:
            yield "undetermined", seen
        elif (
            len(info.shape) != len(shape)
            or not all(map(holds, info.shape, shape))
            or info.dtype is not DTYPE_BY_CODE[code]
        ):
            yield "wrong", seen
        else:
            bounded = any(isinstance(dim, BoundedInt) for dim in info.shape)
            yield "bounded" if bounded else "right", seen


def holds(dim: int, size: int) -> bool:
    return lower(dim) <= size <= int(dim)


@pytest.mark.parametrize(("cases", "fewest_right"), [(node_cases, 0.96), (stored_cases, 0.95)])
def test_no_case_of_the_standard_is_sized_wrong(cases: object, fewest_right: float) -> None:
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for case in cases():  # type: ignore[operator]
        found = list(verdicts(case))
        kinds = {verdict for verdict, _ in found}
        wrong += [seen for verdict, seen in found if verdict == "wrong"]
        for kind in ("wrong", "undetermined", "bounded", "right"):
            if kind in kinds:
                counts[kind] += 1
                break
    assert wrong == []
    # Undetermined or bounded: what only data tell (Unique, StringSplit, ImageDecoder …), and sizes
    # that are a case's first input (ConstantOfShape, windows).
    assert counts["right"] >= fewest_right * sum(counts.values()), counts
