"""Pieces of a graph cost what the whole graph costs, kernel by kernel."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from onnxroof import CostFunction, GraphBuilder
from onnxroof.fusion.drawing import parse
from onnxroof.fusion.elementwise import REDUCTIONS
from onnxroof.fusion.plan import plan_kernels
from onnxroof.fusion.rules import all_rules
from onnxroof.fusion.runtimes import CSE, RUNTIMES
from onnxroof.hardware.read import load_profile
from onnxroof.latency.runtime_read import load_runtime
from onnxroof.search.draft_line import DraftLine
from onnxroof.search.pieces import (
    BRANCHING,
    JOINED,
    NO_FOLLOWERS,
    POOLS,
    STARTERS,
    Pricer,
    cuts,
)
from tests.search.spaces import dense, erf_net, mobile_net, nas_bench_201, random_cell, transformer

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxroof.builder import Tensor

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


def _counting() -> tuple[Pricer, list[int]]:
    """A pricer, and the number of nodes of each plan it makes."""
    planned: list[int] = []

    class Counting(Pricer):
        def _planned(self, cost, pieces):
            planned.append(len(cost.nodes))
            return super()._planned(cost, pieces)

    profile = load_profile("mobile-arm")
    return Counting(profile, load_runtime(profile.runtime), "vendor"), planned


def test_equal_cells_are_planned_once() -> None:
    pricer, planned = _counting()
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


def test_no_drawing_has_a_branching_operator_inside_whose_result_several_lines_read() -> None:
    # Only a pattern with such a tensor inside reaches across it; the one they draw is x − mean(x)
    used = {name for runtime in RUNTIMES.values() for name in runtime.rules}
    for name in used:
        for text in getattr(all_rules()[name], "drawings", ()):
            lines = parse(text).lines
            readers: dict[str, set[str]] = {}
            for line in lines.values():
                for argument in {item for call in line.calls for item in call.arguments}:
                    readers.setdefault(argument, set()).add(line.name)
            for argument, reading in readers.items():
                if argument in lines and len(reading) > 1:
                    assert BRANCHING.isdisjoint(lines[argument].kinds), (name, argument)


def test_no_rule_runs_a_pool_and_what_follows_it_there_in_one_kernel() -> None:
    for rule in all_rules().values():
        steps = (*getattr(rule, "then", ()), *getattr(rule, "before", ()))
        kinds = frozenset().union(*(step.kinds for step in steps))
        if POOLS & getattr(rule, "anchors", frozenset()):
            assert NO_FOLLOWERS.isdisjoint(kinds), rule.name
        if NO_FOLLOWERS & getattr(rule, "anchors", frozenset()):
            assert POOLS.isdisjoint(kinds), rule.name
        for text in getattr(rule, "drawings", ()):
            assert not any(f"{pool}(" in text for pool in POOLS - {"GlobalAveragePool"}), rule.name
    assert POOLS.isdisjoint(REDUCTIONS)


def test_a_new_cell_is_put_together_from_parts_that_others_had() -> None:
    pricer, planned = _counting()
    source = random.Random(3)
    for _ in range(300):
        pricer.price(DraftLine(nas_bench_201(random_cell(source), cells=1).draft, shares=True))
    planned.clear()
    lines = [
        DraftLine(nas_bench_201(random_cell(source), cells=1).draft, shares=True)
        for _ in range(100)
    ]
    for line in lines:
        pricer.price(line)
    # 15,625 cells, but two convolutions, a pool and a sum that takes them in some order: nine
    # tenths of what a hundred new ones consist of has been planned
    assert sum(planned) < 0.1 * sum(len(line.keys) for line in lines)


def _soup(source: random.Random) -> GraphBuilder:
    """Operators at which pieces fall into parts, in any order, reading what was made of late."""
    g = GraphBuilder()
    made = [g.input((1, 8, 8, 8))]
    for _ in range(source.randint(3, 25)):
        x = source.choice(made[-4:])
        steps = [
            lambda x=x: g.relu(x),
            lambda x=x: g.conv(x, 8, source.choice((1, 3))),
            lambda x=x: g.batch_norm(x),
            lambda x=x: g.add(x, source.choice(made[-5:])),
            lambda x=x: g.average_pool(x, 3, padding=1),
            lambda x=x: g.max_pool(x, 3, padding=1),
            lambda x=x: g.relu6(x),
            lambda x=x: g.batch_norm(g.conv(g.relu(x), 8, 3)),
            lambda x=x: g.op("LeakyRelu", x, alpha=0.1),
        ]
        made.append(source.choice(steps)())
    y = made[-1]
    if source.random() < 0.5:
        y = g.linear(g.flatten(g.global_average_pool(y)), 10)
    g.output(y)
    return g


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_graphs_that_branch_anyhow_cost_what_the_whole_costs(runtime: str) -> None:
    source = random.Random(11)
    cost = CostFunction("v100", METRICS, runtime=runtime)
    for _ in range(25):
        graph = _soup(source)
        whole = cost._in_one(cost.analyze(graph))
        assert cost(graph) == whole, graph.draft.reads


def test_parts_that_one_kernel_reaches_across_are_one() -> None:
    # "basic" runs elementwise work in one kernel: both readers of the first activation's result
    # are in it, so it is no place to cut at though it has two
    g = GraphBuilder()
    x = g.relu(g.max_pool(g.input((1, 8, 16, 16)), 3, padding=1))
    y = g.add(g.op("LeakyRelu", x, alpha=0.1), x)
    g.output(g.max_pool(y, 3, padding=1))
    line = DraftLine(g.draft, shares=True)
    whole = CostFunction("v100", runtime="basic").analyze(g)
    pricer = Pricer(load_profile("v100"), load_runtime("basic"), "vendor")
    assert [kernel.op_type for kernel in whole.kernels.kernels] == [
        "MaxPool", "Relu+LeakyRelu+Add", "MaxPool",
    ]  # fmt: skip
    assert pricer.price(line).kernel_seconds == whole.rooflines[0].kernel_seconds


def _twice_clipped(g: GraphBuilder, x: Tensor) -> list[Tensor]:
    """Equal but for the constants, which are two of one value each."""
    return [g.relu6(x), g.relu6(x)]


def _sums_of_twins(g: GraphBuilder, x: Tensor) -> list[Tensor]:
    a, b = g.relu(x), g.relu(x)
    return [g.add(a, b), g.add(b, b)]


def _sums_of_views(g: GraphBuilder, x: Tensor) -> list[Tensor]:
    y = g.flatten(x)
    return [g.add(x, x), g.add(y, y)]


def _sums_of_a_view_that_changes_nothing(g: GraphBuilder, x: Tensor) -> list[Tensor]:
    y = g.flatten(x)
    return [g.add(y, y), g.add(z := g.flatten(y), z)]


def _dead_twin(g: GraphBuilder, x: Tensor) -> list[Tensor]:
    g.relu(x)
    a = g.conv(x, 8, 1)
    return [g.add(a, g.relu(x))]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "made",
    [_twice_clipped, _sums_of_twins, _sums_of_views, _sums_of_a_view_that_changes_nothing,
     _dead_twin],
)  # fmt: skip
def test_equal_nodes_run_once_in_whatever_part_they_stand(
    made: Callable[[GraphBuilder, Tensor], list[Tensor]], runtime: str
) -> None:
    g = GraphBuilder()
    for result in made(g, g.input((1, 8, 8, 8))):
        g.output(result)
    cost = CostFunction("v100", METRICS, runtime=runtime)
    assert cost(g) == cost._in_one(cost.analyze(g))


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
