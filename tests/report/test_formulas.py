from __future__ import annotations

import json

from onnxroof.formula import ClosedForms, closed_forms
from onnxroof.graph.load import load_model
from onnxroof.report.formulas import formulas_data, formulas_text
from tests.builders import model

CONV = """agraph (float[N,3,H,32] x, float[8,3,3,3] w) => (float y)
    { y = Conv <pads = [1,1,1,1], strides = [2,1]> (x, w) }"""


def forms_of(text: str) -> ClosedForms:
    return closed_forms(load_model(model(text)))


def line(text: str, label: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(label))


def test_every_total_and_output_has_a_line() -> None:
    text = formulas_text(forms_of(CONV))
    assert text.splitlines()[0] == "in N, H, for H multiples of 2"
    # 8·27·32·(H / 2)·N = 3456·N·H
    assert line(text, "MACs").split("  ")[-1].strip() == "= 3456·N·H"
    assert line(text, "output y").endswith("= [N, 8, 1/2·H, 32]")
    assert text.endswith("\n")


def test_the_largest_size_is_in_the_heading_and_in_the_data() -> None:
    forms = forms_of("""agraph (float[S,4] x, float[100,4] table) => (float y)
        <int64[1] zero = {0}> { shape = Shape <start = 0, end = 1> (x)
        rows = Slice(table, zero, shape) y = Add(x, rows) }""")
    assert formulas_text(forms).splitlines()[0] == "in S (the model takes S 100, not 101)"
    assert formulas_data(forms)["largest_sizes"] == {"S": 100}
    assert formulas_data(forms_of(CONV))["largest_sizes"] == {}


def test_bounds_are_told_from_values() -> None:
    text = formulas_text(forms_of("agraph (float[N] x) => (int64[] y) { y = NonZero(x) }"))
    assert line(text, "output y").endswith("= [1, ≤N]")


def test_a_reason_stands_where_a_formula_is_missing() -> None:
    text = formulas_text(forms_of("agraph (float[N,1] x) => (float[] y) { y = Squeeze(x) }"))
    assert text == "in N\nno formula: the rank of y depends on N: bind it\n"


def test_a_model_without_free_dimensions_says_so() -> None:
    text = formulas_text(forms_of("agraph (float[7] x) => (float y) { y = Relu(x) }"))
    assert text.startswith("no free dimensions")
    assert line(text, "FLOPs").endswith("= 7")


def test_names_from_files_cannot_move_the_cursor() -> None:
    proto = model("agraph (float[N] x) => (float y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "a\x1b[2Jb"
    proto.graph.node[0].output[0] = proto.graph.output[0].name = "y\nz"
    text = formulas_text(closed_forms(load_model(proto)))
    assert "\x1b" not in text
    assert all(part.isprintable() for part in text.splitlines())
    assert len(text.splitlines()) == 10


def test_outputs_come_in_the_order_people_count() -> None:
    outputs = ", ".join(f"float y{i}" for i in (10, 2, 1))
    nodes = " ".join(f"y{i} = Relu(x)" for i in (10, 2, 1))
    text = formulas_text(forms_of(f"agraph (float[N] x) => ({outputs}) {{ {nodes} }}"))
    assert [row.split()[1] for row in text.splitlines()[-3:]] == ["y1", "y2", "y10"]


def test_the_data_hold_exact_terms() -> None:
    data = formulas_data(forms_of(CONV))
    json.dumps(data, allow_nan=False)
    assert (data["schema_version"], data["dimensions"]) == (1, ["N", "H"])
    formulas = {item["quantity"]: item for item in data["formulas"]}  # type: ignore[index, union-attr]
    assert formulas["macs"]["terms"] == [{"coefficient": "3456", "exponents": {"N": 1, "H": 1}}]
    assert formulas["output y[2]"]["terms"] == [{"coefficient": "1/2", "exponents": {"H": 1}}]
    assert formulas["macs"]["multiples_of"] == {"H": 2}
    assert formulas["macs"]["limits"] == {}
    assert formulas["macs"]["sense"] == "exactly"
    assert (data["missing"], data["reason"]) == ([], None)


def test_the_data_of_a_missing_formula_hold_the_reason() -> None:
    data = formulas_data(forms_of("agraph (float[N,1] x) => (float[] y) { y = Squeeze(x) }"))
    assert data["formulas"] == []
    assert data["reason"] == "the rank of y depends on N: bind it"
