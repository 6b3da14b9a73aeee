"""Normalizations that exporters write as several nodes, and what joins a normalization."""

from __future__ import annotations

from onnxroof.fusion.chain import Chain, Step
from onnxroof.fusion.composite import Composite
from onnxroof.fusion.rules.conditions import (
    channel_constant,
    sum_of_activations,
    sum_of_tokens,
)

_ROW = "A row's statistics and its elements stay on chip: one read, one write."

_RESIDUAL = "Only the normalization reads the residual sum, and it can add on the way in."

RULES = (
    Composite(
        name="layer-normalization",
        kind="LayerNormalization",
        drawings=(
            """
            m = ReduceMean(x)
            d = Sub(x, m)
            q = Pow(d, #2) | Mul(d, d)
            v = ReduceMean(q)
            e = Add(v, #)
            r = Sqrt(e)
            i = Reciprocal(r) | Div(#1, r)
            n = Mul(d, i)
            g = Mul(n, #) else n
            y = Add(g, #) else g
            """,
            """
            m = ReduceMean(x)
            d = Sub(x, m)
            c = Cast(d) else d
            q = Pow(c, #2) | Mul(c, c)
            v = ReduceMean(q)
            e = Add(v, #)
            r = Sqrt(e)
            n = Div(d, r)
            o = Cast(n) else n
            g = Mul(o, #) else o
            y = Add(g, #) else g
            """,
        ),
        why="(x − mean) / √(variance + ε) · γ + β along the last axes. " + _ROW,
    ),
    Composite(
        name="rms-normalization",
        kind="RMSNormalization",
        drawings=(
            """
            c = Cast(x) else x
            q = Pow(c, #2) | Mul(c, c)
            v = ReduceMean(q)
            e = Add(v, #)
            r = Sqrt(e)
            i = Reciprocal(r) | Div(#1, r)
            n = Mul(c, i)
            o = Cast(n) else n
            y = Mul(o, #) else o
            """,
            """
            c = Cast(x) else x
            q = Pow(c, #2) | Mul(c, c)
            v = ReduceMean(q)
            e = Add(v, #)
            r = Sqrt(e)
            n = Div(c, r)
            o = Cast(n) else n
            y = Mul(o, #) else o
            """,
        ),
        why="x / √(mean(x²) + ε) · γ along the last axes. " + _ROW,
    ),
    Composite(
        name="l2-normalization",
        kind="L2Normalization",
        drawings=(
            """
            n = ReduceL2(x)
            c = Clip/Max(n) else n
            b = Expand(c) else c
            y = Div(x, b)
            """,
            """
            q = Mul(x, x) | Pow(x, #2)
            v = ReduceSum(q)
            e = Add(v, #) else v
            n = Sqrt(e)
            c = Clip(n) else n
            y = Div(x, c)
            """,
        ),
        why="x / ‖x‖₂ along an axis. " + _ROW,
    ),
    Composite(
        name="softmax",
        kind="Softmax",
        drawings=(
            """
            m = ReduceMax(x)
            d = Sub(x, m)
            e = Exp(d)
            s = ReduceSum(e)
            y = Div(e, s)
            """,
            """
            e = Exp(x)
            s = ReduceSum(e)
            y = Div(e, s)
            """,
        ),
        why="exp(x − max) / Σ exp(x − max) along an axis. " + _ROW,
    ),
    Chain(
        name="group-normalization",
        anchors=frozenset({"InstanceNormalization", "GroupNormalization"}),
        then=(
            Step("a scale", frozenset({"Mul"}), channel_constant),
            Step("a shift", frozenset({"Add"}), channel_constant),
        ),
        why="GroupNorm is exported as InstanceNormalization of the groups, then scale and shift "
        "per channel; all of it passes over the same elements.",
        open_after=True,
        through_views=True,
    ),
    Chain(
        name="skip-layer-normalization",
        anchors=frozenset({"LayerNormalization"}),
        then=(),
        before=(Step("the residual addition", frozenset({"Add"}), sum_of_tokens),),
        why=_RESIDUAL,
        open_after=True,
    ),
    Chain(
        name="residual-normalization",
        anchors=frozenset(
            {"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"}
        ),
        then=(),
        before=(Step("the residual addition", frozenset({"Add"}), sum_of_activations),),
        why=_RESIDUAL,
        open_after=True,
    ),
)
