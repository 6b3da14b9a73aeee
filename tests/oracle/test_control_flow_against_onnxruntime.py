"""Control flow and data-dependent sizes: what onnxruntime returns lies within what we say.

Exact sizes must be met exactly; where only bounds can be known, real runs on several inputs must
stay between them, and the case says which axes those are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

from onnxroof.bounded import ends, is_exact
from onnxroof.graph.types import DTYPE_BY_CODE
from tests.builders import model, shaped

if TYPE_CHECKING:
    import onnx

onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.oracle

YES = "bool yes = {1}, bool no = {0}"
ONE = "float[1,2] row = {1.0, 2.0}, int64 one = {1}, int64 two = {2}, int64 three = {3}"
CONSTANTS = f"{YES}, {ONE}, int64 trips = {{5}}, int64 none = {{0}}, int64[1] flat = {{-1}}"

GROWS = """<body = b (int64 i, bool go, float[n,2] h) => (bool on, float[k,2] next)
    { on = Identity(go) next = Concat <axis = 0> (h, row) }>"""
SHRINKS = """<body = b (int64 i, bool go, float[n,2] h) => (bool on, float[k,2] next)
    { on = Identity(go) from1 = Constant <value_ints = [1]> ()
      to99 = Constant <value_ints = [99]> () next = Slice(h, from1, to99) }>"""
KEEPS = """<body = b (int64 i, bool go, float[3,2] h)
    => (bool on, float[3,2] next, float[2,3] out)
    { on = Identity(go) next = Add(h, h) out = Transpose(h) }>"""

CASES: dict[str, tuple[str, str, str]] = {
    # name: inputs, nodes, per output the axes that are bounded only
    "if that is known": (
        "float[3,2] x",
        """y = If(yes) <then_branch = t () => (float a) { a = Transpose(x) },
                        else_branch = e () => (float b) { b = Identity(x) }>""",
        "y:",
    ),
    "if by the shape": (
        "float[3,2] x",
        """s = Shape(x) n = Gather(s, none) c = Equal(n, three)
           y = If(c) <then_branch = t () => (float a) { a = Transpose(x) },
                      else_branch = e () => (float b) { b = Identity(x) }>""",
        "y:",
    ),
    "if that is not known": (
        "float[3,2] x, bool c",
        """y = If(c) <then_branch = t () => (float a) { a = Concat <axis = 0> (x, x) },
                      else_branch = e () => (float b) { b = Identity(x) }>""",
        "y:0",
    ),
    "if that is not known, of two results": (
        "float[3,2] x, bool c",
        """y, z = If(c) <then_branch = t () => (float a, float[3,2] p)
                             { a = Concat <axis = 1> (x, x) p = Relu(x) },
                         else_branch = e () => (float b, float[3,2] q)
                             { b = Identity(x) q = Neg(x) }>""",
        "y:1 z:",
    ),
    "if in if": (
        "float[3,2] x, bool c",
        """y = If(yes) <then_branch = t () => (float a) {
               a = If(c) <then_branch = u () => (float p) { p = Concat <axis = 0> (x, x) },
                          else_branch = v () => (float q) { q = Identity(x) }> },
             else_branch = e () => (float b) { b = Transpose(x) }>""",
        "y:0",
    ),
    "loop": ("float[3,2] x", f"y, z = Loop(trips, yes, x) {KEEPS}", "y: z:"),
    "loop of no trip": ("float[3,2] x", f"y, z = Loop(none, yes, x) {KEEPS}", "y: z:"),
    "loop that never starts": ("float[3,2] x", f"y, z = Loop(trips, no, x) {KEEPS}", "y: z:"),
    "loop without a condition": ("float[3,2] x", f"y, z = Loop(trips, , x) {KEEPS}", "y: z:"),
    "loop by the shape": (
        "float[3,2] x",
        f"s = Shape(x) n = Gather(s, one) y, z = Loop(n, yes, x) {KEEPS}",
        "y: z:",
    ),
    "loop by the data": (
        "float[3,2] x, float[4] d",
        f"w = NonZero(d) s = Shape(w) n = Gather(s, one) y, z = Loop(n, yes, x) {KEEPS}",
        "y: z:0",
    ),
    "loop that stops": (
        "float[3,2] x",
        """y, z = Loop(trips, yes, x) <body = b (int64 i, bool go, float[3,2] h)
            => (bool on, float[3,2] next, float[3] out)
            { on = Less(i, one) next = Add(h, h) out = ReduceSum(h, axis) }>""",
        "y: z:0",
    ),
    "loop that stops by the data": (
        "float[3,2] x, float d",
        """y, z = Loop(trips, yes, x) <body = b (int64 i, bool go, float[3,2] h)
            => (bool on, float[3,2] next, int64 out)
            { f = Cast <to = 1> (i) on = Less(f, d) next = Add(h, h) out = Identity(i) }>""",
        "y: z:0",
    ),
    "list that grows": ("float[3,2] x", f"y = Loop(trips, yes, x) {GROWS}", "y:"),
    "list that grows many times": (
        "float[3,2] x", f"m = Constant <value_int = 400> () y = Loop(m, yes, x) {GROWS}", "y:",
    ),
    "list that grows by the data": (
        "float[3,2] x, float[4] d",
        f"w = NonZero(d) s = Shape(w) n = Gather(s, one) y = Loop(n, yes, x) {GROWS}",
        "y:0",
    ),
    "list that grows from nothing, by bounded rows": (
        "float[3,2] x, float[4] d",
        """w = NonZero(d) e = Transpose(w) f = Cast <to = 1> (e) g = Concat <axis = 1> (f, f)
           m = Constant <value_int = 300> () a = Constant <value_ints = [0, 2]> ()
           start = ConstantOfShape(a)
           y = Loop(m, yes, start) <body = b (int64 i, bool go, float[n,2] h)
               => (bool on, float[k,2] next)
               { on = Identity(go) next = Concat <axis = 0> (g, h) }>""",
        "y:0",
    ),
    "list that shrinks": (
        "float[9,2] x",
        f"y = Loop(three, yes, x) {SHRINKS}",
        "y:",
    ),
    "list that shrinks by the data": (
        "float[9,2] x, float[4] d",
        f"w = NonZero(d) s = Shape(w) n = Gather(s, one) y = Loop(n, yes, x) {SHRINKS}",
        "y:0",
    ),
    "list that keeps what the data say": (
        "float[9,2] x, bool[9] c",
        """m = Constant <value_int = 300> ()
           y = Loop(m, yes, x) <body = b (int64 i, bool go, float[n,2] h)
            => (bool on, float[k,2] next)
            { on = Identity(go) s1 = Shape(h) r = Gather(s1, none) q = Reshape(r, flat)
              zz = Constant <value_ints = [0]> () k0 = Slice(c, zz, q)
              next = Compress <axis = 0> (h, k0) }>""",
        "y:0",
    ),
    "sequence from a branch": (
        "float[3,2] x, bool c",
        """l = If(c) <then_branch = t () => (seq(float[3,2]) a) { a = SequenceConstruct(x, x) },
                     else_branch = e () => (seq(float[3,2]) b) { b = SequenceConstruct(x) }>
           y = SequenceAt(l, none)""",
        "y:",
    ),
    "one after the other": (
        "float[3,2] x, float[4,2] w",
        """l = SequenceConstruct(x, w)
           m = SequenceMap(l) <body = b (float[n,2] e) => (float[2,n] t) { t = Transpose(e) }>
           y = ConcatFromSequence <axis = 1> (m)""",
        "y:",
    ),
    "sequence that loses and wins": (
        "float[3,2] x",
        """l = SequenceConstruct(x, x, x)
           k = Loop(two, yes, l) <body = b (int64 i, bool go, seq(float[a,2]) h)
               => (bool on, seq(float[a,2]) next)
               { on = Identity(go) g = SequenceErase(h, none) p = Concat <axis = 0> (x, x)
                 next = SequenceInsert(g, p) }>
           y = ConcatFromSequence <axis = 0> (k)""",
        "y:",
    ),
    "loop in loop": (
        "float[3,2] x",
        """y, z = Loop(three, yes, x) <body = o (int64 i, bool go, float[3,2] h)
            => (bool on, float[3,2] r, float[a,3,2] out)
            { on = Identity(go)
              r, out = Loop(two, yes, h) <body = p (int64 j, bool g, float[3,2] q)
                  => (bool k, float[3,2] t, float[3,2] u)
                  { k = Identity(g) t = Add(q, x) u = Relu(q) }> }>""",
        "y: z:",
    ),
    "sequence that grows": (
        "float[3,2] x",
        """e = SequenceEmpty()
           l = Loop(trips, yes, e) <body = b (int64 i, bool go, seq(float[3,2]) h)
               => (bool on, seq(float[3,2]) next)
               { on = Identity(go) next = SequenceInsert(h, x) }>
           y = ConcatFromSequence <axis = 1> (l) z = SequenceLength(l)""",
        "y: z:",
    ),
    "scan": (
        "float[2] x, float[5,2] s",
        """y, z = Scan <num_scan_inputs = 1, body = b (float[2] h, float[2] e)
               => (float[2] r, float[2] o) { r = Add(h, e) o = Relu(r) }> (x, s)""",
        "y: z:",
    ),
    "scan along other axes": (
        "float[2] x, float[2,5] s",
        """y, z = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1],
               scan_input_directions = [1], body = b (float[2] h, float[2] e)
               => (float[2] r, float[2] o) { r = Add(h, e) o = Relu(r) }> (x, s)""",
        "y: z:",
    ),
    "scan of two": (
        "float[2] x, float[5,2] s, float[3,5] t",
        """y, z = Scan <num_scan_inputs = 2, scan_input_axes = [0, 1],
               body = b (float[2] h, float[2] e, float[3] f)
               => (float[2] r, float[5] o) { r = Add(h, e) o = Concat <axis = 0> (r, f) }>
               (x, s, t)""",
        "y: z:",
    ),
    "rows that are not zero": ("float[4] d", "y = NonZero(d)", "y:1"),
    "different values": ("float[6] d", "y, z = Unique(d)", "y:0 z:0"),
    "rows that are chosen": (
        "float[4,2] x, bool[4] c", "y = Compress <axis = 0> (x, c)", "y:0",
    ),
    "boxes that are kept": (
        "float[1,6,4] x, float[1,2,6] s",
        """m = Constant <value_int = 3> () t = Constant <value_float = 0.5> ()
           y = NonMaxSuppression(x, s, m, t)""",
        "y:0",
    ),
    "as many as the data say": (
        "float[3,6] x, uint8 n",
        "k = Cast <to = 7> (n) l = Reshape(k, flat) y, z = TopK(x, l)",
        "y:1 z:1",
    ),
    "resized as the data say": (
        "float[1,2,4,4] x, float[2] d",
        """lo = Constant <value_float = 1.0> () hi = Constant <value_float = 7.5> ()
           c = Clip(d, lo, hi) u = Ceil(c) n = Cast <to = 7> (u)
           nc = Constant <value_ints = [1, 2]> () s = Concat <axis = 0> (nc, n)
           y = Resize <mode = "linear"> (x, , , s)""",
        "y:2,3",
    ),
    "cut out as the data say": (
        "float[9,2] x, int64[2] d",
        """lo = Constant <value_int = 1> () hi = Constant <value_int = 6> ()
           c = Clip(d, lo, hi) s, e = Split <num_outputs = 2> (c) y = Slice(x, s, e)""",
        "y:0",
    ),
    "masks pasted one by one": (
        "float[4,4] boxes, float[4,6,6] masks, float[4] d",
        """zero = Constant <value_float = 0.0> () size = Constant <value_float = 12.0> ()
           a = Max(boxes, zero) b = Min(a, size) corners = Cast <to = 7> (b)
           w = NonZero(d) s = Shape(w) n = Gather(s, one)
           none12 = Constant <value_ints = [0, 12, 12]> () start = ConstantOfShape(none12)
           y = Loop(n, yes, start) <body = b (int64 i, bool go, float[r,12,12] h)
               => (bool on, float[q,12,12] next) {
               on = Identity(go) box = Gather(corners, i) mask = Gather(masks, i)
               x0 = Gather(box, none) y0 = Gather(box, one)
               x1 = Gather(box, two) y1 = Gather(box, three)
               p = Sub(x1, x0) w0 = Max(p, one) v = Sub(y1, y0) h0 = Max(v, one)
               w1 = Reshape(w0, flat) h1 = Reshape(h0, flat)
               axes = Constant <value_ints = [0, 1]> () m4 = Unsqueeze(mask, axes)
               oo = Constant <value_ints = [1, 1]> () to = Concat <axis = 0> (oo, h1, w1)
               big = Resize <mode = "linear"> (m4, , , to)
               twelve = Constant <value_ints = [12]> ()
               hp = Sub(twelve, h1) wp = Sub(twelve, w1)
               zz = Constant <value_ints = [0, 0, 0, 0, 0, 0]> ()
               pads = Concat <axis = 0> (zz, hp, wp) full = Pad(big, pads)
               first = Constant <value_ints = [0]> () one3 = Squeeze(full, first)
               next = Concat <axis = 0> (h, one3) }>""",
        "y:0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_real_run_lies_within(name: str) -> None:
    inputs, nodes, outputs = CASES[name]
    expected = dict(part.split(":") for part in outputs.split())
    text = (
        f"agraph ({inputs}) => ({', '.join(expected)})"
        f" <{CONSTANTS}, int64[1] axis = {{1}}> {{ {nodes} }}"
    )
    proto = model(text, opset=18, ir=8)
    graph, findings = shaped(proto)
    assert not findings.problems
    del proto.graph.output[:]
    for output in expected:
        info = graph.tensors[output]
        assert info.dtype is not None
        proto.graph.output.append(helper.make_tensor_value_info(output, info.dtype.code, None))
    session = session_of(proto)
    rng = np.random.default_rng(0)
    for _ in range(20):
        results = session.run(None, {item.name: _data(item, rng) for item in session.get_inputs()})
        for (output, axes), result in zip(expected.items(), results, strict=True):
            info = graph.tensors[output]
            assert info.dtype is DTYPE_BY_CODE[helper.np_dtype_to_tensor_dtype(result.dtype)]
            assert info.shape is not None, output
            bounded = [str(axis) for axis, dim in enumerate(info.shape) if not is_exact(dim)]
            assert bounded == list(filter(None, axes.split(","))), output
            limits = [ends(dim) for dim in info.shape]
            assert len(limits) == result.ndim
            for (least, most), size in zip(limits, result.shape, strict=True):
                assert least <= size <= most, output


def session_of(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _data(item: onnxruntime.NodeArg, rng: np.random.Generator) -> np.ndarray:
    """Random data: floats around 0 with some zeros, flags, small integers."""
    shape = item.shape
    if item.type == "tensor(bool)":
        return np.asarray(rng.uniform(size=shape) < 0.5)
    if item.type in ("tensor(uint8)", "tensor(int64)"):
        kind = np.uint8 if item.type == "tensor(uint8)" else np.int64
        return rng.integers(0, 7, shape).astype(kind)
    data = rng.normal(2, 8, shape).astype(np.float32)
    return np.where(rng.uniform(size=shape) < 0.3, np.float32(0), data).astype(np.float32)
