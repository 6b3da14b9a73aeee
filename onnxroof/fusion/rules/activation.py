"""Activations that exporters write as several nodes."""

from __future__ import annotations

from onnxroof.fusion.composite import Composite

_WHY = "Elementwise throughout: one read, one write, the rest in registers."

RULES = (
    Composite(
        name="gelu-erf",
        kind="Gelu",
        drawings=(
            """
            h = Div(x, #1.41421) | Mul(x, #0.70711)
            f = Erf(h)
            a = Add(f, #1)
            z = Mul(x, a)
            y = Mul(z, #0.5)
            """,
            """
            h = Div(x, #1.41421) | Mul(x, #0.70711)
            f = Erf(h)
            a = Add(f, #1)
            t = Mul(x, #0.5)
            y = Mul(t, a)
            """,
            """
            h = Div(x, #1.41421) | Mul(x, #0.70711)
            f = Erf(h)
            a = Add(f, #1)
            b = Mul(a, #0.5)
            y = Mul(x, b)
            """,
        ),
        why="GELU(x) = x/2 · (1 + erf(x/√2)). " + _WHY,
    ),
    Composite(
        name="gelu-tanh",
        kind="Gelu",
        drawings=(
            """
            q = Mul(x, x)
            p = Pow(x, #3) | Mul(x, q)
            c = Mul(p, #0.044715)
            s = Add(x, c)
            k = Mul(s, #0.797885)
            t = Tanh(k)
            a = Add(t, #1)
            h = Mul(x, #0.5)
            y = Mul(h, a)
            """,
            """
            p = Pow(x, #3)
            c = Mul(p, #0.044715)
            s = Add(x, c)
            k = Mul(s, #0.797885)
            t = Tanh(k)
            a = Add(t, #1)
            h = Mul(x, #0.5)
            y = Mul(h, a)
            """,
            """
            p = Pow(x, #3)
            c = Mul(p, #0.044715)
            s = Add(x, c)
            k = Mul(s, #0.797885)
            t = Tanh(k)
            a = Add(t, #1)
            z = Mul(x, a)
            y = Mul(z, #0.5)
            """,
        ),
        why="GELU(x) ≈ x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))). " + _WHY,
    ),
    Composite(
        name="gelu-sigmoid",
        kind="Gelu",
        drawings=(
            """
            k = Mul(x, #1.702)
            s = Sigmoid(k)
            y = Mul(x, s)
            """,
        ),
        why="GELU(x) ≈ x · σ(1.702·x). " + _WHY,
    ),
    Composite(
        name="swish",
        kind="Swish",
        drawings=(
            """
            s = Sigmoid(x)
            y = Mul(x, s)
            """,
        ),
        why="SiLU(x) = x · σ(x). " + _WHY,
    ),
    Composite(
        name="hard-swish",
        kind="HardSwish",
        drawings=(
            """
            s = HardSigmoid(x)
            y = Mul(x, s)
            """,
            """
            a = Add(x, #3)
            c = Clip(a)
            d = Div(c, #6) | Mul(c, #0.166667)
            y = Mul(x, d)
            """,
            """
            a = Add(x, #3)
            c = Clip(a)
            m = Mul(x, c)
            y = Div(m, #6) | Mul(m, #0.166667)
            """,
        ),
        why="HardSwish(x) = x · min(max(x + 3, 0), 6) / 6. " + _WHY,
    ),
    Composite(
        name="mish",
        kind="Mish",
        drawings=(
            """
            s = Softplus(x)
            t = Tanh(s)
            y = Mul(x, t)
            """,
        ),
        why="Mish(x) = x · tanh(log(1 + eˣ)). " + _WHY,
    ),
    Composite(
        name="bias-gelu",
        kind="BiasGelu",
        drawings=(
            """
            b = Add(x, #)
            y = Gelu(b)
            """,
        ),
        why="A bias and the GELU behind it are elementwise: one read, one write.",
    ),
)
