"""What a memo keeps: one record of equal tensors, one call of equal nodes, and nothing twice."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import onnxroof
from onnxroof.graph.types import Constant, DType
from onnxroof.ops.call import OpCall
from onnxroof.shapes import Memo
from tests.builders import model

MODELS = Path(__file__).parents[1] / "models"

REPEATED = """agraph (float[8] x, float[8] y) => (float[8] a, float[8] b) {
    a = Add(x, x)
    b = Add(x, y)
}"""

FILLED = """agraph (float[2,3] x) => (float[] y) {
    s = Shape(x)
    z = ConstantOfShape <value = float[1] {2.0}> (s)
    y = Add(x, z)
}"""


@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v2_qdq", "swin_t_dynamo", "vit_b_16"])
def test_a_model_seen_before_adds_nothing(name: str) -> None:
    memo = Memo()

    def sizes() -> tuple[int, int, int]:
        onnxroof.analyze(MODELS / f"{name}.onnx", memo=memo)
        return len(memo.calls), len(memo.seen), len(memo.tensors)

    assert sizes() == sizes()


def test_nodes_with_equal_small_attribute_tensors_share_their_call() -> None:
    memo = Memo()
    first, second = (onnxroof.analyze(model(FILLED), memo=memo) for _ in range(2))
    assert first.nodes[1].node is not second.nodes[1].node
    assert first.nodes[1].call is second.nodes[1].call


def test_a_tensor_read_twice_is_not_two_equal_tensors() -> None:
    # both sums read two records of float[8], which are one; the first reads 32 bytes, not 64
    twice, apart = onnxroof.analyze(model(REPEATED), memo=Memo()).nodes
    assert twice.call.inputs == apart.call.inputs
    assert (twice.input_bytes, apart.input_bytes) == (8 * 4, 2 * 8 * 4)


def test_a_full_memo_starts_afresh_and_nothing_else_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = MODELS / "swin_t_dynamo.onnx"
    roomy = onnxroof.analyze(path, "v100", memo=Memo()).to_dict()
    monkeypatch.setattr("onnxroof.shapes.MOST_CALLS", 5)
    memo = Memo()
    assert onnxroof.analyze(path, "v100", memo=memo).to_dict() == roomy
    assert max(len(memo.calls), len(memo.seen), len(memo.tensors)) <= 5


def test_a_full_memo_keeps_nothing_of_earlier_models_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Prices of kernels are kept by the calls in them: they go with the calls
    def normalizations() -> int:
        gc.collect()
        calls = [each for each in gc.get_objects() if type(each) is OpCall]
        return sum(each.op_type == "LayerNormalization" for each in calls)

    monkeypatch.setattr("onnxroof.shapes.MOST_CALLS", 5)
    memo, before = Memo(), normalizations()
    onnxroof.analyze(MODELS / "swin_t_dynamo.onnx", "v100", memo=memo)
    onnxroof.analyze(MODELS / "mobilenet_v2.onnx", "v100", memo=memo)
    assert normalizations() == before


def test_constants_are_equal_when_their_kept_bytes_are() -> None:
    def constant(raw: bytes | None, dtype: DType = DType.INT32) -> Constant:
        return Constant("c", dtype, (1,), 4, raw=raw)

    two = (2).to_bytes(4, "little")
    assert constant(two) == constant(two)
    assert hash(constant(two)) == hash(constant(two))
    assert constant(two).identity is not constant(two).identity
    assert constant(two) != constant(bytes(4))
    assert constant(two) != constant(two, DType.FLOAT)
    assert constant(None) != constant(None)  # left in the file: nobody knows
