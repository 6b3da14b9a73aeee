"""Which rules an operator has: registration by decorator, look-up by domain, type and version.

An operator lives in one place: its shape rule, value rule and cost rule stand side by side in its
family's file. `declare` says what is true of the operator as such. Registering twice is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, TypeVar

from onnxroof.ops.call import OpCall, OpCost, RangedCall, TensorInfo, no_traffic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxroof.ops.call import Value
    from onnxroof.ranges import Range

ShapeRule = Callable[[OpCall], "Sequence[TensorInfo]"]
ValueRule = Callable[[OpCall], "Sequence[Value | None]"]
CostRule = Callable[[OpCall], OpCost]
RangeRule = Callable[[RangedCall], "Sequence[Range]"]

R = TypeVar("R", bound=Callable[..., object])

MICROSOFT = "com.microsoft"
NCHWC = "com.microsoft.nchwc"
ML = "ai.onnx.ml"
INTERNAL_NHWC = "com.ms.internal.nhwc"


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """The rules and traits in force for one operator at one opset version.

    Attributes:
        control: Inputs that steer the operator (shapes, axes, pads, bounds); not parameters, and
            their values are what shape rules may read.
        positions: Inputs whose values, where known, are looked at though they steer nothing.
        sizes: Those that steer and hold sizes, so that bounds of their elements bound the output.
        quantization: Inputs that are scales and zero points.
        integer_weights: Inputs whose int32 or int64 constants are weights nevertheless.
        states: Inputs that are initial states; a Constant node there is a literal (zeros).
        unpacked: Elements of the weight at an input position whose stored bytes hold several
            values each; None where elements are stored as they are.
        view: The output is the input's bytes under another shape.
        pointwise: Output elements depend on the input elements at their own position alone, so
            the work can run in place and inside a neighbouring kernel.
        random: Output differs from run to run, so constants in do not make constants out.
        data_dependent: Output sizes depend on values; the shape rule returns bounds.
        value_from_shape: The value rule needs no input values (Shape, Size, SequenceLength).
        source: "built-in", "plug-in", "YAML" or "function body".
        opset: The opset version for which it was looked up.
    """

    domain: str
    op_type: str
    shape_rule: ShapeRule | None = None
    value_rule: ValueRule | None = None
    cost_rule: CostRule | None = None
    range_rule: RangeRule | None = None
    control: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    quantization: tuple[int, ...] = ()
    integer_weights: tuple[int, ...] = ()
    states: tuple[int, ...] = ()
    unpacked: Callable[[OpCall, int], int] | None = None
    view: bool = False
    pointwise: bool = False
    random: bool = False
    data_dependent: bool = False
    value_from_shape: bool = False
    free: str = ""
    source: str = "built-in"
    opset: int = 0

    def __reduce__(self) -> tuple[object, ...]:
        """Operators of the shared registry are pickled by name: their rules may be closures."""
        if self.source in ("built-in", "plug-in"):
            return (_registered, (self.domain, self.op_type, self.opset))
        return (Operator, tuple(getattr(self, item.name) for item in fields(self)))

    @property
    def qualified_name(self) -> str:
        """Domain and type: "Conv", "com.microsoft.FusedConv"."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(slots=True)
class _Entry:
    """All that was registered for one (domain, op_type), rules by the opset they hold from."""

    traits: Operator
    shape_rules: dict[int, ShapeRule] = field(default_factory=dict)
    value_rules: dict[int, ValueRule] = field(default_factory=dict)
    cost_rules: dict[int, CostRule] = field(default_factory=dict)
    range_rules: dict[int, RangeRule] = field(default_factory=dict)
    declared: bool = False


class Registry:
    """Rules by operator. One shared instance holds the built-in operators (`default_registry`)."""

    def __init__(self, base: Registry | None = None) -> None:
        """Start empty; what is not found here is looked up in `base`."""
        self._base = base
        self._entries: dict[tuple[str, str], _Entry] = {}
        self._resolved: dict[tuple[str, str, int], Operator | None] = {}

    def entry(self, domain: str, op_type: str) -> _Entry:
        """The entry to register in, made on first use."""
        self._resolved.clear()
        key = (domain, op_type)
        if key not in self._entries:
            self._entries[key] = _Entry(Operator(domain, op_type))
        return self._entries[key]

    def find(self, domain: str, op_type: str, opset: int) -> Operator | None:
        """The operator as of the opset version, or None when nobody registered it."""
        key = (domain, op_type, opset)
        if key not in self._resolved:
            entry = self._entries.get((domain, op_type))
            if entry is None and self._base is not None:
                return self._base.find(domain, op_type, opset)
            self._resolved[key] = None if entry is None else _at(entry, opset)
        return self._resolved[key]

    def __reduce__(self) -> tuple[object, ...]:
        if self is default_registry:
            return (_shared, ())
        return (_restored, (self._base, self._entries))

    def set_traits(self, domain: str, op_type: str, **traits: object) -> None:
        """Change traits (fields of `Operator`) of one operator."""
        entry = self.entry(domain, op_type)
        entry.traits = replace(entry.traits, **traits)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Operator]:
        """Every operator, at its newest rules, sorted by domain and name."""
        for key in sorted(self._entries):
            yield _at(self._entries[key], 1 << 30)


def _at(entry: _Entry, opset: int) -> Operator:
    return replace(
        entry.traits,
        shape_rule=_newest(entry.shape_rules, opset),
        value_rule=_newest(entry.value_rules, opset),
        cost_rule=_newest(entry.cost_rules, opset),
        range_rule=_newest(entry.range_rules, opset),
        opset=opset,
    )


def _newest(rules: dict[int, R], opset: int) -> R | None:
    versions = [version for version in rules if version <= opset]
    return rules[max(versions)] if versions else None


default_registry = Registry()


def _shared() -> Registry:
    """The shared registry of the process that unpickles, filled."""
    from onnxroof.ops import load_rules

    return load_rules()


def _restored(base: Registry | None, entries: dict[tuple[str, str], _Entry]) -> Registry:
    registry = Registry(base)
    registry._entries.update(entries)
    return registry


def _registered(domain: str, op_type: str, opset: int) -> Operator:
    """The operator as the unpickling process knows it; without rules where it does not."""
    from onnxroof.ops import load_plugins

    found = _shared().find(domain, op_type, opset)
    if found is None and load_plugins():
        found = _shared().find(domain, op_type, opset)
    return found or Operator(domain, op_type, source="plug-in", opset=opset)


def shape_rule(
    *op_types: str, domain: str = "", since: int = 1
) -> Callable[[ShapeRule], ShapeRule]:
    """Register how outputs are typed and sized, from opset version `since` on."""
    return _registering("shape_rules", op_types, domain, since)


def value_rule(
    *op_types: str, domain: str = "", since: int = 1
) -> Callable[[ValueRule], ValueRule]:
    """Register how output values follow from input values, used when all inputs are known."""
    return _registering("value_rules", op_types, domain, since)


def cost_rule(*op_types: str, domain: str = "", since: int = 1) -> Callable[[CostRule], CostRule]:
    """Register the formula for work (and for traffic where the default would lie)."""
    return _registering("cost_rules", op_types, domain, since)


def range_rule(
    *op_types: str, domain: str = "", since: int = 1
) -> Callable[[RangeRule], RangeRule]:
    """Register between which bounds output elements lie, given those of the inputs."""
    return _registering("range_rules", op_types, domain, since)


def _registering(
    table: str, op_types: tuple[str, ...], domain: str, since: int
) -> Callable[[R], R]:
    def register(rule: R) -> R:
        for op_type in op_types:
            rules = getattr(default_registry.entry(domain, op_type), table)
            if since in rules:
                raise ValueError(f"{table} of {domain}.{op_type} since {since} registered twice")
            rules[since] = rule
        return rule

    return register


def declare(*op_types: str, domain: str = "", **traits: object) -> None:
    """State traits of operators (fields of `Operator`), once for each."""
    for op_type in op_types:
        entry = default_registry.entry(domain, op_type)
        if entry.declared:
            raise ValueError(f"traits of {domain}.{op_type} declared twice")
        entry.declared = True
        default_registry.set_traits(domain, op_type, **traits)


def declare_view(*op_types: str, domain: str = "", control: tuple[int, ...] = ()) -> None:
    """Operators whose output is the input's bytes: no work, no traffic."""
    declare(
        *op_types, domain=domain, control=control, view=True, free="a view of its input's bytes"
    )
    cost_rule(*op_types, domain=domain)(no_traffic)
