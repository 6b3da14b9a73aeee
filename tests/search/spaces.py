"""Search spaces written with `GraphBuilder`, as a user would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.spaces import CHOICES, nas_bench_201
from onnxroof import GraphBuilder

if TYPE_CHECKING:
    import random

__all__ = ["dense", "erf_net", "mobile_net", "nas_bench_201", "random_cell", "transformer"]


def random_cell(source: random.Random) -> tuple[str, ...]:
    """One choice for each of the six edges."""
    return tuple(source.choice(CHOICES) for _ in range(6))


def mobile_net(blocks: list[tuple[int, int, int, int]], *, excite: bool = False) -> GraphBuilder:
    """Inverted residuals: (expansion, filters, kernel, stride) a block."""
    g = GraphBuilder("mobile")
    x = g.relu6(g.batch_norm(g.conv(g.input((1, 3, 64, 64)), 16, 3, stride=2)))
    for number, (expansion, filters, kernel, stride) in enumerate(blocks):
        with g.scope(f"block{number}"):
            y = g.hard_swish(g.batch_norm(g.conv(x, expansion * x.channels, 1)))
            y = g.hard_swish(g.batch_norm(g.depthwise(y, kernel, stride=stride)))
            if excite:
                s = g.relu(g.conv(g.global_average_pool(y), max(y.channels // 4, 1), 1, bias=True))
                y = g.mul(y, g.hard_sigmoid(g.conv(s, y.channels, 1, bias=True)))
            y = g.batch_norm(g.conv(y, filters, 1))
            x = g.add(y, x) if y.shape == x.shape else y
    g.output(g.linear(g.flatten(g.global_average_pool(x)), 100))
    return g


def dense(growth: list[int]) -> GraphBuilder:
    """Blocks whose results are concatenated, with a transition after each."""
    g = GraphBuilder("dense")
    x = g.conv(g.input((1, 3, 32, 32)), 8, 3)
    for wide in growth:
        for _ in range(3):
            x = g.concat(x, g.batch_norm(g.conv(g.relu(x), wide, 3)))
        x = g.max_pool(g.batch_norm(g.conv(g.relu(x), x.channels // 2, 1)), 2, stride=2)
    g.output(g.linear(g.flatten(g.global_average_pool(x)), 10))
    return g


def transformer(layers: int, width: int, heads: int) -> GraphBuilder:
    """Encoder layers with attention written out: it has Transposes, so it is one piece."""
    g = GraphBuilder("transformer")
    x = g.input((1, 32, width))
    split = (1, 32, heads, width // heads)
    for _ in range(layers):
        q, k, v = [
            g.transpose(g.reshape(g.linear(x, width), split), order)
            for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        ]
        scores = g.softmax(g.mul(g.matmul(q, k), g.constant((width // heads) ** -0.5)))
        y = g.reshape(g.transpose(g.matmul(scores, v), (0, 2, 1, 3)), (1, 32, width))
        x = g.layer_norm(g.add(x, g.linear(y, width)))
        x = g.layer_norm(g.add(x, g.linear(g.gelu(g.linear(x, 4 * width)), width)))
    g.output(x)
    return g


def erf_net(constants: list[float]) -> GraphBuilder:
    """Residual blocks with x·(1 + erf(x/√2))·c written out: a GELU only where c is 1/2."""
    g = GraphBuilder("erf")
    x = g.conv(g.input((1, 8, 16, 16)), 16, 3)
    for constant in constants:
        y = g.conv(x, 16, 3)
        e = g.op("Erf", g.op("Div", y, g.constant(2**0.5)))
        y = g.mul(g.mul(y, g.add(e, g.constant(1.0))), g.constant(constant))
        x = g.add(x, g.conv(y, 16, 1))
    g.output(x)
    return g
