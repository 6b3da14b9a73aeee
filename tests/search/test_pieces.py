"""Pieces of a graph cost what the whole graph costs, kernel by kernel."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from onnxroof import CostFunction, GraphBuilder
from onnxroof.fusion.plan import plan_kernels
from onnxroof.fusion.rules import all_rules
from onnxroof.fusion.runtimes import CSE, RUNTIMES
from onnxroof.hardware.read import load_profile
from onnxroof.latency.runtime_read import load_runtime
from onnxroof.search.draft_line import DraftLine
from onnxroof.search.pieces import JOINED, STARTERS, Pricer, cuts
from tests.search.spaces import dense, erf_net, mobile_net, nas_bench_201, random_cell, transformer

if TYPE_CHECKING:
    from collections.abc import Callable

METRICS = (
    "latency_seconds", "bound_seconds", "throughput", "traffic_bytes", "kernels", "flops", "macs",
    "parameters", "weight_bytes", "peak_activation_bytes", "peak_memory_bytes",
)  # fmt: skip


def _networks() -> list[GraphBuilder]:
    source = random.Random(7)
    graphs = [nas_bench_201(random_cell(source), cells=3) for _ in range(25)]
    for excite in (False, True):
        for _ in range(4):
            blocks = [
                (source.choice((1, 3, 6)), source.choice((16, 24)), source.choice((3, 5)),
                 source.choice((1, 1, 2)))
                for _ in range(6)
            ]  # fmt: skip
            graphs.append(mobile_net(blocks, excite=excite))
    graphs += [dense([4, 8]), dense([8, 8, 4]), transformer(2, 64, 4)]
    graphs += [erf_net([0.5, 0.25, 0.5]), erf_net([0.25, 0.5])]
    return graphs


NETWORKS = _networks()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_metric_is_that_of_the_whole_analysis(runtime: str) -> None:
    cost = CostFunction("v100", METRICS, runtime=runtime)
    for graph in NETWORKS:
        priced = cost(graph)
        whole = cost._in_one(cost.analyze(graph))
        assert priced == whole, graph


@pytest.mark.parametrize("precision", ["", "fp16"])
def test_a_file_is_priced_in_pieces_to_the_same_figures(precision: str) -> None:
    cost = CostFunction("mobile-arm", METRICS, precision=precision)
    for graph in NETWORKS[::3]:
        proto = graph.to_onnx()
        assert cost(proto) == cost(graph) == cost._in_one(cost.analyze(proto)), graph


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_kernel_takes_the_time_it_takes_in_the_whole(runtime: str) -> None:
    profile = load_profile("mobile-arm")
    pricer = Pricer(profile, load_runtime(runtime), "vendor")
    whole = CostFunction(profile, runtime=runtime)
    for graph in NETWORKS[:30]:
        line = DraftLine(graph.draft, shares=CSE in RUNTIMES[runtime].folds)
        times = whole.analyze(graph).rooflines[0]
        assert pricer.price(line).kernel_seconds == times.kernel_seconds


def test_equal_cells_are_planned_once() -> None:
    planned: list[int] = []

    class Counting(Pricer):
        def _planned(self, cost, pieces):
            planned.append(len(cost.nodes))
            return super()._planned(cost, pieces)

    profile = load_profile("mobile-arm")
    pricer = Counting(profile, load_runtime(profile.runtime), "vendor")
    cell = ("3x3", "1x1", "3x3", "skip", "pool", "3x3")
    line = DraftLine(nas_bench_201(cell, cells=5).draft, shares=True)
    pricer.price(line)
    # of the three stages' five cells one each is new; the rest of the network stands once
    assert sum(planned) < 0.4 * len(line.keys)
    pricer.price(DraftLine(nas_bench_201(cell, cells=5).draft, shares=True))
    assert len(planned) == 1


def test_what_one_price_costs_does_not_depend_on_what_was_priced_before() -> None:
    fresh = [CostFunction("mobile-arm")(graph) for graph in NETWORKS[:10]]
    used = CostFunction("mobile-arm")
    for graph in reversed(NETWORKS[:10]):
        used(graph)
    assert [used(graph) for graph in NETWORKS[:10]] == fresh


def _starts_alone(text: str) -> bool:
    return not any(f"{operator}(" in text for operator in STARTERS)


def test_no_rule_puts_a_starter_behind_other_work() -> None:
    for rule in all_rules().values():
        steps = (*getattr(rule, "then", ()), *getattr(rule, "before", ()))
        assert not any(STARTERS & step.kinds for step in steps), rule.name
        if STARTERS & getattr(rule, "anchors", frozenset()):
            before = frozenset().union(*(step.kinds for step in rule.before))
            assert before <= JOINED, rule.name


def test_no_drawing_of_a_runtime_has_a_starter_inside() -> None:
    used = {name for runtime in RUNTIMES.values() for name in runtime.rules}
    for name in used:
        assert all(map(_starts_alone, getattr(all_rules()[name], "drawings", ()))), name


def residual(after: Callable[[GraphBuilder, object], object]) -> GraphBuilder:
    g = GraphBuilder()
    x = g.conv(g.input((1, 8, 16, 16)), 8, 3)
    x = g.add(x, g.conv(g.relu(x), 8, 3))
    g.output(after(g, x))
    return g


def test_an_activation_that_joins_the_addition_before_it_is_not_cut_off() -> None:
    # TensorRT runs Add and Relu in one kernel: the sum has a single reader
    graph = residual(lambda g, x: g.conv(g.relu(x), 8, 3))
    line = DraftLine(graph.draft, shares=True)
    assert len(cuts(line)) > 1
    plan = plan_kernels(CostFunction("v100").analyze(graph).cost, "tensorrt")
    pricer = Pricer(load_profile("v100"), load_runtime("tensorrt"), "vendor")
    assert len(pricer.price(line).kernel_seconds) == len(plan.kernels)
