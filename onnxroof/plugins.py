"""A user's own operators: one Python function, or one line of YAML.

    register_operator("my.ops", "Foo", shape=foo_shape, cost=foo_cost)

registers for the process; a package does the same for everybody who installs it through an entry
point of the group `onnxroof.operators`, which is looked at only when a model has an operator that
nobody knows. A YAML file holds for the analyses it is given to:

    operators:
      - {domain: my.ops, op_type: Foo, outputs: ["x0[0], x0[1] * 2"], flops: "3 * prod(y0)"}

Expressions are parsed, never run (see `onnxroof.ops.expressions`). Such operators show in the
coverage by where they come from.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onnxroof.bounded import upper
from onnxroof.errors import UsageError, quoted
from onnxroof.files import read_small
from onnxroof.graph.types import DTYPE_BY_LABEL
from onnxroof.hardware.strict_yaml import MAX_BYTES, parse
from onnxroof.ops import load_rules
from onnxroof.ops.call import Impossible, OpCall, OpCost, TensorInfo, Undetermined
from onnxroof.ops.expressions import Expression
from onnxroof.ops.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnxroof.graph.types import DType, Graph, Node
    from onnxroof.hardware.strict_yaml import Value
    from onnxroof.ops.registry import CostRule, ShapeRule

_KEYS = ("domain", "op_type", "outputs", "dtype", "macs", "flops", "transcendentals",
         "read_bytes", "written_bytes", "control")  # fmt: skip


def register_operator(
    domain: str,
    op_type: str,
    *,
    shape: ShapeRule,
    cost: CostRule,
    since: int = 1,
    control: tuple[int, ...] = (),
    pointwise: bool = False,
) -> None:
    """Teach this process one operator.

    Args:
        domain: The operator's domain as in the file.
        op_type: Its name.
        shape: Function of an `OpCall` that returns one `TensorInfo` per output.
        cost: Function of an `OpCall` (outputs filled in) that returns an `OpCost`.
        since: First opset version of the domain for which this holds.
        control: Positions of inputs that steer it (shapes, axes), whose values `shape` may read.
        pointwise: Whether it may run inside a neighbouring kernel.

    Raises:
        ValueError: The operator has such rules already.
    """
    registry = load_rules()
    entry = registry.entry(domain, op_type)
    if since in entry.shape_rules or since in entry.cost_rules:
        raise ValueError(f"operator {domain}.{op_type} since {since} is registered already")
    registry.set_traits(domain, op_type, control=control, pointwise=pointwise, source="plug-in")
    entry.shape_rules[since] = shape
    entry.cost_rules[since] = cost


def read_operators(path: str | os.PathLike[str]) -> Registry:
    """A registry with the operators of a YAML file on top of the built-in ones.

    Raises:
        UsageError: The file cannot be read, or an entry is not understood; the message names the
            entry and the key.
    """
    where = str(path)
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"operators {path!r:.200}: the path of a YAML file is meant")
    try:
        data = read_small(path, MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{where}: cannot be read: {reason}") from None
    document = parse(data, what="file of operators")
    if document.root is None or document.problems:
        listed = "; ".join(map(str, document.problems)) or "not a mapping"
        raise UsageError(f"{where}: {listed}")
    entries = document.root.get("operators")
    if set(document.root) != {"operators"} or not isinstance(entries, list):
        raise UsageError(f"{where}: must hold one key, operators, with a list")
    registry = Registry(load_rules())
    for position, entry in enumerate(entries):
        try:
            _add(registry, entry)
        except UsageError as error:
            raise UsageError(f"{where}: operators.{position}: {error}") from None
    return registry


def unmatched(registry: Registry, graph: Graph) -> tuple[str, ...]:
    """A sentence for every operator of a YAML file of which the graph has no node."""
    nodes = {(node.domain, node.op_type) for node in _all_nodes(graph)}
    return tuple(
        f"the operators file describes {_full_name(operator.domain, operator.op_type)}, of which"
        f" the model has no node{_elsewhere(operator.op_type, nodes)}"
        for operator in registry
        if operator.source == "YAML" and (operator.domain, operator.op_type) not in nodes
    )


def _all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of all bodies in it."""
    for node in graph.nodes:
        yield node
        for _, body in node.subgraphs:
            yield from _all_nodes(body)


def _full_name(domain: str, op_type: str) -> str:
    return f"{domain or 'ai.onnx'}.{op_type}"


def _elsewhere(op_type: str, nodes: set[tuple[str, str]]) -> str:
    """Where the model has an operator of that name, for a domain that was misspelt."""
    found = sorted(_full_name(domain, name) for domain, name in nodes if name == op_type)
    return f"; it has {', '.join(found)}" if found else ""


def _add(registry: Registry, entry: Value) -> None:
    if not isinstance(entry, dict):
        raise UsageError("must be a mapping with domain, op_type, outputs, flops")
    for key in entry:
        if key not in _KEYS:
            raise UsageError(f"unknown key {quoted(key)}; known: {', '.join(_KEYS)}")
    domain, op_type = entry.get("domain", ""), entry.get("op_type")
    if not isinstance(domain, str) or not isinstance(op_type, str) or not op_type:
        raise UsageError("domain and op_type must be text")
    domain = "" if domain == "ai.onnx" else domain
    outputs = entry.get("outputs")
    if not isinstance(outputs, list) or not all(isinstance(text, str) for text in outputs):
        raise UsageError('outputs must be a list of texts, one shape per output: ["x0[0], 8"]')
    if "flops" not in entry:
        raise UsageError("flops is missing (0 where the operator computes nothing)")
    shape = _ShapeRule([_dims(str(text)) for text in outputs], _dtype(entry.get("dtype")))
    cost = _CostRule({key: _expression(entry[key], key) for key in _KEYS[4:9] if key in entry})
    control = entry.get("control") or []
    if not isinstance(control, list) or not all(type(i) is int for i in control):
        raise UsageError("control must be a list of input positions")
    registry.set_traits(domain, op_type, source="YAML", control=tuple(control))
    target = registry.entry(domain, op_type)
    if target.shape_rules:
        raise UsageError(f"{_full_name(domain, op_type)} is described twice")
    target.shape_rules[1] = shape
    target.cost_rules[1] = cost


def _dims(text: str) -> list[Expression]:
    """A shape as text: dimensions separated by commas outside brackets; "" is a scalar."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    parts.append(current)
    return [Expression(part) for part in parts if part.strip()]


def _dtype(label: Value) -> DType | None:
    if label is None:
        return None
    dtype = DTYPE_BY_LABEL.get(str(label))
    if dtype is None:
        raise UsageError(f"dtype {label!r} is not one of {', '.join(DTYPE_BY_LABEL)}")
    return dtype


def _expression(value: Value, key: str) -> Expression:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UsageError(f"{key} must be an expression or a whole number")
    return Expression(str(value))


def _names(call: OpCall) -> dict[str, int | tuple[int, ...]]:
    """What an expression may name: input and output shapes, integer attributes."""
    names: dict[str, int | tuple[int, ...]] = {}
    for name, value in call.attributes.items():
        if isinstance(value, int):
            names[name] = value
        elif isinstance(value, tuple):
            numbers = tuple(item for item in value if isinstance(item, int))
            if len(numbers) == len(value):
                names[name] = numbers
    for letter, infos in (("x", call.inputs), ("y", call.outputs)):
        for position, info in enumerate(infos):
            if info is not None and info.shape is not None:
                names[f"{letter}{position}"] = info.shape
    return names


def _value(expression: Expression, names: Mapping[str, int | tuple[int, ...]]) -> int:
    try:
        value = expression(names)
    except UsageError as error:
        raise Undetermined(str(error)) from None
    if upper(value) < 0:
        raise Impossible(f"expression {expression.text!r} is negative here: {value}")
    return value


class _ShapeRule:
    """Outputs by expressions."""

    def __init__(self, outputs: Sequence[Sequence[Expression]], dtype: DType | None) -> None:
        self.outputs = outputs
        self.dtype = dtype

    def __call__(self, call: OpCall) -> list[TensorInfo]:
        """Sizes of the outputs; the type of the first input unless the file says another."""
        names = _names(call)
        dtype = self.dtype or call.input(0).dtype
        return [
            TensorInfo(dtype, tuple(_value(dim, names) for dim in dims)) for dims in self.outputs
        ]


class _CostRule:
    """Work and traffic by expressions."""

    def __init__(self, formulas: Mapping[str, Expression]) -> None:
        self.formulas = formulas

    def __call__(self, call: OpCall) -> OpCost:
        """The cost at the call's shapes."""
        names = _names(call)
        counts = {key: _value(formula, names) for key, formula in self.formulas.items()}
        reads = writes = None
        if "read_bytes" in counts:
            reads = {**dict.fromkeys(range(len(call.inputs)), 0), 0: counts["read_bytes"]}
        if "written_bytes" in counts:
            writes = {**dict.fromkeys(range(call.output_count), 0), 0: counts["written_bytes"]}
        return OpCost(
            counts.get("macs", 0),
            counts["flops"],
            counts.get("transcendentals", 0),
            reads,
            writes,
        )
