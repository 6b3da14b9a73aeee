"""Two search spaces written with `GraphBuilder`, and stand-ins for the accuracy of a candidate."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from onnxroof import GraphBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxroof.builder import Tensor

CHOICES = ("none", "skip", "pool", "1x1", "3x3")
"""What an edge of a NAS-Bench-201 cell can be (Dong and Yang, ICLR 2020)."""

Cell = tuple[str, ...]


def every_cell() -> Iterator[Cell]:
    """All 15,625 cells: one choice for each of the six edges between four vertices."""
    return itertools.product(CHOICES, repeat=6)


def _convolved(g: GraphBuilder, x: Tensor, filters: int, kernel: int, stride: int = 1) -> Tensor:
    return g.batch_norm(g.conv(g.relu(x), filters, kernel, stride=stride))


def _edge(g: GraphBuilder, x: Tensor, choice: str) -> Tensor | None:
    if choice == "none":
        return None
    if choice == "skip":
        return x
    if choice == "pool":
        return g.average_pool(x, 3, padding=1)
    return _convolved(g, x, x.channels, int(choice[0]))


def _cell(g: GraphBuilder, x: Tensor, choices: Cell) -> Tensor:
    """Four vertices, an edge between any two: each vertex is the sum of what reaches it."""
    edges = iter(choices)
    vertices: list[Tensor | None] = [x]
    for _ in range(3):
        total: Tensor | None = None
        for vertex in vertices:
            choice = next(edges)
            made = None if vertex is None else _edge(g, vertex, choice)
            if made is not None:
                total = made if total is None else g.add(total, made)
        vertices.append(total)
    last = vertices[-1]
    return g.mul(x, g.constant(0.0)) if last is None else last


def nas_bench_201(choices: Cell, cells: int = 5, batch: int = 1) -> GraphBuilder:
    """The network for CIFAR-10: three stages of `cells` equal cells, 16, 32 and 64 filters wide."""
    g = GraphBuilder("nas-bench-201")
    x = g.batch_norm(g.conv(g.input((batch, 3, 32, 32)), 16, 3))
    for stage in range(3):
        if stage:
            wide = 2 * x.channels
            y = _convolved(g, _convolved(g, x, wide, 3, stride=2), wide, 3)
            x = g.add(y, g.conv(g.average_pool(x, 2, stride=2), wide, 1))
        for _ in range(cells):
            x = _cell(g, x, choices)
    x = g.relu(g.batch_norm(x))
    g.output(g.linear(g.flatten(g.global_average_pool(x)), 10))
    return g


def promise(choices: Cell) -> float:
    """A stand-in for a cell's accuracy: put your own measurement or predictor here.

    log2 of 1 plus the convolutions on all ways from the cell's input to its output, a 3×3 one
    counted three times. It rewards depth and many ways through, and knows no device.
    """
    ways: list[list[int]] = [[0]]
    edges = iter(choices)
    weights = {"skip": 0, "pool": 0, "1x1": 1, "3x3": 3}
    for _ in range(3):
        reached: list[int] = []
        for vertex in ways:
            choice = next(edges)
            if choice != "none":
                reached += [way + weights[choice] for way in vertex]
        ways.append(reached)
    return math.log2(1 + sum(ways[-1]))


Block = tuple[int, int, int]
"""(expansion, filters, kernel) of an inverted residual."""


def mobile_net(width: float, blocks: Sequence[Block], size: int = 160) -> GraphBuilder:
    """A network of inverted residuals (Sandler et al., CVPR 2018); every second one halves."""
    g = GraphBuilder("mobile-net")
    x = g.relu6(g.batch_norm(g.conv(g.input((1, 3, size, size)), _wide(32, width), 3, stride=2)))
    for number, (expansion, filters, kernel) in enumerate(blocks):
        with g.scope(f"block{number}"):
            y = g.relu6(g.batch_norm(g.conv(x, expansion * x.channels, 1)))
            y = g.relu6(g.batch_norm(g.depthwise(y, kernel, stride=2 if number % 2 == 0 else 1)))
            y = g.batch_norm(g.conv(y, _wide(filters, width), 1))
            x = g.add(x, y) if x.shape == y.shape else y
    x = g.relu6(g.batch_norm(g.conv(x, _wide(1280, max(width, 1.0)), 1)))
    g.output(g.linear(g.flatten(g.global_average_pool(x)), 1000))
    return g


def _wide(filters: int, width: float) -> int:
    """A multiple of eight near filters · width."""
    return max(8, int(filters * width + 4) // 8 * 8)
