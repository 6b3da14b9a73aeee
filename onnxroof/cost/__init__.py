"""Third stage: `ShapedGraph` → `GraphCost`: work, parameters and compulsory traffic per node.

`records` are the results, `constants` decides what each constant is for, `count` applies the cost
rules, `totals` sums up.
"""

from onnxroof.cost.count import count_costs
from onnxroof.cost.records import (
    BodyCost,
    CallCost,
    GraphCost,
    NodeCost,
    Role,
    Status,
    Weight,
)
from onnxroof.cost.totals import Coverage, Totals, coverage, each_body, total

__all__ = [
    "BodyCost",
    "CallCost",
    "Coverage",
    "GraphCost",
    "NodeCost",
    "Role",
    "Status",
    "Totals",
    "Weight",
    "count_costs",
    "coverage",
    "each_body",
    "total",
]
