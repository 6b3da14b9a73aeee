"""Every error a user can meet, with its exit code; messages say what, where and what to do.

Unknown operators, unresolved shapes and missing peaks are not errors: they are data in the
result. An error means that no honest answer exists for the input as given.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

_LONGEST_NAME = 200
"""Names come from files; a longer one is cut in messages."""


def quoted(name: str) -> str:
    """A name from a file, quoted, control characters escaped, cut to a sane length."""
    shown = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"
    return "'" + "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown) + "'"


def named(names: Collection[str], most: int = 3) -> str:
    """Some names for a message: "a, b, c and 4 more"."""
    shown = list(names)[:most]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


class OnnxroofError(Exception):
    """Base of every error raised on purpose; `exit_code` is the command line's answer."""

    exit_code = 1

    def __reduce__(self) -> tuple[object, ...]:
        """Errors travel between processes whatever their constructor takes."""
        return (_restored, (type(self), self.args, vars(self)))


@contextmanager
def about(path: str) -> Iterator[None]:
    """Name the file in an error about one of several."""
    try:
        yield
    except OnnxroofError as error:
        text = str(error)
        if path not in text:
            error.args = (f"{quoted(path)}: {text}", *error.args[1:])
        raise


def _restored(
    kind: type[OnnxroofError], args: tuple[object, ...], state: dict[str, object]
) -> OnnxroofError:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


class UsageError(OnnxroofError):
    """An option that cannot be understood."""

    exit_code = 2


class ModelError(OnnxroofError):
    """Something is wrong with the model file."""

    exit_code = 3


class ModelUnreadableError(ModelError):
    """The file cannot be read or is not an ONNX model."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class InvalidGraphError(ModelError):
    """The file is an ONNX model, but its graph breaks a rule no reader can repair."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


class ShapeError(OnnxroofError):
    """Shapes that cannot be."""

    exit_code = 4


class UnboundDimensionError(ShapeError):
    """Free dimensions of the graph inputs that nobody bound."""

    def __init__(self, dims: Sequence[tuple[str, str]]) -> None:
        """Take (name of the dimension, flag that binds it) pairs."""
        names = ", ".join(quoted(name) for name, _ in dims)
        flags = " ".join(dict.fromkeys(flag for _, flag in dims))
        super().__init__(f"free dimensions without a size: {names}; bind them, as in: {flags}")
        self.dims = tuple(dims)


_MOST_LISTED = 12
"""Names a message lists before it gives the number of the rest."""


class UnknownDimensionError(ShapeError):
    """A binding for a dimension or input that the model does not have."""

    def __init__(
        self,
        kind: str,
        name: str,
        close_matches: Sequence[str],
        known: Sequence[str],
        opening: str = "",
    ) -> None:
        """Take what is known, and the option that would open a dimension where none is free."""
        hint = f"; did you mean {quoted(close_matches[0])}?" if close_matches else ""
        listed = named([quoted(k) for k in known], _MOST_LISTED)
        has = f"it has: {listed}" if known else "its sizes are fixed"
        if opening and not known:
            has += f"; {opening} opens one"
        super().__init__(f"the model has no {kind} named {quoted(name)}{hint} ({has})")
        self.kind = kind
        self.name = name
        self.close_matches = tuple(close_matches)


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """One node that cannot be: its name, operator, inputs as text and the reason."""

    node: str
    op_type: str
    inputs: str
    reason: str

    def __str__(self) -> str:
        return f"node {quoted(self.node)} ({self.op_type}) with inputs {self.inputs}: {self.reason}"


class SizeOutOfBoundsError(ShapeError):
    """A binding for a size that depends on the data, to one that no data give."""

    def __init__(self, name: str, size: int, low: int, high: int) -> None:
        super().__init__(
            f"{quoted(name)} cannot be {size}: it is at least {low} and at most {high}"
        )
        self.name = name
        self.size = size
        self.low = low
        self.high = high


class ShapeMismatchError(ShapeError):
    """Nodes whose inputs contradict the operator's text."""

    def __init__(self, problems: Sequence[NodeProblem]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}")
        self.problems = tuple(problems)


class ProfileError(OnnxroofError):
    """Something is wrong with a hardware profile."""

    exit_code = 5


class UnknownProfileError(ProfileError):
    """No shipped profile has this name."""

    def __init__(self, name: str, close_matches: Sequence[str], available: Sequence[str]) -> None:
        hint = f"; did you mean {quoted(close_matches[0])}?" if close_matches else ""
        super().__init__(
            f"no hardware profile named {quoted(name)}{hint}; `onnxroof hw list` has all"
            f" {len(available)}, and a file of your own is given by its path: --hw ./my-board.yaml"
        )
        self.name = name
        self.close_matches = tuple(close_matches)
        self.available = tuple(available)


@dataclass(frozen=True, slots=True)
class ProfileProblem:
    """One thing wrong in a profile: the dotted path of the key and what to do."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidProfileError(ProfileError):
    """A hardware profile that cannot be used; lists every problem at once."""

    def __init__(self, path: str, problems: Sequence[ProfileProblem]) -> None:
        listed = "".join(f"\n  {problem}" for problem in problems)
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__(f"{path}: {count}{listed}")
        self.path = path
        self.problems = tuple(problems)


class UnsupportedOperatorError(OnnxroofError):
    """Operators without a formula; raised only when the caller asked for strictness."""

    exit_code = 1

    def __init__(self, operators: Sequence[str], reasons: Sequence[str] = ()) -> None:
        detail = "; ".join(reasons) if reasons else ", ".join(operators)
        super().__init__(f"not everything could be counted: {detail}")
        self.operators = tuple(operators)


class MeasurementError(OnnxroofError):
    """Measurements that cannot be read or mean nothing: traces, tables, a machine too busy."""

    exit_code = 6

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where = where
        self.reason = reason
