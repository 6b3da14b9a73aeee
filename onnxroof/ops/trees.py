"""ai.onnx.ml tree ensembles: from the root of every tree to one of its leaves.

How deep a row falls depends on its values, so comparisons lie between the sums of the shallowest
and of the deepest leaves of all trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from onnxroof.bounded import interval, largest, lower, upper
from onnxroof.graph.types import Constant, DType
from onnxroof.ops.call import Impossible, OpCost, TensorInfo
from onnxroof.ops.classical_ml import (
    class_labels,
    list_attribute,
    post_transform,
    rows_and_features,
)
from onnxroof.ops.registry import ML, cost_rule, shape_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.ops.call import OpCall


@dataclass(frozen=True, slots=True)
class Forest:
    """Number of trees, and the sums over trees of the depth of the nearest and farthest leaf."""

    trees: int
    nearest: int
    farthest: int


Branches = dict[object, tuple[object, object]]
"""Node → its two children; a child that is no key is a leaf."""


def measure(branches: Branches, roots: Sequence[object]) -> Forest:
    """Depths of all trees, without recursion (chains may be deep).

    Raises:
        Impossible: A node is its own descendant.
    """
    depths: dict[object, tuple[int, int]] = {}
    nearest = farthest = 0
    for root in roots:
        low, high = _depths(root, branches, depths)
        nearest += low
        farthest += high
    return Forest(len(roots), nearest, farthest)


def _depths(
    root: object, branches: Branches, known: dict[object, tuple[int, int]]
) -> tuple[int, int]:
    pending: list[tuple[object, bool]] = [(root, False)]
    open_nodes: set[object] = set()
    while pending:
        node, children_done = pending.pop()
        if node in known:
            continue
        children = branches.get(node)
        if children is None:
            known[node] = (0, 0)
        elif children_done:
            (a_low, a_high), (b_low, b_high) = known[children[0]], known[children[1]]
            known[node] = (1 + min(a_low, b_low), 1 + max(a_high, b_high))
            open_nodes.discard(node)
        elif node in open_nodes:
            raise Impossible(f"tree node {node} is its own descendant")
        else:
            open_nodes.add(node)
            pending += [(node, True), (children[0], False), (children[1], False)]
    return known[root]


@lru_cache(maxsize=64)
def classic_forest(
    trees: tuple[object, ...],
    nodes: tuple[object, ...],
    modes: tuple[object, ...],
    true_nodes: tuple[object, ...],
    false_nodes: tuple[object, ...],
) -> Forest:
    """Depths from the nodes_* attributes of versions 1 and 3: the first node of a tree is its root.

    Raises:
        Impossible: The attributes differ in length, or a tree is circular.
    """
    if not len(trees) == len(nodes) == len(modes) == len(true_nodes) == len(false_nodes):
        raise Impossible("the attributes nodes_* differ in length")
    branches: Branches = {}
    roots: dict[object, object] = {}
    for tree, node, mode, yes, no in zip(trees, nodes, modes, true_nodes, false_nodes, strict=True):
        roots.setdefault(tree, (tree, node))
        if mode != "LEAF":
            branches[tree, node] = ((tree, yes), (tree, no))
    return measure(branches, tuple(roots.values()))


@lru_cache(maxsize=64)
def modern_forest(
    roots: tuple[object, ...],
    yes: tuple[object, ...],
    yes_leaf: tuple[object, ...],
    no: tuple[object, ...],
    no_leaf: tuple[object, ...],
) -> Forest:
    """Depths from the attributes of TreeEnsemble 5, where leaves are numbered apart.

    A tree that is one leaf is written as a node whose two branches are that leaf.

    Raises:
        Impossible: The attributes differ in length, or a tree is circular.
    """
    if not len(yes) == len(yes_leaf) == len(no) == len(no_leaf):
        raise Impossible("the attributes nodes_* differ in length")
    branches: Branches = {}
    for node, (a, a_leaf, b, b_leaf) in enumerate(zip(yes, yes_leaf, no, no_leaf, strict=True)):
        branches[node] = (("leaf", a) if a_leaf else a, ("leaf", b) if b_leaf else b)
    return measure(branches, roots)


def _forest(call: OpCall) -> Forest:
    if call.op_type == "TreeEnsemble":
        names = ("tree_roots", "nodes_truenodeids", "nodes_trueleafs", "nodes_falsenodeids",
                 "nodes_falseleafs")  # fmt: skip
        return modern_forest(*(list_attribute(call, name) for name in names))
    names = ("nodes_treeids", "nodes_nodeids", "nodes_modes", "nodes_truenodeids",
             "nodes_falsenodeids")  # fmt: skip
    return classic_forest(*(list_attribute(call, name) for name in names))


@shape_rule("TreeEnsembleClassifier", domain=ML)
def tree_classifier_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Labels [N]; scores [N, classes], classes as many as labels."""
    rows, _ = rows_and_features(call)
    dtype, classes = class_labels(call, "classlabels_int64s")
    return [TensorInfo(dtype, (rows,)), TensorInfo(DType.FLOAT, (rows, classes))]


@shape_rule("TreeEnsembleRegressor", domain=ML)
def tree_regressor_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, targets], float whatever X is."""
    return [TensorInfo(DType.FLOAT, (rows_and_features(call)[0], call.attr("n_targets", 1)))]


@shape_rule("TreeEnsemble", domain=ML)
def tree_ensemble_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Y [N, targets] of X's type."""
    rows, _ = rows_and_features(call)
    return [call.input(0).like((rows, call.attr("n_targets", 1)))]


@cost_rule("TreeEnsemble", "TreeEnsembleRegressor", "TreeEnsembleClassifier", domain=ML)
def tree_cost(call: OpCall) -> OpCost:
    """Decision trees: comparisons on the way down, then the leaves added up.

    Shapes
        X [N, F]    Y or scores [N, E]
    Formula
        flops = N · Σ depth of the leaf reached (comparisons; between the nearest and the farthest
        leaf of each tree) + N · votes (additions, at most trees · votes of a leaf) + N · E base
        values + N · E divisions if averaged + N · (E − 1) for a classifier's choice
        + post_transform
    Convention
        A test for membership counts as one comparison. macs = 0.
    Source
        ONNX operator reference, ai.onnx.ml TreeEnsemble, TreeEnsembleClassifier,
        TreeEnsembleRegressor.
    """
    forest = _forest(call)
    rows, _ = rows_and_features(call)
    classifier = call.op_type == "TreeEnsembleClassifier"
    targets = call.output(1 if classifier else 0).dims[1]
    comparisons = interval(lower(rows) * forest.nearest, upper(rows) * forest.farthest)
    flops = comparisons + rows * _votes(call, forest)
    if _has_base(call):
        flops = flops + rows * targets
    if call.attributes.get("aggregate_function") in ("AVERAGE", 0):
        flops = flops + rows * targets
    if classifier:
        flops = flops + rows * largest(targets - 1, 1)
    note = "between the nearest and the farthest leaf of every tree"
    cost = OpCost(0, flops) + post_transform(call, rows, targets)
    return OpCost(0, cost.flops, cost.transcendentals, note=note)


def _votes(call: OpCall, forest: Forest) -> int:
    """Leaf weights added per row: between the fewest and the most votes of a leaf, per tree."""
    prefix = {"TreeEnsembleClassifier": "class", "TreeEnsembleRegressor": "target"}
    kind = prefix.get(call.op_type)
    if kind is None:
        return forest.trees
    trees = list_attribute(call, f"{kind}_treeids")
    nodes = list_attribute(call, f"{kind}_nodeids")
    votes: dict[object, dict[object, int]] = {}
    for tree, node in zip(trees, nodes, strict=True):
        leaves = votes.setdefault(tree, {})
        leaves[node] = leaves.get(node, 0) + 1
    return interval(
        sum(min(leaves.values()) for leaves in votes.values()),
        sum(max(leaves.values()) for leaves in votes.values()),
    )


def _has_base(call: OpCall) -> bool:
    tensor = call.attributes.get("base_values_as_tensor")
    return bool(list_attribute(call, "base_values")) or isinstance(tensor, Constant)
