"""Sizes that a model computes from its data: bounded where the data pass through bounds."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import onnxroof
from onnxroof.bounded import BoundedInt, ends
from tests.builders import model, shaped, shapes_of

CLIPPED = "float lo = {1.0}, float hi = {9.0}, int64[1] flat = {-1}"
"""n, a size of 1 to 9: the smallest part of x, clipped and rounded up."""

SIZE = "m = ReduceMin <keepdims = 0> (x) c = Clip(m, lo, hi) u = Ceil(c) n = Cast <to = 7> (u)"
LISTED = f"{SIZE} s = Reshape(n, flat)"


def bounds(text: str, opset: int = 21) -> list[tuple[int, int]]:
    """(least, most) for every axis of y."""
    shape = shapes_of(model(text, opset=opset, opsets={"com.microsoft": 1}))["y"]
    assert shape is not None
    return [ends(dim) for dim in shape]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("y = ConstantOfShape(s)", [(1, 9)]),
        ("t = Concat <axis = 0> (two, s) y = ConstantOfShape(t)", [(2, 2), (1, 9)]),
        ("y = Expand(x, s)", [(4, 4)]),  # either 4 or refused
        ("y = Tile(x, s)", [(4, 36)]),
        ("y = Range(zero, n, one)", [(1, 9)]),
        ("y = Range(one, n, one)", [(0, 8)]),
        ("y = OneHot(i, n, v)", [(3, 3), (1, 9)]),
        ("p = Concat <axis = 0> (two, s) y = Pad(x, p)", [(7, 15)]),  # 2 + 4 + 1 to 9
        ("y = HannWindow(n)", [(1, 9)]),
        ("y = MelWeightMatrix(n, eight, eight, fl, fl)", [(5, 5), (1, 9)]),
        ("t = Concat <axis = 0> (two, s) y = Resize(z, , , t)", [(2, 2), (1, 9)]),
        (
            "t = Concat <axis = 0> (two, two, s, s) y = AffineGrid(th, t)",
            [(2, 2), (1, 9), (1, 9), (2, 2)],
        ),
        (
            "t = Concat <axis = 0> (s, two) y = com.microsoft.CropAndResize(im, r, j, t)",
            [(3, 3), (1, 1), (1, 9), (2, 2)],
        ),
    ],
)
def test_a_size_from_data_between_two_numbers_is_bounded(
    expression: str, expected: list[tuple[int, int]]
) -> None:
    assert (
        bounds(
            f"""agraph (float[4] x, float[2,6] z, int64[3] i, float[2,2,3] th, float[1,1,8,8] im,
                        float[3,4] r, int32[3] j) => (float y)
            <{CLIPPED}, int64 zero = {{0}}, int64 one = {{1}}, int64[1] two = {{2}},
             float[2] v = {{0.0, 1.0}}, int64 eight = {{8}}, float fl = {{8.0}}>
            {{ {LISTED} {expression} }}"""
        )
        == expected
    )


def test_a_size_below_zero_cannot_be() -> None:
    # 1 − n is −8 to 0, so the tensor is empty; n − 4 is −3 to 5, so it has 0 to 5 elements
    body = f"{LISTED} d = Sub(one, s) e = Sub(s, four) y = ConstantOfShape({{}})"
    text = (
        f"agraph (float[4] x) => (float y) <{CLIPPED}, int64[1] one = {{1}}, int64[1] four = {{4}}>"
    )
    assert bounds(f"{text} {{ {body.format('d')} }}") == [(0, 0)]
    assert bounds(f"{text} {{ {body.format('e')} }}") == [(0, 5)]


def test_without_bounds_the_size_stays_unknown_with_its_reason() -> None:
    # Clip has no upper limit
    text = """agraph (float[4] x) => (float o) <float lo = {1.0}, int64[1] flat = {-1}>
        { m = ReduceMin <keepdims = 0> (x) c = Clip(m, lo) n = Cast <to = 7> (c)
          s = Reshape(n, flat) y = ConstantOfShape(s) o = ReduceSum(y) }"""
    _, findings = shaped(text)
    assert (findings.unresolved[0].tensor, findings.unresolved[0].reason) == (
        "y",
        "the shape (input 0) is computed at run time",
    )


def test_bounds_no_runtime_can_hold_are_none() -> None:
    # (2^40)^2 elements
    text = f"""agraph (float[4] x) => (float o)
        <float lo = {{1.0}}, float hi = {{1099511627776.0}}, int64[1] flat = {{-1}}>
        {{ {LISTED} t = Concat <axis = 0> (s, s) y = ConstantOfShape(t) o = ReduceSum(y) }}"""
    assert shapes_of(text)["y"] is None


def test_each_size_has_a_name_and_can_be_set() -> None:
    # Bilinear to n × n: 4 taps, 7 FLOPs an element; at most 2·9·9, with n = 5 exactly 2·5·5
    text = f"""agraph (float[4] x, float[1,2,4,4] z) => (float y)
        <{CLIPPED}, int64[2] nc = {{1, 2}}>
        {{ {LISTED} t = Concat <axis = 0> (nc, s, s)
           y = Resize <mode = "linear"> (z, , , t) }}"""
    result = onnxroof.analyze(model(text))
    assert result.data_dependent == ("y.2",)  # height and width are one number
    assert result.totals.is_upper_bound
    resize = next(node for node in result.nodes if node.node.op_type == "Resize")
    assert resize.flops == 7 * 2 * 9 * 9
    known = onnxroof.analyze(model(text), dims={"y.2": 5})
    resize = next(node for node in known.nodes if node.node.op_type == "Resize")
    assert resize.flops == 7 * 2 * 5 * 5
    assert not known.totals.is_upper_bound


def test_two_sizes_with_one_range_are_two_sizes() -> None:
    # Height and width lie between the same bounds, but each has its own element of x
    text = f"""agraph (float[2] x) => (float y) <{CLIPPED}>
        {{ c = Clip(x, lo, hi) s = Cast <to = 7> (c) y = ConstantOfShape(s) }}"""
    height, width = shapes_of(model(text))["y"] or ()
    assert isinstance(height, BoundedInt)
    assert isinstance(width, BoundedInt)
    assert (height.name, width.name) == ("y.0", "y.1")


def test_the_elements_of_a_small_list_keep_their_own_bounds() -> None:
    # The first is 1 to 9, the second exactly 2, whatever stands beside it
    text = f"""agraph (float[4] x) => (float y) <{CLIPPED}, int64[1] two = {{2}}>
        {{ {LISTED} t = Concat <axis = 0> (s, two) d = Mul(t, two) y = ConstantOfShape(d) }}"""
    assert bounds(text) == [(2, 18), (4, 4)]


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_bounds_are_of_the_types_in_the_file_whatever_the_precision(precision: str) -> None:
    # 1 / 3 of 900 in fp32; no half lies between 299.75 and 300, and 900 is none of int8
    text = """agraph (float[1] x) => (float y)
        <float lo = {0.0}, float hi = {900.0}, float third = {0.3333333}>
        { c = Clip(x, lo, hi) t = Mul(c, third) u = Ceil(t) s = Cast <to = 7> (u)
          y = ConstantOfShape(s) }"""
    result = onnxroof.analyze(model(text), precision=precision)
    assert [ends(dim) for dim in result.tensors["y"].shape or ()] == [(0, 300)]


def test_small_integers_bound_a_size_without_a_clip() -> None:
    text = """agraph (uint8[1] x) => (float y) { s = Cast <to = 7> (x) y = ConstantOfShape(s) }"""
    assert bounds(text) == [(0, 255)]


def test_a_body_sees_the_bounds_of_what_it_captures() -> None:
    # A row of boxes, clipped outside of the loop, is cut out by the number of the trip
    text = f"""agraph (float[6,2] x) => (float ys)
        <{CLIPPED}, int64 trips = {{300}}, bool yes = {{1}}>
        {{ b = Clip(x, lo, hi)
           ys = Loop(trips, yes) <body = body (int64 i, bool go) => (bool on, float out) {{
             on = Identity(go) r = Gather(b, i) s = Cast <to = 7> (r) z = ConstantOfShape(s)
             out = ReduceMax <keepdims = 0> (z) }}> }}"""
    result = onnxroof.analyze(model(text))
    assert not result.unresolved
    assert result.data_dependent == ("z.0", "z.1")
    # 300 trips of at most 9 · 9 − 1 comparisons
    assert result.nodes[-1].flops == 300 * 80


def test_the_trips_of_a_loop_may_be_bounded() -> None:
    # 1 to 9 trips of 2 · 8 · 8 MACs
    text = f"""agraph (float[4] x, float[2,8] h) => (float y)
        <{CLIPPED}, bool yes = {{1}}, float[8,8] w = {{{",".join(["0.0"] * 64)}}}>
        {{ {SIZE} y = Loop(n, yes, h) <body = b (int64 i, bool go, float[2,8] p)
            => (bool on, float[2,8] q) {{ on = Identity(go) q = MatMul(p, w) }}> }}"""
    totals = onnxroof.analyze(model(text)).totals
    assert (totals.macs, totals.macs_min) == (9 * 128, 128)


def test_real_runs_stay_within_the_bounds() -> None:
    # Boxes of (x0, y0, x1, y1) on an image of 20 × 30, grown by a third around their middles
    text = """agraph (float[3,4] boxes) => (float y, int64 s)
        <float zero = {0.0}, float width = {20.0}, float height = {30.0}, float half = {0.5},
         float scale = {1.333}, int64 a = {0}, int64 b = {1}, int64 c = {2}, int64 d = {3},
         int64 row = {1}, int64[1] flat = {-1}, int64[1] one = {1}>
        { r = Gather(boxes, row)
          xa = Gather(r, a) xb = Max(xa, zero) x0 = Min(xb, width)
          xc = Gather(r, c) xd = Max(xc, zero) x1 = Min(xd, width)
          ya = Gather(r, b) yb = Max(ya, zero) y0 = Min(yb, height)
          yc = Gather(r, d) yd = Max(yc, zero) y1 = Min(yd, height)
          wa = Sub(x1, x0) wb = Mul(wa, half) wc = Mul(wb, scale) wd = Cast <to = 7> (wc)
          we = Reshape(wd, flat) w = Max(we, one)
          ha = Sub(y1, y0) hb = Mul(ha, half) hc = Mul(hb, scale) hd = Cast <to = 7> (hc)
          he = Reshape(hd, flat) h = Max(he, one)
          s = Concat <axis = 0> (h, w) y = ConstantOfShape(s) }"""
    # 30 · 0.5 · 1.333 = 19.995 and 20 · 0.5 · 1.333 = 13.33
    assert bounds(text) == [(1, 19), (1, 13)]
    rng = np.random.default_rng(0)
    run = ReferenceEvaluator(model(text))
    for _ in range(50):
        height, width = run.run(["s"], {"boxes": rng.normal(10, 30, (3, 4)).astype(np.float32)})[0]
        assert 1 <= height <= 19
        assert 1 <= width <= 13


def test_a_long_way_back_is_followed_without_recursion() -> None:
    # 5,000 times −(−x) after the Clip
    steps = " ".join(f"v{i + 1} = Neg(v{i})" for i in range(5000))
    text = f"""agraph (float[1] x) => (float y) <{CLIPPED}>
        {{ v0 = Clip(x, lo, hi) {steps} s = Cast <to = 7> (v5000) y = ConstantOfShape(s) }}"""
    assert bounds(text) == [(1, 9)]


def test_a_way_too_long_leaves_the_size_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of three nodes between Clip and the size two are looked at
    monkeypatch.setattr("onnxroof.scopes.MOST_NODES", 2)
    text = f"""agraph (float[1] x) => (float o) <{CLIPPED}>
        {{ c = Clip(x, lo, hi) u = Ceil(c) s = Cast <to = 7> (u) y = ConstantOfShape(s)
           o = ReduceSum(y) }}"""
    assert shapes_of(text)["y"] is None


def test_what_an_equal_node_reads_is_not_taken_for_what_this_one_reads() -> None:
    # Both add to a size of 0 to 10: one node the number 1, the other 100, which no rule works out
    other = """agraph (int64[1] x) => (float[q] a)
        <int64[1] one = {1}, int64 lo = {0}, int64 hi = {10}> {
        k = Clip(x, lo, hi) ka = Add(k, one) a = ConstantOfShape(ka) }"""
    text = """agraph (int64[1] x) => (float[q] b)
        <int64[1] h = {100}, int64[1,1] e = {1}, int64 lo = {0}, int64 hi = {10}> {
        k = Clip(x, lo, hi) w = MatMul(h, e) kb = Add(k, w)
        b = ConstantOfShape(kb) }"""
    onnxroof.analyze(model(other))
    shape = onnxroof.analyze(model(text)).tensors["b"].shape
    assert shape is None or (ends(shape[0])[0] <= 100 and ends(shape[0])[1] >= 110)


@pytest.mark.parametrize(
    "steps",
    [
        "u = Cast <to = 2> (n) f = Cast <to = 2> (five) d = Sub(u, f) s = Cast <to = 7> (d)",
        "d = Sub(n, five) u = Cast <to = 2> (d) s = Cast <to = 7> (u)",
        "b = Mul(n, big) q = Div(b, less) s = Neg(q)",
    ],
    ids=["uint8 below 0", "cast of a negative number", "int64 beyond 2^63"],
)
def test_integers_that_may_wrap_around_have_no_bounds(steps: str) -> None:
    # n is the number of elements that are not 0, 0 to 10
    text = f"""agraph (float[10] x) => (float[q] y) <int64[1] at = {{1}}, int64[1] five = {{5}},
        int64[1] big = {{{2**62}}}, int64[1] less = {{{2**60}}}> {{
        nz = NonZero(x) sh = Shape(nz) n = Gather(sh, at) {steps} y = ConstantOfShape(s) }}"""
    shape = shapes_of(model(text))["y"]
    assert shape is None or ends(shape[0])[1] >= 251


def test_the_least_of_nothing_is_no_element() -> None:
    # Where nothing is found, ReduceMin gives the largest integer, so Min the 50
    text = """agraph (float[4] x) => (float[q] y) <int64 fifty = {50}, int64[1] flat = {-1}> {
        nz = NonZero(x) m = ReduceMin <keepdims = 0> (nz) k = Min(m, fifty) s = Reshape(k, flat)
        y = ConstantOfShape(s) }"""
    shape = shapes_of(model(text))["y"]
    assert shape is None or ends(shape[0])[1] >= 50


def test_floats_counted_up_one_by_one_pass_the_limit() -> None:
    # ONNX Runtime adds 0.1 in float32 until the last element is 100,958
    text = """agraph (float x) => (float[q] y) <float zero = {0.0}, float limit = {100000.0},
        float step = {0.1}> { r = Range(zero, limit, step) m = ReduceMax <keepdims = 1> (r)
        s = Cast <to = 7> (m) y = ConstantOfShape(s) }"""
    shape = shapes_of(model(text))["y"]
    assert shape is None or ends(shape[0])[1] >= 100_958


def test_a_bounded_size_beside_padding_stays_bounded() -> None:
    # [0, 0, n] with n from 0 to 5 adds up to n
    text = """agraph (float[5] x) => (float[q] y) <int64[1] at = {1}, int64[2] pads = {2, 0}> {
        nz = NonZero(x) sh = Shape(nz) n = Gather(sh, at) p = Pad(n, pads)
        s = ReduceSum <keepdims = 1> (p) y = ConstantOfShape(s) }"""
    shape = shapes_of(model(text))["y"]
    assert shape is not None
    assert ends(shape[0]) == (0, 5)


@pytest.mark.parametrize(
    "node",
    [
        "Softmax(c)", "LogSoftmax(c)", "Hardmax(c)", "ReduceMean <keepdims = 1> (c)",
        "ReduceLogSumExp <keepdims = 1> (c)", "ArgMax <axis = 1> (c)", "LpNormalization(c)",
        "LayerNormalization(c, s)", "MeanVarianceNormalization <axes = [1]> (c)",
        "CumSum(c, one)", "DynamicQuantizeLinear(c)", "Multinomial <sample_size = 3> (c)",
        "GlobalMaxPool(d)", "GlobalLpPool <p = 1> (d)", "GlobalLpPool <p = 2> (d)",
        "InstanceNormalization(d, t, t)", "GroupNormalization <num_groups = 1> (d, t, t)",
        "Resize <mode = \"linear\"> (d, , , to8)", "Resize <mode = \"cubic\"> (d, , , to8)",
        "Resize <mode = \"linear\", antialias = 1> (d, , , to8)",
        "Resize <mode = \"linear\"> (d, , half)", "TopK(c, k)", "Relu(c)", "MatMul(e, c)",
        "DFT(f, , one)",
    ],
)  # fmt: skip
def test_the_cost_at_every_size_lies_within_that_of_a_bounded_one(node: str) -> None:
    # c has 2 × n elements, n from 0 to 8, which --dim may set
    text = f"""agraph (float[2,8] x, bool[8] p, float[3,2] e) => (float[q] z)
        <float[1] s = {{1.0}}, float[2] t = {{1.0, 1.0}}, int64 one = {{1}}, int64[1] k = {{1}},
         int64[3] to8 = {{1, 2, 8}}, float[3] half = {{1.0, 1.0, 0.5}}, int64[1] zero = {{0}},
         int64[1] last = {{-1}}> {{
        c = Compress <axis = 1> (x, p) d = Unsqueeze(c, zero) f = Unsqueeze(c, last)
        y = {node} z = Identity(y) }}"""
    text = text.replace("y = TopK", "y, i = TopK").replace(
        "y = DynamicQuantizeLinear", "y, scale, point = DynamicQuantizeLinear"
    )
    least, most = ends(onnxroof.analyze(model(text), keep_going=True).totals.flops)
    for size in range(9):
        exact = onnxroof.analyze(model(text), dims={"c.1": size}, keep_going=True)
        if not exact.problems and not exact.unresolved:
            assert least <= exact.totals.flops_min, size
            assert exact.totals.flops <= most, size
