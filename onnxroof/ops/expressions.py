"""Arithmetic over input shapes, written as text in a user's YAML; parsed, never run as Python.

    x0[0] * x0[1] // stride * ceil_div(x0[2], 2)

`x0`, `x1` … are the shapes of the inputs, `y0` … those of the outputs (in costs), attribute names
their integer values. Known: + − * // % unary minus, parentheses, `[i]`, `len`, `prod`, `sum`,
`min`, `max`, `ceil_div`. Everything is an exact integer; sizes that are only bounded stay so.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

from onnxroof.bounded import largest, smallest, upper
from onnxroof.errors import UsageError
from onnxroof.ops.geometry import ceil_div

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Names = Mapping[str, "int | tuple[int, ...]"]

LONGEST = 1000
"""Characters of an expression; longer ones are refused."""

_OF_A_SHAPE: Mapping[str, Callable[[tuple[int, ...]], int]] = {
    "len": len,
    "prod": math.prod,
    "sum": sum,
}
"""Functions of one shape."""

_OF_NUMBERS: Mapping[str, Callable[..., int]] = {
    "min": lambda *values: smallest(*_flat(values)),
    "max": lambda *values: largest(*_flat(values)),
    "ceil_div": ceil_div,
}
"""Functions of numbers: ceil_div of two, min and max of any, or of a shape's."""

_FUNCTIONS = (*_OF_A_SHAPE, *_OF_NUMBERS)

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _flat(values: tuple[int | tuple[int, ...], ...]) -> tuple[int, ...]:
    if len(values) == 1 and isinstance(values[0], tuple):
        return values[0]
    return tuple(value for value in values if isinstance(value, int))


class _NoValue(Exception):  # noqa: N818 - an answer, not a failure
    """Why an expression has no value at the names given; the message is for people."""


class Expression:
    """One parsed expression.

    Raises:
        UsageError: The text is not such an expression; the message shows the part that is not.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise UsageError(f"expression longer than {LONGEST} characters: {text[:40]!r}…")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
            _check(self._tree, text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UsageError(f"not an expression: {text!r}") from None
        called = {id(node.func) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
        self.names = tuple(
            dict.fromkeys(
                node.id
                for node in ast.walk(self._tree)
                if isinstance(node, ast.Name) and id(node) not in called
            )
        )
        """The names it reads, in order."""

    def __call__(self, names: Names) -> int:
        """The value at the given names.

        Raises:
            UsageError: A name is not known, an index is out of range or a division is by zero.
        """
        try:
            result = _evaluate(self._tree, names)
        except _NoValue as reason:
            raise UsageError(f"expression {self.text!r} cannot be evaluated: {reason}") from None
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
            raise UsageError(f"expression {self.text!r} cannot be evaluated") from None
        if not isinstance(result, int):
            raise UsageError(f"expression {self.text!r} gives a shape where a number is needed")
        return result

    def __reduce__(self) -> tuple[type[Expression], tuple[str]]:
        return (Expression, (self.text,))


def _check(tree: ast.AST, text: str) -> None:
    """Refuse everything outside the little language."""
    for node in ast.walk(tree):
        if not _is_allowed(node):
            shown = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise UsageError(f"{shown!r} is not allowed in expression {text!r}")


_PARTS = (ast.BinOp, ast.UnaryOp, ast.USub, ast.Name, ast.Load, ast.Subscript, ast.Slice)


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        return name in _FUNCTIONS and not node.keywords
    return isinstance(node, _PARTS) or type(node) in _OPERATORS


def _evaluate(node: ast.expr, names: Names) -> int | tuple[int, ...]:
    if isinstance(node, ast.Constant):
        return int(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise _NoValue(f"unknown name {node.id}; known: {', '.join(names)}")
        return names[node.id]
    if isinstance(node, ast.Subscript):
        return _item(node, names)
    if isinstance(node, ast.UnaryOp):
        return -_number(node.operand, names)
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left, names), _number(node.right, names)
        if isinstance(node.op, ast.FloorDiv | ast.Mod) and not upper(right):
            raise _NoValue(f"{ast.unparse(node)} divides by zero")
        return _OPERATORS[type(node.op)](left, right)
    assert isinstance(node, ast.Call)
    return _call(node, names)


def _call(node: ast.Call, names: Names) -> int:
    name = node.func.id  # type: ignore[attr-defined]
    values = [_evaluate(argument, names) for argument in node.args]
    shown = ast.unparse(node)
    if name in _OF_A_SHAPE:
        if len(values) != 1 or not isinstance(values[0], tuple):
            raise _NoValue(f"{shown}: one shape is meant, as in {name}(x0)")
        return _OF_A_SHAPE[name](values[0])
    if name == "ceil_div":
        if len(values) != 2 or not all(isinstance(value, int) for value in values):
            raise _NoValue(f"{shown}: two numbers are meant, as in ceil_div(x0[0], 2)")
        if not upper(values[1]):  # type: ignore[arg-type]
            raise _NoValue(f"{shown} divides by zero")
    elif values == [()]:
        raise _NoValue(f"{shown}: the shape is that of a scalar, it has no sizes")
    elif not values or (len(values) > 1 and not all(isinstance(value, int) for value in values)):
        raise _NoValue(f"{shown}: one shape or several numbers are meant")
    return _OF_NUMBERS[name](*values)


def _item(node: ast.Subscript, names: Names) -> int | tuple[int, ...]:
    value = _evaluate(node.value, names)
    shown = ast.unparse(node.value)
    if not isinstance(value, tuple):
        raise _NoValue(f"{shown} is a number, it has no [ ]")
    if isinstance(node.slice, ast.Slice):
        ends = (node.slice.lower, node.slice.upper, node.slice.step)
        start, stop, step = (None if end is None else _number(end, names) for end in ends)
        if step == 0:
            raise _NoValue(f"{ast.unparse(node)}: the step of a slice cannot be 0")
        return value[start:stop:step]
    position = _number(node.slice, names)
    if not -len(value) <= position < len(value):
        raise _NoValue(f"{shown} has {len(value)} dimensions, [{position}] is out of range")
    return value[position]


def _number(node: ast.expr, names: Names) -> int:
    value = _evaluate(node, names)
    if not isinstance(value, int):
        raise _NoValue(f"{ast.unparse(node)} is a shape, not a number")
    return value
