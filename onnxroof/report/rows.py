"""The rows every table is made of: one per kernel, node, operator type or scope.

Reads the finished `Analysis`. A fused kernel runs as one, so its time stands at its anchor: in a
table by node, operator type or scope the other nodes of the kernel show their counts and no time,
and the column still adds up to the latency.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from onnxroof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from onnxroof.analysis import Analysis
    from onnxroof.cost import NodeCost
    from onnxroof.fusion.plan import Kernel, KernelPlan
    from onnxroof.roofline import RooflineResult

NO_SCOPE = "(no scope)"


class By(Enum):
    """What one row stands for."""

    KERNEL = "kernel"
    NODE = "node"
    OP_TYPE = "op-type"
    SCOPE = "scope"


class Sort(Enum):
    """What rows are ordered by, the largest first; names from A to Z."""

    TIME = "time"
    FLOPS = "flops"
    MACS = "macs"
    BYTES = "bytes"
    INTENSITY = "intensity"
    PARAMS = "params"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class RowTime:
    """A row's time on one device.

    Attributes:
        seconds: Time of the kernels anchored in this row; None when it has none.
        bound: The bound under which most of that time is spent; "" when there is none.
        share: Share of the device's latency; None when the latency is zero or there is no time.
    """

    seconds: float | None
    bound: str = ""
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table, in base units. None means unknown.

    Attributes:
        name: The kernel's or node's name, the operator, or the scope.
        op_type: The operator of a kernel's anchor or of a node; "" for a group of several.
        nodes: Nodes it stands for.
        scope: Module path of the node or the kernel's anchor.
        compute_dtype: Label of the type it computes in; "" for a group of several.
        rule: The fusion rule that made the kernel; "" otherwise.
        macs, flops, transcendentals, parameters: Counts.
        weight_bytes: Bytes of the weights as stored.
        read_bytes, written_bytes: Traffic; by kernel after fusion, else before.
        is_lower_bound: Part of a group is not known, so its sums are "at least".
        is_per_trip: Loops in it run nobody knows how often: one trip of each is counted.
        times: One per device, in the order of `Analysis.rooflines`.
    """

    name: str
    op_type: str
    nodes: int
    scope: str
    compute_dtype: str
    rule: str
    macs: int | None
    flops: int | None
    transcendentals: int | None
    parameters: int | None
    weight_bytes: int | None
    read_bytes: int | None
    written_bytes: int | None
    is_lower_bound: bool
    is_per_trip: bool
    times: tuple[RowTime, ...]

    @property
    def traffic_bytes(self) -> int | None:
        """Bytes in and out; None when a part is unknown."""
        if self.read_bytes is None or self.written_bytes is None:
            return None
        return self.read_bytes + self.written_bytes

    @property
    def arithmetic_intensity(self) -> float | None:
        """FLOP per byte; None when nothing moves or a part is unknown."""
        traffic = self.traffic_bytes
        return self.flops / traffic if traffic and self.flops is not None else None


def default_sort(analysis: Analysis) -> Sort:
    """By time where there is a device, else by FLOPs."""
    return Sort.TIME if analysis.rooflines else Sort.FLOPS


def table_rows(analysis: Analysis, by: By, sort: Sort, scope_depth: int) -> list[Row]:
    """All rows of a table, ordered.

    Args:
        analysis: The run.
        by: What a row stands for.
        sort: What to order by.
        scope_depth: How many components of a scope make a group.

    Raises:
        UsageError: Ordering by time was asked for, but no device was given.
    """
    if sort is Sort.TIME and not analysis.rooflines:
        raise UsageError("sorting by time needs a device: give one, for example --hw v100")
    makers: dict[By, Callable[[], list[Row]]] = {
        By.KERNEL: lambda: _by_kernel(analysis),
        By.NODE: lambda: [_node_row(node, times) for node, times in _with_times(analysis)],
        By.OP_TYPE: lambda: _grouped(analysis, _operator),
        By.SCOPE: lambda: _grouped(analysis, lambda node: scope_at(node.node.scope, scope_depth)),
    }
    return sorted_rows(makers[by](), sort)


def sorted_rows(rows: Iterable[Row], sort: Sort) -> list[Row]:
    """Rows in order; equal ones keep the order of execution, unknown ones come last."""
    if sort is Sort.NAME:
        return sorted(rows, key=lambda row: row.name)
    keys: dict[Sort, Callable[[Row], float | None]] = {
        Sort.TIME: lambda row: row.times[0].seconds,
        Sort.FLOPS: lambda row: row.flops,
        Sort.MACS: lambda row: row.macs,
        Sort.BYTES: lambda row: row.traffic_bytes,
        Sort.INTENSITY: lambda row: row.arithmetic_intensity,
        Sort.PARAMS: lambda row: row.parameters,
    }
    key = keys[sort]

    def descending(row: Row) -> float:
        value = key(row)
        return 1.0 if value is None else -float(value)

    return sorted(rows, key=descending)


def scope_at(scope: str, depth: int) -> str:
    """The first components of a module path; a name for nodes that have none."""
    return "/".join(scope.split("/")[:depth]) if scope else NO_SCOPE


def _by_kernel(analysis: Analysis) -> list[Row]:
    columns = [_row_times(result, analysis.kernels) for result in analysis.rooflines]
    nodes = {node.node.index: node for node in analysis.nodes}
    return [
        _kernel_row(kernel, nodes, tuple(column[place] for column in columns))
        for place, kernel in enumerate(analysis.kernels.kernels)
    ]


def _row_times(result: RooflineResult, plan: KernelPlan) -> list[RowTime]:
    """Times of a device at the kernels of a plan; "fused" where others hold the work there."""
    latency = result.latency_seconds
    return [
        RowTime(None, "fused")
        if entry is None
        else RowTime(entry[0], entry[1].value, entry[0] / latency if latency else None)
        for entry in result.at_kernels_of(plan)
    ]


def _kernel_row(kernel: Kernel, nodes: dict[int, NodeCost], times: tuple[RowTime, ...]) -> Row:
    inside = [nodes[index] for index in kernel.nodes]
    return Row(
        name=kernel.name,
        op_type=kernel.op_type,
        nodes=len(kernel.nodes),
        scope=nodes[kernel.anchor].node.scope,
        compute_dtype=kernel.compute_dtype.label if kernel.compute_dtype is not None else "",
        rule=kernel.rule,
        macs=kernel.macs,
        flops=kernel.flops,
        transcendentals=kernel.transcendentals,
        parameters=sum(node.parameters for node in inside),
        weight_bytes=kernel.weight_bytes,
        read_bytes=kernel.read_bytes,
        written_bytes=kernel.written_bytes,
        is_lower_bound=False,
        is_per_trip=any(map(_is_per_trip, inside)),
        times=times,
    )


def _is_per_trip(node: NodeCost) -> bool:
    """Whether a body in it, at any depth, runs nobody knows how often."""
    return any(body.per_trip or any(map(_is_per_trip, body.cost.nodes)) for body in node.bodies)


def _with_times(analysis: Analysis) -> list[tuple[NodeCost, tuple[RowTime, ...]]]:
    """Every node with the times of the kernels it anchors, one per device."""
    columns = [_times_of_nodes(result) for result in analysis.rooflines]
    removed = RowTime(None, "removed")
    return [
        (node, tuple(column.get(node.node.index, removed) for column in columns))
        for node in analysis.nodes
    ]


def _times_of_nodes(result: RooflineResult) -> dict[int, RowTime]:
    """A kernel's time at its anchor, "fused" at its other nodes; nothing for what is not run."""
    fused = RowTime(None, "fused")
    found = {index: fused for kernel in result.plan.kernels for index in kernel.nodes}
    times = _row_times(result, result.plan)
    found.update(
        (kernel.anchor, time) for kernel, time in zip(result.plan.kernels, times, strict=True)
    )
    return found


def _node_row(node: NodeCost, times: tuple[RowTime, ...]) -> Row:
    reads = (node.input_bytes, node.weight_read_bytes)
    return Row(
        name=node.name,
        op_type=_operator(node),
        nodes=1,
        scope=node.node.scope,
        compute_dtype=node.compute_dtype.label if node.compute_dtype is not None else "",
        rule="",
        macs=node.macs,
        flops=node.flops,
        transcendentals=node.transcendentals,
        parameters=node.parameters,
        weight_bytes=node.weight_bytes,
        read_bytes=None if None in reads else sum(part or 0 for part in reads),
        written_bytes=node.output_bytes,
        is_lower_bound=False,
        is_per_trip=_is_per_trip(node),
        times=times,
    )


def _grouped(analysis: Analysis, group_of: Callable[[NodeCost], str]) -> list[Row]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for node, times in _with_times(analysis):
        groups[group_of(node)].append(_node_row(node, times))
    return [_group_row(name, rows) for name, rows in groups.items()]


def _group_row(name: str, rows: list[Row]) -> Row:
    partial = [False]

    def add(values: Iterable[int | None]) -> int | None:
        """Sum of what is known; None when nothing is."""
        listed = list(values)
        known = [value for value in listed if value is not None]
        partial[0] |= len(known) < len(listed)
        return sum(known) if known else None

    sums = {
        field: add(getattr(row, field) for row in rows)
        for field in (
            "macs", "flops", "transcendentals", "parameters", "weight_bytes", "read_bytes",
            "written_bytes",
        )
    }  # fmt: skip
    return Row(
        name=name,
        op_type=_only({row.op_type for row in rows}),
        nodes=len(rows),
        scope=_only({row.scope for row in rows}),
        compute_dtype=_only({row.compute_dtype for row in rows}),
        rule="",
        **sums,
        is_lower_bound=partial[0],
        is_per_trip=any(row.is_per_trip for row in rows),
        times=tuple(
            _group_time(column) for column in zip(*(row.times for row in rows), strict=True)
        ),
    )


def _group_time(times: Sequence[RowTime]) -> RowTime:
    by_bound: dict[str, float] = defaultdict(float)
    for time in times:
        if time.seconds is not None:
            by_bound[time.bound] += time.seconds
    if not by_bound:
        return RowTime(None, _only({time.bound for time in times}))
    shares = [time.share for time in times if time.share is not None]
    largest = max(by_bound, key=lambda bound: by_bound[bound])
    return RowTime(sum(by_bound.values()), largest, sum(shares) if shares else None)


def _only(values: set[str]) -> str:
    return values.pop() if len(values) == 1 else ""


def _operator(node: NodeCost) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type
