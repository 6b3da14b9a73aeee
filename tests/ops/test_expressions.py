from __future__ import annotations

import contextlib
import pickle

import pytest

from onnxroof.bounded import BoundedInt, ends
from onnxroof.errors import UsageError
from onnxroof.ops.expressions import LONGEST, Expression

NAMES = {"x0": (2, 3, 4), "x1": (), "stride": 2, "pads": (1, 1)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("x0[0] * x0[1]", 6),
        ("x0[-1]", 4),
        ("prod(x0)", 24),
        ("prod(x1)", 1),
        ("len(x0)", 3),
        ("sum(x0[1:])", 7),
        ("prod(x0[:-1])", 6),
        ("prod(x0[::2])", 8),
        ("max(x0)", 4),
        ("min(x0[0], 5, stride)", 2),
        ("(x0[2] + 2 * pads[0] - 3) // stride + 1", 2),  # (4 + 2 − 3) // 2 + 1
        ("ceil_div(x0[1], stride)", 2),
        ("x0[1] % stride", 1),
        ("-x0[0]", -2),
        ("  7  ", 7),
        ("2 * prod(x0) - -1", 49),
    ],
)
def test_an_expression_has_its_value(text: str, value: int) -> None:
    assert Expression(text)(NAMES) == value


def test_large_numbers_stay_exact() -> None:
    assert Expression("prod(x0)")({"x0": (2**40, 2**40)}) == 2**80


def test_bounds_stay_bounds() -> None:
    names = {"x0": (BoundedInt(12, 3), 5)}
    assert ends(Expression("2 * x0[0]")(names)) == (6, 24)
    assert ends(Expression("min(x0)")(names)) == (3, 5)
    assert ends(Expression("max(x0)")(names)) == (5, 12)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "x0.append", "lambda: 1", "[1, 2]", "1.5", "'text'",
        "True", "x0 if x0 else 1", "x0[0] / 2", "x0[0] ** 9", "1 << 64", "a and b", "1 < 2",
        "open(x0)", "print", "prod(*x0)", "min(x0, key=len)", "(y := 3)", "f'{x0}'", "~x0[0]",
        "+x0[0]", "not x0", "x0[0] @ 1", "{1: 2}", "None", "1; 2", "", "x0[", "\0", "await x",
        "x0[0] | 1",
    ],
)  # fmt: skip
def test_everything_else_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(UsageError):
        Expression(text)(NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y7[0]", "unknown name y7; known: x0, x1"),
        ("x0[9]", "out of range"),
        ("x0[0] // 0", "cannot be evaluated"),
        ("x0", "a shape where a number is needed"),
        ("x0 + 1", "x0 is a shape"),
        ("stride[0]", "stride is a number"),
        ("len(stride)", "cannot be evaluated"),
        ("max(x1)", "cannot be evaluated"),
        ("ceil_div(1)", "cannot be evaluated"),
        ("x0[::0]", "cannot be evaluated"),
        ("prod()", "cannot be evaluated"),
    ],
)
def test_what_cannot_be_evaluated_says_why(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Expression(text)(NAMES)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("y7[0]", "unknown name y7; known: x0, x1, stride, pads"),
        ("x1[4]", "x1 has 0 dimensions, [4] is out of range"),
        ("x0[0] // 0", "x0[0] // 0 divides by zero"),
        ("stride % 0", "stride % 0 divides by zero"),
        ("ceil_div(1, 0)", "ceil_div(1, 0) divides by zero"),
        ("len(stride)", "len(stride): one shape is meant, as in len(x0)"),
        ("prod(2, 3)", "prod(2, 3): one shape is meant, as in prod(x0)"),
        ("max(x1)", "max(x1): the shape is that of a scalar, it has no sizes"),
        ("min(x0, x0)", "min(x0, x0): one shape or several numbers are meant"),
        ("ceil_div(x0, 2)", "ceil_div(x0, 2): two numbers are meant, as in ceil_div(x0[0], 2)"),
        ("x0[::0]", "x0[::0]: the step of a slice cannot be 0"),
    ],
)
def test_the_reason_is_a_sentence_of_ours_not_of_python(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        Expression(text)(NAMES)
    assert str(caught.value) == f"expression {text!r} cannot be evaluated: {reason}"


def test_an_endless_expression_is_refused() -> None:
    with pytest.raises(UsageError, match="longer than"):
        Expression("1+" * LONGEST + "1")


@pytest.mark.parametrize("text", ["(" * 499 + "1" + ")" * 499, "-" * 900 + "1", "1" * 1000])
def test_deep_and_long_expressions_do_not_crash(text: str) -> None:
    with contextlib.suppress(UsageError):
        Expression(text)(NAMES)


def test_an_expression_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(Expression("2 * x0[0]")))(NAMES) == 4
