"""What an operator's rules see and return: `TensorInfo`, `OpCall`, `OpCost`.

A rule is a pure function of an `OpCall`: element types, shapes, attributes and the values of the
few tiny tensors that control shapes. Two nodes with equal calls have equal results, so results are
memoized by signature, within one model and across the candidates of a search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from onnxroof.bounded import BoundedInt, interval, is_exact, lower, upper

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from onnxroof.cost import CallCost, Role
    from onnxroof.graph.types import AttributeValue, Constant, DType, Node
    from onnxroof.ops.control_flow import Body
    from onnxroof.ops.registry import Operator
    from onnxroof.ranges import Range

    Value = NDArray[np.generic]

Shape = tuple[int, ...]
T = TypeVar("T")


MALFORMED = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a rule may stumble over in a node that is not what its schema says."""


class RuleError(Exception):
    """Base of the two answers a rule can give instead of a result; never leaves the package."""


class Undetermined(RuleError):  # noqa: N818 - an answer, not a failure
    """The file alone does not tell; the message says what is missing."""


class Impossible(RuleError):  # noqa: N818 - an answer, not a failure
    """The inputs contradict the operator's text; the message says how."""


class TensorInfo:
    """What is known of one value before the model runs. Never changed after it is published.

    Attributes:
        dtype: Element type; None when unknown.
        shape: Exact sizes, or `BoundedInt` where only bounds are known; None: not even the rank.
        kind: "tensor", "sequence", "optional" or "map".
        items: Elements of a sequence, when each is known.
        element: What the elements of a sequence or optional have in common.
        constant: Derived from constants alone: a runtime folds it before the first inference.
        exact: No dimension is merely bounded.
        nbytes: Bytes, packed; None for strings and where the shape or type is unknown.
        key: Hashable signature (without the value).
    """

    __slots__ = (
        "_source", "_value", "_value_key", "constant", "dtype", "element", "exact", "items", "key",
        "kind", "nbytes", "shape",
    )  # fmt: skip

    def __init__(
        self,
        dtype: DType | None,
        shape: Shape | None,
        *,
        value: Value | None = None,
        constant: bool = False,
        kind: str = "tensor",
        items: tuple[TensorInfo, ...] | None = None,
        element: TensorInfo | None = None,
        source: Constant | None = None,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.kind = kind
        self.items = items
        self.element = element
        self.constant = constant
        self._value = value
        self._source = source
        self._value_key: tuple[object, ...] | None = None
        self.exact: bool
        self.key: tuple[object, ...]
        self.nbytes: int | None
        if kind == "tensor":
            self.exact = not (
                (shape is not None and BoundedInt in map(type, shape))
                or (value is not None and value.dtype == object)
            )
            self.key = (dtype, shape, constant)
            known = dtype is not None and shape is not None
            self.nbytes = dtype.nbytes(math.prod(shape)) if known else None  # type: ignore[union-attr, arg-type]
            return
        self.exact = all(item.exact for item in items or ()) and (element is None or element.exact)
        inner = (
            None if element is None else element.key,
            None if items is None else tuple([item.key for item in items]),
        )
        self.key = (kind, dtype, constant, inner)
        self.nbytes = self._bytes_of_parts()

    @property
    def value(self) -> Value | None:
        """The elements, for tiny constants and shape arithmetic; None when not known."""
        if self._value is None and self._source is not None:
            self._value = self._source.value
            if self._value is None:
                self._source = None
        return self._value

    @property
    def value_key(self) -> tuple[object, ...]:
        """Signature with the value, when there is one."""
        if self._value_key is None:
            self._value_key = self._made_value_key()
        return self._value_key

    def _made_value_key(self) -> tuple[object, ...]:
        """From the stored bytes where these are at hand: most values are never looked at."""
        if self._source is not None and self._source.raw is not None:
            return (*self.key, self._source.raw)
        value = self.value
        return self.key if value is None else (*self.key, tuple(value.ravel().tolist()))

    @property
    def may_have_value(self) -> bool:
        """Whether `value` is known or can be read."""
        return self._value is not None or (self._source is not None and self._source.may_have_value)

    @property
    def rank(self) -> int:
        """Number of dimensions. Raises Undetermined when unknown."""
        return len(self.dims)

    @property
    def dims(self) -> Shape:
        """The shape. Raises Undetermined when unknown."""
        if self.shape is None:
            raise Undetermined("the shape of an input is not known")
        return self.shape

    @property
    def elements(self) -> int:
        """Number of elements. Raises Undetermined when unknown."""
        return math.prod(self.dims)

    def _bytes_of_parts(self) -> int | None:
        """Bytes of a sequence's elements, or of an optional's."""
        if self.items is None:
            return self.element.nbytes if self.kind == "optional" and self.element else None
        parts = [item.nbytes for item in self.items]
        return None if None in parts else sum(part or 0 for part in parts)

    def like(self, shape: Shape | None = None, dtype: DType | None = None) -> TensorInfo:
        """A fresh, non-constant tensor of the same type and shape unless given otherwise."""
        return TensorInfo(dtype or self.dtype, self.shape if shape is None else shape)

    def marked(self, *, constant: bool) -> TensorInfo:
        """The same with the `constant` mark as given."""
        if self.constant == constant:
            return self
        return TensorInfo(
            self.dtype, self.shape, value=self._value, constant=constant, kind=self.kind,
            items=self.items, element=self.element, source=self._source,
        )  # fmt: skip

    def stored_as(self, dtype: DType) -> TensorInfo:
        """The same tensor stored as another type; what is known of its elements stays known."""
        return TensorInfo(
            dtype, self.shape, value=self._value, constant=self.constant, source=self._source
        )

    def __repr__(self) -> str:
        label = self.dtype.label if self.dtype else "?"
        shape = "?" if self.shape is None else "×".join(map(str, self.shape)) or "scalar"
        return f"{label}[{shape}]" if self.kind == "tensor" else f"{self.kind} of {self.element}"


def _whole_numbers(value: Value, what: str) -> Shape:
    """Floats that stand for integers, as in Tile before opset 6."""
    numbers = value.ravel().tolist()
    if not all(map(float.is_integer, numbers)):
        raise Impossible(f"{what} should be integers")
    return tuple(map(int, numbers))


class OpCall:
    """One operator with its inputs as known. `outputs` is filled after the shape rule ran.

    Inputs are taken by position, in the order of the operator's text; an absent optional input is
    None. Rules raise `Undetermined` through the accessors when something they need is not known.

    `constants` and `activations` are the positions of the inputs that are constant and that are
    not. `folded` says that all inputs are constants; `reason` why outputs are not known; `problem`
    why the node cannot be; `bodies` are the subgraphs a control-flow operator runs; `cost`, and
    `roles` of stored tensors by position and origin, are filled by the cost stage.
    """

    __slots__ = (
        "activations", "attributes", "bodies", "constants", "cost", "folded", "inputs", "node",
        "notes", "operator", "output_count", "outputs", "problem", "reason", "roles",
    )  # fmt: skip

    def __init__(
        self, node: Node, inputs: tuple[TensorInfo | None, ...], operator: Operator | None = None
    ) -> None:
        self.node = node
        self.inputs = inputs
        constants: list[int] = []
        activations: list[int] = []
        for position, info in enumerate(inputs):
            if info is not None:
                (constants if info.constant else activations).append(position)
        self.constants = tuple(constants)
        self.activations = tuple(activations)
        self.operator = operator
        self.folded = False
        self.reason = ""
        self.problem = ""
        self.bodies: tuple[Body, ...] = ()
        self.cost: CallCost | None = None
        self.roles: dict[tuple[int, str], Role | None] = {}
        self.attributes: Mapping[str, AttributeValue] = dict(node.attributes)
        self.output_count = len(node.outputs)
        self.outputs: tuple[TensorInfo, ...] = ()
        self.notes: tuple[str, ...] = ()

    @property
    def needs_attention(self) -> bool:
        """Whether the walk has more to do than to take the outputs."""
        if self.reason or self.problem or self.notes:
            return True
        operator = self.operator
        return (
            operator is not None
            and operator.data_dependent
            and not all(info.exact for info in self.outputs)
        )

    @property
    def only_moves(self) -> bool:
        """Whether the output holds the first input's values, in another shape or order."""
        operator = self.operator
        return self.kind == "Transpose" or (operator is not None and operator.view)

    @property
    def op_type(self) -> str:
        """The operator's name."""
        return self.node.op_type

    @property
    def kind(self) -> str:
        """What rules know the operator by."""
        return self.node.kind

    @property
    def opset(self) -> int:
        """The opset version of the operator's domain in this file."""
        return self.node.opset

    def has(self, position: int) -> bool:
        """Whether the optional input is given."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def wants(self, position: int) -> bool:
        """Whether the file names (so uses) this output."""
        outputs = self.node.outputs
        return position < len(outputs) and bool(outputs[position])

    def input(self, position: int) -> TensorInfo:
        """A required input. Raises Impossible when the node does not give it."""
        info = self.inputs[position] if position < len(self.inputs) else None
        if info is None:
            raise Impossible(f"required input {position} is missing")
        return info

    def given(self) -> tuple[TensorInfo, ...]:
        """The inputs that are present, in order."""
        return tuple(info for info in self.inputs if info is not None)

    def shape(self, position: int) -> Shape:
        """Shape of an input. Raises Undetermined when not known."""
        info = self.input(position)
        if info.shape is None:
            raise Undetermined(f"the shape of input {position} is not known")
        return info.shape

    def output(self, position: int = 0) -> TensorInfo:
        """An output, for cost rules. Raises Undetermined when the shape rule could not size it."""
        if position >= len(self.outputs):
            raise Undetermined(f"output {position} is not known")
        return self.outputs[position]

    def value(self, position: int) -> Value | None:
        """The value of an input that is a known tiny tensor, else None."""
        info = self.inputs[position] if position < len(self.inputs) else None
        return None if info is None else info.value

    def ints(self, position: int, what: str) -> Shape:
        """The value of a control input as a flat tuple of integers.

        Args:
            position: Which input.
            what: What it controls, for the message ("axes", "the target shape").

        Raises:
            Impossible: It holds no integers.
            Undetermined: Its value is not known before the model runs.
        """
        value = self.value(position)
        if value is None:
            self.input(position)
            raise Undetermined(f"{what} (input {position}) is computed at run time")
        if value.dtype.kind == "f":
            return _whole_numbers(value, f"{what} (input {position})")
        return tuple(value.ravel().tolist())

    def exact_ints(self, position: int, what: str) -> Shape:
        """As `ints`, for what must be known exactly: an axis lies between no two others.

        Raises:
            Undetermined: The value is not known, or by its bounds alone.
        """
        values = self.ints(position, what)
        if not all(map(is_exact, values)):
            raise Undetermined(f"{what} (input {position}) is computed at run time")
        return values

    def exact_ints_from(self, name: str, position: int, what: str) -> Shape | None:
        """As `ints_from`, for what must be known exactly."""
        if name in self.attributes or not self.has(position):
            return self.ints_from(name, position, what)
        return self.exact_ints(position, what)

    def ints_from(self, name: str, position: int, what: str) -> Shape | None:
        """A parameter that moved from an attribute to an input: whichever is given, or None."""
        attribute = self.attributes.get(name)
        if attribute is not None:
            return attribute if isinstance(attribute, tuple) else (attribute,)  # type: ignore[return-value]
        return self.ints(position, what) if self.has(position) else None

    def attr(self, name: str, default: T) -> T:
        """An attribute, or its default in the operator's text; of the default's type."""
        value = self.attributes.get(name, default)
        if default is not None and not isinstance(value, type(default)):
            if isinstance(default, float) and isinstance(value, int):
                return float(value)  # type: ignore[return-value]
            raise Impossible(f"attribute {name} has the wrong type")
        return value  # type: ignore[return-value]

    def ints_attr(self, name: str) -> Shape | None:
        """An attribute that is a list of integers, or None when not given."""
        value = self.attributes.get(name)
        if value is None:
            return None
        if not isinstance(value, tuple):
            raise Impossible(f"attribute {name} should be a list of integers")
        return value  # type: ignore[return-value]

    def note(self, sentence: str) -> None:
        """Record an assumption a rule had to make; shown in the report with the node's name."""
        if sentence not in self.notes:
            self.notes = (*self.notes, sentence)


class RangedCall(OpCall):
    """A call of which the ranges of the inputs' elements are known, None for an absent input."""

    __slots__ = ("ranges",)

    def __init__(
        self, call: OpCall, inputs: tuple[TensorInfo | None, ...], ranges: tuple[Range | None, ...]
    ) -> None:
        super().__init__(call.node, inputs, call.operator)
        self.outputs = call.outputs
        self.ranges = ranges

    def range(self, position: int) -> Range:
        """The range of an input. Raises Impossible when the node does not give it."""
        found = self.ranges[position] if position < len(self.ranges) else None
        if found is None:
            raise Impossible(f"required input {position} is missing")
        return found

    def given_ranges(self) -> tuple[Range, ...]:
        """Those of the inputs that are present, in order."""
        return tuple(found for found in self.ranges if found is not None)


@dataclass(frozen=True, slots=True)
class OpCost:
    """What one operator call costs, by its formula.

    Attributes:
        macs: Multiply-accumulate pairs of convolution, matrix product, attention, recurrence.
        flops: 2·macs plus every other arithmetic operation.
        transcendentals: exp, log, tanh, erf, sin, root, power evaluations; also in flops.
        reads: Bytes really read of an input, by position, where that is not the whole tensor.
        writes: Bytes really written of an output, by position, where not the whole tensor.
        compute_dtype: Type of the multiply-accumulates; None: that of the first input.
        note: One line on what the formula assumed.
    """

    macs: int = 0
    flops: int = 0
    transcendentals: int = 0
    reads: Mapping[int, int] | None = None
    writes: Mapping[int, int] | None = None
    compute_dtype: DType | None = None
    note: str = ""

    def __add__(self, other: OpCost) -> OpCost:
        """Work of both; traffic overrides are dropped, since positions differ."""
        return OpCost(
            self.macs + other.macs,
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            compute_dtype=self.compute_dtype or other.compute_dtype,
        )


FREE = OpCost()
"""No arithmetic; traffic by the default rule."""


def unless_none(count: int, cost: OpCost) -> OpCost:
    """The cost of work on so many elements: nothing for none, at least nothing if there may be."""
    if not upper(count):
        return FREE
    if lower(count) > 0:
        return cost
    return replace(
        cost,
        macs=interval(0, max(upper(cost.macs), 0)),
        flops=interval(0, max(upper(cost.flops), 0)),
        transcendentals=interval(0, max(upper(cost.transcendentals), 0)),
    )


def no_work(call: OpCall) -> OpCost:  # noqa: ARG001 - every rule takes the call
    """Free of arithmetic; every input is read once and every output written once."""
    return FREE


def no_traffic(call: OpCall) -> OpCost:
    """Free of arithmetic, and no bytes are moved: a view of the input, or metadata alone."""
    return OpCost(
        reads=dict.fromkeys(range(len(call.inputs)), 0),
        writes=dict.fromkeys(range(call.output_count), 0),
    )
