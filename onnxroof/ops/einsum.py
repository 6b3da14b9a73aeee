"""Einsum: the label algebra of its equation, and the cheapest pairwise order to contract in."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnxroof.ops.call import Impossible, OpCost
from onnxroof.ops.geometry import broadcast
from onnxroof.ops.registry import cost_rule, shape_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from onnxroof.ops.call import OpCall, Shape, TensorInfo

ELLIPSIS = "..."
MOST_SEARCHED = 9
"""Operands up to which every pairwise order is tried; 3^n splits."""

MOST_COMPARED = 32
"""Operands up to which the cheapest next pair is looked for; n³ comparisons."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation applied to operands.

    Labels are letters, and "...0", "...1" for the axes an ellipsis stands for.

    Attributes:
        operands: Labels of each operand, one an axis.
        output: Labels of the output.
        sizes: Size of every label.
    """

    operands: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    sizes: Mapping[str, int]


def parse_equation(text: str, shapes: Sequence[Shape]) -> Equation:
    """Apply an equation to operand shapes.

    Raises:
        Impossible: The equation is malformed or contradicts the shapes.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise Impossible(f"equation {text!r} has {len(terms)} terms for {len(shapes)} operands")
    for term in (*terms, right):
        _check_term(term, text)
    ranks = {len(s) - len(_letters(t)) for t, s in zip(terms, shapes, strict=True) if "." in t}
    if len(ranks) > 1:
        raise Impossible(
            f"the ellipsis of equation {text!r} stands for different ranks: {sorted(ranks)}"
        )
    hidden = tuple(f"{ELLIPSIS}{i}" for i in range(max(ranks.pop(), 0) if ranks else 0))
    operands = tuple(_expand(term, hidden) for term in terms)
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        _merge(labels, shape, sizes, text)
    output = _expand(right, hidden) if arrow else _implicit(operands, hidden)
    if len(set(output)) < len(output) or not set(output) <= sizes.keys():
        raise Impossible(f"the output of equation {text!r} repeats or invents a label")
    return Equation(operands, output, sizes)


def _letters(term: str) -> str:
    return term.replace(ELLIPSIS, "", 1)


def _check_term(term: str, text: str) -> None:
    letters = _letters(term)
    if letters and not (letters.isascii() and letters.isalpha()):
        raise Impossible(f"equation {text!r} is malformed at {term!r}")


def _expand(term: str, hidden: tuple[str, ...]) -> tuple[str, ...]:
    before, dots, after = term.partition(ELLIPSIS)
    return (*before, *(hidden if dots else ()), *after)


def _implicit(operands: tuple[tuple[str, ...], ...], hidden: tuple[str, ...]) -> tuple[str, ...]:
    """Without an arrow: the ellipsis, then the letters that appear once, in ASCII order."""
    letters = [label for labels in operands for label in labels if label not in hidden]
    return (*hidden, *sorted(label for label in set(letters) if letters.count(label) == 1))


def _merge(labels: tuple[str, ...], shape: Shape, sizes: dict[str, int], text: str) -> None:
    """Give each label its size; equal labels broadcast."""
    if len(labels) != len(shape):
        raise Impossible(
            f"a term of equation {text!r} names {len(labels)} axes of a rank {len(shape)} operand"
        )
    for label, dim in zip(labels, shape, strict=True):
        try:
            sizes[label] = broadcast((sizes.get(label, 1),), (dim,))[0]
        except Impossible:
            raise Impossible(
                f"label {label} of equation {text!r} is both {sizes[label]} and {dim}"
            ) from None


@dataclass(frozen=True, slots=True)
class _Part:
    """An operand or intermediate result: its axes, what it cost, and how it was made."""

    dims: Mapping[str, int]
    macs: int
    flops: int
    how: str


def _operand(position: int, labels: tuple[str, ...], shape: Shape, needed: Iterable[str]) -> _Part:
    """An operand after its diagonal is taken and the labels only it has are summed."""
    dims = dict(zip(labels, shape, strict=True))
    kept = {label: dim for label, dim in dims.items() if label in set(needed)}
    before, after = math.prod(dims.values()), math.prod(kept.values())
    return _Part(kept, 0, before - after if before else 0, str(position))


def _contract(one: _Part, other: _Part, needed: frozenset[str]) -> _Part:
    """Two parts multiplied and summed over the labels nobody needs any more."""
    union = dict(one.dims)
    for label, dim in other.dims.items():
        union[label] = broadcast((union.get(label, 1),), (dim,))[0]
    kept = {label: dim for label, dim in union.items() if label in needed}
    products = math.prod(union.values())
    summed = len(kept) < len(union)
    return _Part(
        kept,
        one.macs + other.macs + (products if summed else 0),
        one.flops + other.flops + (2 * products if summed else products),
        f"({one.how}·{other.how})",
    )


def contraction(equation: Equation, shapes: Sequence[Shape]) -> _Part:
    """The whole product, contracted pairwise in the order of fewest operations."""
    sets = [frozenset(labels) for labels in equation.operands]
    output = frozenset(equation.output)

    def needed(members: Iterable[int]) -> frozenset[str]:
        inside = set(members)
        outside = (labels for i, labels in enumerate(sets) if i not in inside)
        return output.union(*outside)

    terms = Counter(label for labels in sets for label in labels)
    shared = output.union(label for label, count in terms.items() if count > 1)
    single = [_operand(i, equation.operands[i], shapes[i], shared) for i in range(len(sets))]
    if len(sets) > MOST_COMPARED:
        return _left_to_right(single, terms, output)
    parts = {frozenset([i]): part for i, part in enumerate(single)}
    if len(sets) > MOST_SEARCHED:
        whole = _greedily(parts, needed)
    else:
        whole = _exhaustively(parts, len(sets), needed)
    return replace(whole, how=f"in the order {whole.how}")


def _left_to_right(operands: list[_Part], terms: Counter[str], output: frozenset[str]) -> _Part:
    """Contract in the order of the equation; `terms` counts the terms that name each label."""
    whole, later = operands[0], Counter(terms)
    later.subtract(whole.dims.keys())
    for operand in operands[1:]:
        later.subtract(operand.dims.keys())
        kept = output.union(label for label, count in later.items() if count > 0)
        whole = replace(_contract(whole, operand, kept), how="")
    return replace(whole, how="from left to right")


def _exhaustively(
    best: dict[frozenset[int], _Part], count: int, needed: Callable[[Iterable[int]], frozenset[str]]
) -> _Part:
    """The best part of every set of operands, from the best parts of its halves."""
    members = sorted(
        (frozenset(i for i in range(count) if mask >> i & 1) for mask in range(1, 1 << count)),
        key=len,
    )
    for group in members:
        if len(group) == 1:
            continue
        first = min(group)
        kept = needed(group)
        halves = (half for half in best if first in half and half < group)
        candidates = [_contract(best[half], best[group - half], kept) for half in tuple(halves)]
        best[group] = min(candidates, key=lambda part: part.flops)
    return best[frozenset(range(count))]


def _greedily(
    parts: dict[frozenset[int], _Part], needed: Callable[[Iterable[int]], frozenset[str]]
) -> _Part:
    """Contract the cheapest pair until one part is left."""
    while len(parts) > 1:
        groups = list(parts)
        pairs = ((a, b) for i, a in enumerate(groups) for b in groups[i + 1 :])
        a, b, made = min(
            ((a, b, _contract(parts[a], parts[b], needed(a | b))) for a, b in pairs),
            key=lambda found: found[2].flops - parts[found[0]].flops - parts[found[1]].flops,
        )
        del parts[a], parts[b]
        parts[a | b] = made
    return next(iter(parts.values()))


def _equation(call: OpCall) -> tuple[Equation, list[Shape]]:
    shapes = [call.shape(position) for position in range(len(call.inputs))]
    return parse_equation(call.attr("equation", ""), shapes), shapes


@shape_rule("Einsum")
def einsum_shape(call: OpCall) -> Sequence[TensorInfo]:
    """Output axes by label; a label of size 1 stretches to its size elsewhere."""
    equation, _ = _equation(call)
    return [call.input(0).like(tuple(equation.sizes[label] for label in equation.output))]


@cost_rule("Einsum")
def einsum_cost(call: OpCall) -> OpCost:
    """Products of operands, summed over the labels that the output lacks.

    Formula
        Operands are contracted in pairs; for each, over the union of both operands' labels:
        macs = product of the sizes where a label is summed, else 0
        flops = 2 · macs where a label is summed, else the product of the sizes; before that, per
        operand, elements before − elements after for labels of it alone that the output lacks
    Convention
        A repeated label in one term takes the diagonal, which costs nothing. Several operands are
        contracted pairwise in the order of fewest operations (all orders are tried up to 9, the
        cheapest next pair up to 32, from left to right beyond); the node's note says which.
    Source
        ONNX operator reference, Einsum.
    """
    equation, shapes = _equation(call)
    whole = contraction(equation, shapes)
    note = f"contracted {whole.how}" if len(shapes) > 2 else ""
    return OpCost(whole.macs, whole.flops, note=note)
