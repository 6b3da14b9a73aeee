"""`CostFunction`: metrics, executors, threads, streams, errors on the way."""

from __future__ import annotations

import pickle
import random
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import count, islice
from typing import TYPE_CHECKING

import onnx
import pytest

from onnxroof import (
    CostFunction,
    GraphBuilder,
    ModelError,
    OnnxroofError,
    UnsupportedOperatorError,
    UsageError,
    analyze,
)
from onnxroof.search.cost_function import METRICS
from tests.search.spaces import nas_bench_201, random_cell

if TYPE_CHECKING:
    from pathlib import Path


def candidates(number: int) -> list[GraphBuilder]:
    source = random.Random(11)
    return [nas_bench_201(random_cell(source), cells=1) for _ in range(number)]


def layer(batch: int) -> GraphBuilder:
    g = GraphBuilder()
    g.output(g.linear(g.input((batch, 512)), 512))
    return g


def test_a_tuple_of_metrics_gives_a_tuple() -> None:
    g = layer(4)
    names = tuple(name for name in METRICS if name != "model_bytes")
    values = CostFunction("v100", names)(g)
    analysis = analyze(g, "v100")
    named = dict(zip(names, values, strict=True))
    assert named["latency_seconds"] == analysis.rooflines[0].latency_seconds
    assert named["bound_seconds"] == analysis.rooflines[0].bound_seconds
    assert named["throughput"] == 4 / named["latency_seconds"]
    assert named["macs"] == 4 * 512 * 512
    # the weights and the bias; its input and its output are alive together
    assert named["peak_memory_bytes"] == 4 * (512 * 512 + 512) + 4 * 2 * 4 * 512
    assert CostFunction("v100", ["macs"])(g) == (4 * 512 * 512,)


def test_paths_bytes_protos_and_graphs_cost_the_same(tmp_path: Path) -> None:
    g = layer(2)
    proto = g.to_onnx()
    path = tmp_path / "layer.onnx"
    onnx.save(proto, path)
    cost = CostFunction("mobile-arm", ("latency_seconds", "flops", "parameters"))
    assert len({cost(source) for source in (g, proto, proto.SerializeToString(), path)}) == 1
    assert CostFunction("v100", "model_bytes")(str(path)) == path.stat().st_size + 4 * 512 * 513


def test_precision_and_batch_reach_the_analysis() -> None:
    g = layer(2)
    half, full = CostFunction("v100", "weight_bytes", precision="fp16"), CostFunction("v100")
    assert half.analyze(g).kernels.weight_bytes * 2 == full.analyze(g).kernels.weight_bytes
    with pytest.raises(OnnxroofError):
        CostFunction("v100", dims={"batch": 3})(g)
    with pytest.raises(UsageError, match="is not one of"):
        CostFunction("v100", "beauty")
    with pytest.raises(UsageError):
        CostFunction("v100", runtime="nobody's")
    with pytest.raises(UsageError, match="no file"):
        CostFunction("v100", "model_bytes")(g)


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_many_gives_the_same_as_one_by_one_on_any_executor(pool: type) -> None:
    graphs = candidates(20)
    cost = CostFunction("v100", ("latency_seconds", "peak_memory_bytes"))
    alone = [cost(graph) for graph in graphs]
    with pool(2) as executor:
        assert list(cost.many(graphs, executor, chunk=3)) == alone
        assert list(cost.many((g.to_onnx() for g in graphs), executor, chunk=3)) == alone


def test_many_has_processes_of_its_own() -> None:
    graphs = candidates(5)
    cost = CostFunction("mobile-arm")
    assert list(cost.many(graphs)) == [cost(graph) for graph in graphs]


def test_many_takes_an_endless_stream() -> None:
    cost = CostFunction("v100", "macs")
    with ThreadPoolExecutor(2) as executor:
        priced = cost.many((layer(batch) for batch in count(1)), executor, chunk=2)
        assert list(islice(priced, 5)) == [batch * 512 * 512 for batch in range(1, 6)]


def test_threads_share_a_cost_function() -> None:
    graphs = candidates(16)
    alone = [CostFunction("v100")(graph) for graph in graphs]
    shared = CostFunction("v100")
    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(shared, graphs * 4)) == alone * 4


def test_one_bad_candidate_ends_a_batch_or_stands_in_its_place() -> None:
    cost = CostFunction("v100", "macs")
    models = [layer(1), b"nonsense", layer(2)]
    with ProcessPoolExecutor(1) as executor:
        with pytest.raises(ModelError, match="not an ONNX model"):
            list(cost.many(models, executor))
        first, error, last = cost.many(models, executor, errors="return")
    assert (first, last) == (512 * 512, 2 * 512 * 512)
    assert isinstance(error, ModelError)
    assert "not an ONNX model" in str(error)


def test_a_candidate_that_cannot_be_counted_is_refused_unless_asked() -> None:
    g = layer(1)
    proto = g.to_onnx()
    proto.graph.node.append(onnx.helper.make_node("Mystery", ["input"], ["z"], domain="acme"))
    proto.opset_import.append(onnx.helper.make_opsetid("acme", 1))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("z", 1, [1]))
    with pytest.raises(UnsupportedOperatorError, match="Mystery"):
        CostFunction("v100", "macs")(proto)
    assert CostFunction("v100", "macs", strict=False)(proto) == 512 * 512


def test_it_pickles_without_what_it_remembers() -> None:
    cost = CostFunction("v100", ("latency_seconds", "flops"), precision="fp16", strict=False)
    graphs = candidates(3)
    size = len(pickle.dumps(cost))
    values = [cost(graph) for graph in graphs]
    assert len(pickle.dumps(cost)) == size
    assert [pickle.loads(pickle.dumps(cost))(graph) for graph in graphs] == values


def test_errors_travel_between_processes() -> None:
    error = UnsupportedOperatorError(("A",), ("because",))
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.operators) == (str(error), ("A",))
