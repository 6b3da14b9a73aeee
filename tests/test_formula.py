from __future__ import annotations

from itertools import product
from pathlib import Path

import onnx
import pytest

import onnxroof
from onnxroof.errors import UsageError
from onnxroof.formula import QUANTITIES, ClosedForms, NoFormula, closed_forms
from onnxroof.graph.load import load_model
from onnxroof.polynomial import Polynomial
from tests.builders import model

MODELS = Path(__file__).parents[1] / "models"


def forms_of(text: str, opset: int = 21, **sizes: int) -> ClosedForms:
    return closed_forms(load_model(model(text, opset=opset)), sizes)


def topology(name: str) -> onnx.ModelProto:
    return onnx.load(MODELS / f"{name}.onnx", load_external_data=False)


def images(name: str) -> onnx.ModelProto:
    """A classifier with all but the channels of its images free."""
    proto = topology(name)
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    for axis, free in ((0, "batch"), (2, "height"), (3, "width")):
        dims[axis].dim_param = free
    return proto


CONV = """agraph (float[N,3,32,32] x, float[8,3,3,3] w, float[8] b) => (float y)
    { y = Conv <pads = [1,1,1,1]> (x, w, b) }"""


POSITIONS = """agraph (float[S,4] x, float[%d,4] table) => (float y)
    <int64[1] zero = {0}> { shape = Shape <start = 0, end = 1> (x)
    rows = Slice(table, zero, shape) y = Add(x, rows) }"""
"""A row of a table for each of S positions; beyond the table's end, a row is missing."""


# -- small graphs by hand --------------------------------------------------------------------


def test_a_peak_that_lies_elsewhere_in_small_models_is_said_to_begin_behind_them() -> None:
    # The product holds 4·(n + n + n²) bytes, the Relu 4·(n² + n²), which is more from n = 3 on and
    # as much at 2: 8·n². At n = 1 it is 12 bytes, not 8
    peak = forms_of("""agraph (float[n,1] x, float[1,n] z) => (float y)
        { a = Mul(x, z) y = Relu(a) }""").forms["peak_activation_bytes"]
    assert (str(peak), peak.domain) == ("8·n²", "n from 2")


def test_what_ends_far_up_is_not_said_to_go_on_for_ever() -> None:
    # the first 4,500 of n numbers: one FLOP each, and no more of them at n = 4,501
    flops = forms_of("""agraph (float[n] x) => (float y)
        <int64[1] zero = {0}, int64[1] end = {4500}> { p = Slice(x, zero, end) y = Relu(p) }""")
    form = flops.forms["flops"]
    low, high = form.limits["n"]
    assert (str(form), low) == ("n", None)
    assert high is not None
    assert 4000 <= high <= 4500


def test_rows_of_a_table_are_so_many_only_where_two_sizes_together_ask_for_all() -> None:
    # 8 bytes an index, 16 a row: in at most the table's 100 rows, out each. Fewer indices than
    # rows read fewer, though either size alone may be as small as 1 beside a large other one
    forms = forms_of("agraph (int64[b,s] i, float[100,4] t) => (float y) { y = Gather(t, i) }")
    traffic = forms.forms["traffic_bytes"]
    assert str(traffic) == "24·b·s + 1600"
    limits = {name: low or 1 for name, (low, _) in traffic.limits.items()}
    assert limits["b"] * limits["s"] >= 100


BENDS = {
    "one of two peaks": """agraph (float[b,h,1] x, float[b,1,w] z) => (float y)
        { a = Mul(x, z) c = Relu(a) y = ReduceSum <keepdims = 0> (c) }""",
    "keys and queries": """agraph (float[b,s,4] q, float[b,p,4] k) => (float y)
        { t = Transpose <perm = [0,2,1]> (k) a = MatMul(q, t) c = Softmax(a) y = MatMul(c, k) }""",
    "joined": """agraph (float[b,s,4] x, float[b,p,4] z) => (float y)
        { c = Concat <axis = 1> (x, z) y = Softmax(c) }""",
    "a part of at most forty": """agraph (float[h,w] x) => (float y)
        <int64[1] zero = {0}, int64[1] end = {40}, int64[1] axis = {0}>
        { p = Slice(x, zero, end, axis) y = Mul(p, p) }""",
}


@pytest.mark.parametrize("text", BENDS.values(), ids=list(BENDS))
def test_wherever_a_form_is_said_to_hold_it_gives_what_a_run_of_these_sizes_counts(
    text: str,
) -> None:
    forms = forms_of(text)
    proto, sides = model(text, opset=21), (1, 2, 3, 16, 64, 200)
    compared = 0
    for point in product(sides, repeat=len(forms.dimensions)):
        sizes = dict(zip(forms.dimensions, point, strict=True))
        counted = onnxroof.analyze(proto, dims=sizes)
        expected = {
            "macs": counted.totals.macs,
            "flops": counted.totals.flops,
            "traffic_bytes": counted.totals.traffic_bytes,
            "peak_activation_bytes": counted.memory.peak_activation_bytes,
        }
        for name, value in expected.items():
            form = forms.formula(name)
            if isinstance(form, Polynomial) and _claims(form, sizes):
                compared += 1
                assert form.at(**sizes) == value, (name, sizes)
    assert compared >= 20


def _claims(form: Polynomial, sizes: dict[str, int]) -> bool:
    """Whether the form says that it holds at these sizes."""
    return all(
        not size % form.steps.get(name, 1)
        and (form.limits.get(name, (None, None))[0] or 1) <= size
        and size <= (form.limits.get(name, (None, None))[1] or size)
        for name, size in sizes.items()
    )


def test_a_convolution_is_linear_in_its_batch() -> None:
    # 8·32·32 outputs of 27 products: 221,184·N MACs; with one addition each 450,560·N FLOPs.
    # Bytes: 4·(3·1024 + 8·1024)·N in and out, 4·(216 + 8) of weights
    forms = forms_of(CONV)
    assert forms.dimensions == ("N",)
    assert str(forms.formula("macs")) == "221184·N"
    assert str(forms.formula("flops")) == "450560·N"
    assert str(forms.formula("traffic_bytes")) == "45056·N + 896"
    assert str(forms.formula("output y[0]")) == "N"
    assert str(forms.formula("output y[1]")) == "8"
    assert all(form.domain == "" for form in forms.forms.values())


@pytest.mark.parametrize("rows", [20, 100, 512, 1000])
def test_the_largest_size_a_model_takes_is_said(rows: int) -> None:
    # a slice of at most `rows` rows against S rows: an addition for S ≤ rows, an error above
    forms = forms_of(POSITIONS % rows)
    assert str(forms.formula("flops")) == "4·S"
    assert forms.largest == {"S": rows}
    for size, problems in ((rows, 0), (rows + 1, 1)):
        proto = model(POSITIONS % rows)
        analysis = onnxroof.analyze(proto, dims={"S": size}, keep_going=True)
        assert len(analysis.problems) == problems


def test_a_limit_that_two_dimensions_share_is_none_of_either() -> None:
    # S + P rows of 512: S may be 480 beside a P of 32, and 510 beside one of 2
    shared = """agraph (float[S,4] x, float[P,4] past, float[512,4] table) => (float y)
        <int64[1] zero = {0}> { all = Concat <axis = 0> (past, x)
        shape = Shape <start = 0, end = 1> (all) rows = Slice(table, zero, shape)
        y = Add(all, rows) }"""
    forms = forms_of(shared)
    assert str(forms.formula("flops")) == "4·S + 4·P"
    assert forms.largest == {}


@pytest.mark.parametrize("rows", [100, 101, 102, 103])
def test_the_largest_size_is_right_between_the_points_of_a_lattice(rows: int) -> None:
    # a stride of 4 rounds: ⌈S / 4⌉ has a form on multiples of 4, the limit need not be one
    strided = """agraph (float[S,4] x, float[ROWS,4] table) => (float y)
        <int64[1] zero = {0}, int64[1] end = {9999}, int64[1] four = {4}> {
        shape = Shape <start = 0, end = 1> (x) rows = Slice(table, zero, shape)
        u = Add(x, rows) y = Slice(u, zero, end, zero, four) }"""
    forms = forms_of(strided.replace("ROWS", str(rows)))
    assert forms.forms["output y[0]"].steps == {"S": 4}
    assert forms.largest == {"S": rows}


def test_a_model_that_takes_every_size_has_no_largest() -> None:
    assert forms_of(CONV).largest == {}


def test_attention_is_quadratic_in_its_length() -> None:
    # q·kᵀ and p·v: 2 · B·S²·16; softmax 5·S² − 2·S per row set, S² exponentials
    forms = forms_of(
        """agraph (float[B,S,16] q, float[B,S,16] k, float[B,S,16] v) => (float y) {
        t = Transpose <perm = [0, 2, 1]> (k) s = MatMul(q, t)
        p = Softmax <axis = -1> (s) y = MatMul(p, v) }"""
    )
    assert str(forms.formula("macs")) == "32·B·S²"
    assert str(forms.formula("flops")) == "69·B·S² - 2·B·S"
    assert str(forms.formula("transcendentals")) == "B·S²"
    assert [str(forms.formula(f"output y[{axis}]")) for axis in range(3)] == ["B", "S", "16"]


def test_two_free_operands_multiply() -> None:
    forms = forms_of("agraph (float[1,A,B] x, float[1,B,C] w) => (float y) { y = MatMul(x, w) }")
    assert str(forms.formula("macs")) == "A·B·C"


def test_a_stride_rounds_so_the_form_holds_on_multiples() -> None:
    # Stride 2, padding 1: ⌈H / 2⌉ rows; on even H: 8·27·(H/2)·(H/2)·N = 54·N·H·W
    forms = forms_of(
        """agraph (float[N,3,H,W] x, float[8,3,3,3] w) => (float y)
        { y = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w) }"""
    )
    form = forms.formula("macs")
    assert isinstance(form, Polynomial)
    assert str(form) == "54·N·H·W"
    assert form.domain == "H, W multiples of 2"
    assert str(forms.formula("output y[2]")) == "1/2·H"


def test_a_wide_window_does_not_pass_for_a_constant() -> None:
    # Patches of 32: ⌊H / 32⌋ is 7 for 224 … 255. On multiples of 32 it is H / 32
    forms = forms_of(
        """agraph (float[1,3,H,32] x, float[8,3,32,32] w) => (float y)
        { y = Conv <strides = [32,32]> (x, w) }""",
        H=224,
    )
    form = forms.formula("output y[2]")
    assert isinstance(form, Polynomial)
    assert (str(form), form.domain) == ("1/32·H", "H multiples of 32")


def test_a_step_that_is_no_power_of_two_is_not_claimed() -> None:
    # ⌊N / 100⌋ has no form on multiples of up to 64
    forms = forms_of(
        """agraph (float[1,1,N] x, float[1,1,100] w) => (float y)
        { y = Conv <strides = [100]> (x, w) }"""
    )
    found = forms.formula("output y[2]")
    assert isinstance(found, NoFormula)
    assert "no polynomial in N" in found.reason
    assert str(found).startswith("no formula: ")


def test_what_another_term_takes_over_later_says_how_far_it_holds() -> None:
    # A table of 1000 rows of 4 bytes: N rows are read, until the whole table is
    forms = forms_of("agraph (int64[N] i, float[1000,1] t) => (float y) { y = Gather(t, i) }")
    form = forms.formula("traffic_bytes")
    assert isinstance(form, Polynomial)
    # 8 bytes of index, 4 read, 4 written for each of the N rows
    assert str(form) == "16·N"
    low, high = form.limits["N"]
    assert low is None
    assert high is not None
    assert 500 <= high <= 1000
    assert form.domain == f"N up to {high}"


def test_a_rank_that_depends_on_a_size_says_bind_it() -> None:
    forms = forms_of("agraph (float[N,1,7,1] x) => (float[] y) { y = Squeeze(x) }", opset=13)
    for quantity in (*QUANTITIES, "output y[0]"):
        found = forms.formula(quantity)
        assert isinstance(found, NoFormula)
        assert "depends on N: bind it" in found.reason


def test_sizes_that_follow_from_data_are_at_most() -> None:
    # NonZero of N elements finds at most N
    forms = forms_of("agraph (float[N] x) => (int64[] y) { y = NonZero(x) }")
    form = forms.formula("output y[1]")
    assert isinstance(form, Polynomial)
    assert (str(form), form.sense) == ("N", "at most")
    assert forms.forms["parameters"].sense == "exactly"


def test_a_bound_data_dependent_size_stays_bound() -> None:
    text = "agraph (float[N] x) => (int64[] y) { y = NonZero(x) }"
    analysis = onnxroof.analyze(model(text), dims={"N": 20, "y.1": 5})
    assert str(analysis.formula("output y[1]")) == "5"


def test_uncounted_operators_make_the_form_at_least() -> None:
    proto = model(
        "agraph (float[N,4] x, float[4,4] w) => (float[N,4] z) { y = MatMul(x, w) z = my.Foo(y) }",
        opsets={"my": 1},
    )
    form = closed_forms(load_model(proto)).formula("flops")
    assert isinstance(form, Polynomial)
    assert (str(form), form.sense) == ("32·N", "at least")


def test_unknown_trips_make_the_form_per_trip() -> None:
    forms = forms_of(
        """agraph (float[N,8] x, int64 m, bool c) => (float y) {
        y = Loop(m, c, x) <body = b (int64 i, bool go, float[N,8] h) => (bool on, float[N,8] next)
            { on = Identity(go) next = Relu(h) }> }"""
    )
    form = forms.formula("flops")
    assert isinstance(form, Polynomial)
    assert (str(form), form.sense) == ("8·N", "per trip")


def test_known_trips_enter_the_form() -> None:
    forms = forms_of(
        """agraph (float[T,N,8] x, float[N,8] h) => (float y) {
        y = Scan(h, x) <num_scan_inputs = 1, body = b (float[N,8] h, float[N,8] x)
            => (float[N,8] next) { next = Add(h, x) }> }"""
    )
    assert str(forms.formula("flops")) == "8·T·N"


def test_a_model_without_free_dimensions_has_numbers() -> None:
    forms = forms_of("agraph (float[2,3] x, float[3,4] w) => (float y) { y = MatMul(x, w) }")
    assert forms.dimensions == ()
    assert str(forms.formula("macs")) == "24"


def test_dimensions_that_only_work_together_say_so() -> None:
    forms = forms_of("agraph (float[A,3] x, float[B,3] z) => (float y) { y = Add(x, z) }")
    found = forms.formula("flops")
    assert isinstance(found, NoFormula)
    assert "A cannot be varied alone" in found.reason


def test_sizes_that_never_work_ask_for_a_binding() -> None:
    forms = forms_of(
        """agraph (float[N,M] x) => (float y) <int64[2] s = {7, 11}> { y = Reshape(x, s) }"""
    )
    assert "bind N, M" in forms.reason


def test_more_dimensions_than_can_be_fitted_are_refused() -> None:
    forms = forms_of("agraph (float[A,B,C,D,E,F,G] x) => (float y) { y = Relu(x) }")
    assert "7 free dimensions are more than 6" in forms.reason


def test_a_quantity_that_does_not_exist_is_an_error_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'flops'"):
        forms_of(CONV).formula("flop")
    with pytest.raises(UsageError, match=r"output y\[9\]"):
        forms_of(CONV).formula("output y[9]")


# -- through an analysis ---------------------------------------------------------------------


def test_an_analysis_gives_the_form_at_its_own_fixed_sizes() -> None:
    # The file's 32×32 overridden by 64×64: four times the MACs a sample
    analysis = onnxroof.analyze(model(CONV), input_shapes={"x": (5, 3, 64, 64)})
    form = analysis.formula("macs")
    assert isinstance(form, Polynomial)
    assert str(form) == "884736·N"
    assert form.at(N=5) == analysis.totals.macs


def test_an_analysis_in_another_precision_has_its_bytes() -> None:
    # Half the bytes of 45056·N + 896
    form = onnxroof.analyze(model(CONV), precision="fp16").formula("traffic_bytes")
    assert str(form) == "22528·N + 448"


def test_a_dimension_without_a_name_stays_at_its_size() -> None:
    proto = model("agraph (float[N,1,8] x, float[8,4] w) => (float y) { y = MatMul(x, w) }")
    proto.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    analysis = onnxroof.analyze(proto, input_shapes={"x": (1, 3, 8)})
    assert str(analysis.formula("macs")) == "96·N"


# -- real models -----------------------------------------------------------------------------


def test_bert_is_quadratic_in_its_length() -> None:
    # 12 layers: attention products 2·768·S², projections and feed-forward 12·768² a token
    analysis = onnxroof.analyze(MODELS / "bert_base_dynamic.onnx", dims={"sequence": 128})
    form = analysis.formula("macs")
    assert isinstance(form, Polynomial)
    quadratic, linear = 12 * 2 * 768, 12 * 12 * 768**2
    assert str(form) == f"{quadratic}·batch·sequence² + {linear}·batch·sequence"
    assert form.domain == ""
    assert form.at(batch=1, sequence=128) == analysis.totals.macs


def test_a_table_of_positions_ends_the_formulas() -> None:
    # GPT-2 has 1,024 learned positions
    forms = closed_forms(load_model(MODELS / "gpt2_dynamic.onnx"))
    assert forms.largest == {"sequence": 1024}


def test_gpt2_adds_its_vocabulary() -> None:
    # As BERT, and 768·50257 a token for the logits
    form = onnxroof.analyze(MODELS / "gpt2_dynamic.onnx", dims={"sequence": 8}).formula("macs")
    linear = 12 * 12 * 768**2 + 768 * 50257
    assert str(form) == f"18432·batch·sequence² + {linear}·batch·sequence"


def test_a_cache_makes_decoding_linear_in_the_past() -> None:
    # One new token sees past + 1 keys: 12 · 2·768·(past + 1) besides the linear layers
    forms = closed_forms(load_model(MODELS / "gpt2_decode_dynamic.onnx"))
    assert forms.dimensions == ("batch", "past_sequence")
    constant = 12 * 12 * 768**2 + 768 * 50257 + 12 * 2 * 768
    assert str(forms.formula("macs")) == f"18432·batch·past_sequence + {constant}·batch"
    assert str(forms.formula("output present.0.key[2]")) == "past_sequence + 1"


def test_resnet_holds_on_multiples_of_its_stride() -> None:
    # 4,089,184,256 MACs at 224×224, of which 2048·1000 in the classifier: the rest by pixel
    proto = images("resnet50")
    analysis = onnxroof.analyze(proto, dims={"height": 224, "width": 224})
    form = analysis.formula("macs")
    assert isinstance(form, Polynomial)
    by_pixel, rest = divmod(4_089_184_256 - 2_048_000, 224 * 224)
    assert rest == 0
    assert str(form) == f"{by_pixel}·batch·height·width + 2048000·batch"
    assert form.domain == "height, width multiples of 32"
    assert (
        form.at(batch=2, height=320, width=96)
        == onnxroof.analyze(proto, dims={"batch": 2, "height": 320, "width": 96}).totals.macs
    )


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("bert_base_dynamic", {"batch": 3, "sequence": 77}),
        ("lstm_2x512_dynamic", {"batch": 5, "sequence": 211}),
        ("minilm_l6_dynamo", {"batch": 2, "sequence": 300}),
        ("gpt2_decode_dynamic", {"batch": 4, "past_sequence": 55}),
    ],
)
def test_every_form_gives_the_total_at_a_size_never_probed(name: str, dims: dict[str, int]) -> None:
    analysis = onnxroof.analyze(MODELS / f"{name}.onnx", dims=dims)
    totals = analysis.totals
    values = {
        "macs": totals.macs,
        "flops": totals.flops,
        "traffic_bytes": totals.traffic_bytes,
        "fused_traffic_bytes": analysis.kernels.traffic_bytes,
        "peak_activation_bytes": analysis.memory.peak_activation_bytes,
    }
    checked = 0
    for quantity, value in values.items():
        form = analysis.formula(quantity)
        if isinstance(form, NoFormula):
            continue
        inside = all((high or 10**9) >= dims[name] for name, (_, high) in form.limits.items())
        if inside:
            assert form.at(**dims) == value, quantity
            checked += 1
    assert checked >= 2
