"""QDQ graphs: operators between DequantizeLinear and QuantizeLinear as integer kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.fusion.groups import Group

if TYPE_CHECKING:
    from onnxroof.fusion.groups import Grouping


@dataclass(frozen=True, slots=True)
class IntegerKernels:
    """Groups each integer node with its activation and the requantization of its result.

    Attributes:
        name: The rule's name.
        why: What makes one kernel of it right.
    """

    name: str
    why: str

    def apply(self, grouping: Grouping) -> None:
        """Group every node that the clean-up found to compute on integers."""
        graph = grouping.graph
        for index in sorted(graph.integer):
            node = graph.nodes[index]
            members = [index]
            for name in node.node.outputs:
                reader = graph.only_reader(name) if name else -1
                while reader >= 0:
                    members.append(reader)
                    done = graph.nodes[reader].op_type == "QuantizeLinear"
                    tensor = graph.nodes[reader].node.outputs[0]
                    reader = -1 if done else graph.only_reader(tensor)
            group = Group(members, "integer", self.name, max(members))
            group.anchor, group.closed, group.integer = index, True, True
            grouping.add(group)


RULES = (
    IntegerKernels(
        name="integer-kernel",
        why="Q(op(DQ(a), DQ(b))) computed on the integers, accumulated in 32 bits and "
        "requantized before it is stored.",
    ),
)
