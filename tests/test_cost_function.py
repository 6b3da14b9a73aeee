from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path

import pytest

import onnxroof
from onnxroof.errors import (
    UnboundDimensionError,
    UnknownProfileError,
    UnsupportedOperatorError,
    UsageError,
)
from onnxroof.search.cost_function import METRICS, CostFunction
from tests.builders import model

MODELS = Path(__file__).parents[1] / "models"
MATMUL = "agraph (float[N,8] x, float[8,4] w) => (float y) { y = MatMul(x, w) }"


def test_a_candidate_has_a_price() -> None:
    # 2·8·4 MACs for a batch of 2
    cost = CostFunction("v100", "macs", dims={"N": 2})
    assert cost(model(MATMUL)) == 64


def test_the_price_is_that_of_an_analysis() -> None:
    path = MODELS / "mobilenet_v2.onnx"
    analysis = onnxroof.analyze(path, "10980xe")
    expected = {
        "latency_seconds": analysis.rooflines[0].latency_seconds,
        "traffic_bytes": analysis.kernels.traffic_bytes,
        "peak_memory_bytes": analysis.memory.peak_activation_bytes + analysis.totals.weight_bytes,
        "peak_activation_bytes": analysis.memory.peak_activation_bytes,
        "flops": analysis.totals.flops,
        "macs": analysis.totals.macs,
        "parameters": analysis.totals.parameters,
        "weight_bytes": analysis.totals.weight_bytes,
    }
    assert set(expected) <= set(METRICS)
    cost = CostFunction("10980xe", tuple(expected))
    assert cost(path) == tuple(expected.values())


def test_paths_bytes_and_protos_have_one_price() -> None:
    cost = CostFunction("10980xe", dims={"N": 2})
    proto = model(MATMUL)
    assert cost(proto) == cost(proto.SerializeToString())


def test_one_metric_gives_a_number_and_several_a_tuple() -> None:
    assert CostFunction("v100", "flops", dims={"N": 1})(model(MATMUL)) == 64
    assert CostFunction("v100", ["flops", "macs"], dims={"N": 1})(model(MATMUL)) == (64, 32)


def test_the_same_candidate_has_the_same_price_again() -> None:
    cost = CostFunction("v100", tuple(METRICS))
    path = MODELS / "squeezenet1_1.onnx"
    assert len({cost(path) for _ in range(3)}) == 1
    assert CostFunction("v100", tuple(METRICS))(path) == cost(path)


def test_sizes_precision_and_figures_matter() -> None:
    path = MODELS / "vgg16.onnx"

    def latency(**how: object) -> float:
        cost = CostFunction("10980xe", **how)  # type: ignore[arg-type]
        price = cost(path)
        assert isinstance(price, float)
        return price

    assert latency(peak="sustained") > latency()
    half, whole = (
        CostFunction("10980xe", "peak_activation_bytes", precision=precision)(path)
        for precision in ("fp16", "fp32")
    )
    assert half * 2 == whole  # type: ignore[operator]


def test_an_uncounted_operator_is_refused_since_it_would_look_cheap() -> None:
    proto = model(
        "agraph (float[2,8] x, float[8,4] w) => (float[] y) { t = MatMul(x, w) y = my.Foo(t) }",
        opsets={"my": 1},
    )
    with pytest.raises(UnsupportedOperatorError, match=r"'my\.Foo' \(1 node\)") as caught:
        CostFunction("v100", "macs")(proto)
    assert caught.value.operators == ("my.Foo",)
    assert CostFunction("v100", "macs", strict=False)(proto) == 64


def test_what_cannot_be_priced_is_an_error() -> None:
    with pytest.raises(UsageError, match="'speed' is not one of latency_seconds"):
        CostFunction("v100", "speed")
    with pytest.raises(UsageError, match="precision 'fp12'"):
        CostFunction("v100", precision="fp12")
    with pytest.raises(UnknownProfileError, match="did you mean 'v100'"):
        CostFunction("v10")
    with pytest.raises(UnboundDimensionError):
        CostFunction("v100")(model("agraph (float[1,K] x) => (float y) { y = Relu(x) }"))


def test_an_error_leaves_the_function_usable() -> None:
    cost = CostFunction("v100", "macs", dims={"N": 2})
    with pytest.raises(onnxroof.OnnxroofError):
        cost(b"nonsense")
    assert cost(model(MATMUL)) == 64


def test_a_cost_function_travels_to_another_process() -> None:
    cost = CostFunction("mobile-arm", ["latency_seconds", "macs"], dims={"N": 3}, strict=False)
    cost(model(MATMUL))
    for other in (pickle.loads(pickle.dumps(cost)), copy.deepcopy(cost)):
        assert other(model(MATMUL)) == cost(model(MATMUL))
        assert other.hardware == cost.hardware


def test_operators_seen_once_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = CostFunction("v100", "macs", dims={"N": 2})
    cost(model(MATMUL))
    monkeypatch.setattr("onnxroof.shapes._Walker._size", pytest.fail)
    assert cost(model(MATMUL)) == 64


def test_threads_may_share_a_cost_function() -> None:
    cost = CostFunction("10980xe", "flops", dims={"N": 2})
    wrong: list[object] = []

    def work(columns: int) -> None:
        text = MATMUL.replace("8,4", f"8,{columns}")
        wrong.extend(
            price for price in (cost(model(text)) for _ in range(10)) if price != 32 * columns
        )

    threads = [threading.Thread(target=work, args=(columns,)) for columns in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_loop_of_unknown_trips_is_refused_like_what_cannot_be_counted() -> None:
    # 8 · 8 · 8 MACs for each of nobody knows how many trips
    proto = model("""agraph (float[8,8] x, int64 m) => (float[8,8] y) <bool yes = {1}> {
        y = Loop(m, yes, x) <body = b (int64 i, bool go, float[8,8] h)
            => (bool on, float[8,8] next) { on = Identity(go) next = MatMul(h, h) }> }""")
    with pytest.raises(UnsupportedOperatorError, match="one trip is counted"):
        CostFunction("v100", "macs")(proto)
    assert CostFunction("v100", "macs", strict=False)(proto) == 512
