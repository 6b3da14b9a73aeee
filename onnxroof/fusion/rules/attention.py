"""Blocks: attention, rotary position embedding, squeeze-and-excite."""

from __future__ import annotations

from onnxroof.fusion.composite import Composite

_SCORES = """
    q1 = Mul/Div(q, #) else q
    k3 = Expand/Tile(k) else k
    k2 = Transpose(k3) else k3
    k1 = Mul/Div(k2, #) else k2
    k0 = Transpose(k1) else k1
    s0 = MatMul/Gemm(q1, k0)
    s1 = Mul/Div(s0, #) else s0
    s2 = Where(c, s1, #) | Where(c, #, s1) else s1
    s3 = Add(s2, mask) | Add(s2, #) else s2
    s4 = Add(s3, mask2) | Add(s3, #) else s3
    p = Softmax(s4)
    n = IsNaN(p)
    w = Where(n, #, p) else p
"""

RULES = (
    Composite(
        name="flash-attention",
        kind="Attention",
        drawings=(
            # IsNaN guards a fully masked row; without it the line must not be required.
            _SCORES
            + """
            v1 = Expand/Tile(v) else v
            y = MatMul(w, v1)
            """,
            _SCORES.replace("    n = IsNaN(p)\n", "").replace("    w = Where(n, #, p) else p\n", "")
            + """
            v1 = Expand/Tile(v) else v
            y = MatMul(p, v1)
            """,
        ),
        why="softmax(Q·Kᵀ·scale + mask)·V block by block with a running maximum and sum: the "
        "score matrix never reaches memory. Repeated heads (grouped queries) are read once.",
        anchor="s0",
        closed=True,
    ),
    Composite(
        name="squeeze-excite",
        kind="SqueezeExcite",
        drawings=(
            """
            g = GlobalAveragePool/ReduceMean(x)
            c = Conv/Gemm/MatMul(g, #)
            a = Relu/Swish/HardSwish/Gelu(c)
            d = Conv/Gemm/MatMul(a, #)
            s = Sigmoid/HardSigmoid(d)
            y = Mul(x, s)
            """,
        ),
        why="A gate per channel: x · σ(W₂·act(W₁·mean(x))). Where the feature map stays on chip "
        "it is read once.",
        closed=True,
    ),
    Composite(
        name="rotary-embedding",
        kind="RotaryEmbedding",
        drawings=(
            """
            a = Mul(x, cos) | Mul(x, #)
            s = Slice(x)
            t = Slice(x)
            n = Neg(t)
            r = Concat(n, s)
            b = Mul(r, sin) | Mul(r, #)
            y = Add(a, b)
            """,
        ),
        why="x·cos + rotate(x)·sin, where rotate swaps the halves of the last axis: an index "
        "calculation on the way in.",
    ),
)
