"""What holds for every model under every runtime."""

from __future__ import annotations

import pytest

from onnxroof.bounded import upper
from onnxroof.fusion.plan import KernelPlan, plan_kernels
from onnxroof.fusion.runtimes import RUNTIMES
from tests.fusion.plans import NAMES, model_cost


@pytest.fixture(params=NAMES)
def plans(request: pytest.FixtureRequest) -> list[KernelPlan]:
    cost = model_cost(request.param)
    return [plan_kernels(cost, runtime) for runtime in RUNTIMES]


def test_invariants_hold(plans: list[KernelPlan]) -> None:
    for plan in plans:
        assert_each_live_node_is_in_one_kernel(plan)
        assert_kernels_run_after_what_they_read(plan)
        assert_only_inner_tensors_are_elided(plan)
        assert_work_is_kept(plan)
        assert_traffic_never_grows(plan)


def assert_each_live_node_is_in_one_kernel(plan: KernelPlan) -> None:
    launched = [index for kernel in plan.kernels for index in kernel.nodes]
    removed = [node.index for node in plan.removed]
    assert sorted(launched + removed) == list(range(len(plan.cost.nodes)))
    assert [kernel.index for kernel in plan.kernels] == list(range(len(plan.kernels)))
    assert all(kernel.anchor in kernel.nodes for kernel in plan.kernels)


def assert_kernels_run_after_what_they_read(plan: KernelPlan) -> None:
    """So there is no cycle between kernels."""
    made_by = {
        name: kernel.index
        for kernel in plan.kernels
        for index in kernel.nodes
        for name in plan.cost.nodes[index].node.outputs
    }
    for kernel in plan.kernels:
        for index in kernel.nodes:
            for name in plan.cost.nodes[index].node.inputs:
                tensor = plan.views.get(name, name)
                assert made_by.get(tensor, -1) <= kernel.index, (plan.runtime, kernel.name, name)


def assert_only_inner_tensors_are_elided(plan: KernelPlan) -> None:
    readers: dict[str, set[int]] = {}
    for kernel in plan.kernels:
        for index in kernel.nodes:
            node = plan.cost.nodes[index].node
            captured = [name for _, body in node.subgraphs for name in body.captures]
            for name in (*node.inputs, *captured):
                readers.setdefault(plan.views.get(name, name), set()).add(kernel.index)
    kept = {plan.views.get(name, name) for name in plan.cost.shaped.graph.outputs}
    for kernel in plan.kernels:
        for name in kernel.elided:
            assert readers[name] == {kernel.index}
            assert name not in kept
            assert name not in plan.parts


def assert_work_is_kept(plan: KernelPlan) -> None:
    removed = {node.index: node for node in plan.removed}
    done = ("dead", "common", "folded")  # a folded product of constants ran before
    gone = {index for index, node in removed.items() if node.reason.startswith(done)}
    before = [node for node in plan.cost.nodes if node.node.index not in gone]
    assert plan.macs == sum(node.macs or 0 for node in before)
    flops = sum(node.flops or 0 for node in before)
    assert upper(plan.flops) <= upper(flops)
    folding = any("folded into" in kernel.note for kernel in plan.kernels)
    quantized = any(kernel.rule == "integer-kernel" for kernel in plan.kernels)
    bodies = any(kernel.bodies for kernel in plan.kernels)
    if not (folding or quantized or bodies):
        launched = [plan.cost.nodes[i] for k in plan.kernels for i in k.nodes]
        assert plan.flops == sum(node.flops or 0 for node in launched)


def assert_traffic_never_grows(plan: KernelPlan) -> None:
    for kernel in plan.kernels:
        alone = [plan.cost.nodes[index].traffic_bytes for index in kernel.nodes]
        together = kernel.traffic_bytes
        if together is None:
            assert None in alone
        elif None not in alone:
            # folding may add a bias of one value a channel, less than what it saves
            assert upper(together) <= upper(sum(part or 0 for part in alone))
    whole = sum(node.traffic_bytes or 0 for node in plan.cost.nodes)
    assert upper(plan.traffic_bytes) <= upper(whole)
