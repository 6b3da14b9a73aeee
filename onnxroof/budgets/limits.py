"""The limits one can set: flag, key in a budget file, metric and unit.

The command line lists them before any command runs, so nothing heavy is imported up here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.quantities import BYTES, COUNT, SECONDS, parse_amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.budgets.records import Limit


@dataclass(frozen=True, slots=True)
class LimitKind:
    """A limit one can set.

    Attributes:
        key: In a budget file: "max_latency"; the flag is the same with hyphens.
        metric: Name of the metric.
        unit_factors: Units it may be written in.
        what: What it limits, for the command line.
        example: An amount as one might be meant.
    """

    key: str
    metric: str
    unit_factors: Mapping[str, float]
    what: str
    example: str

    @property
    def help(self) -> str:
        """For the command line."""
        return f"{self.what}: {self.example}."

    @property
    def flag(self) -> str:
        """On the command line."""
        return "--" + self.key.replace("_", "-")

    def limit(self, text: str, where: str) -> Limit:
        """The limit from text. Raises UsageError for an amount that cannot be read."""
        from onnxroof.budgets.records import Limit
        from onnxroof.metrics import METRICS

        amount = parse_amount(text, self.unit_factors, where, self.example)
        return Limit(METRICS[self.metric], amount, self.key.startswith("min_"))


KINDS = (
    LimitKind("max_latency", "latency_seconds", SECONDS, "Time of one run", "5ms"),
    LimitKind("min_throughput", "throughput", COUNT, "Samples a second", "200"),
    LimitKind(
        "max_peak_memory", "peak_memory_bytes", BYTES, "Weights and live activations", "64MiB"
    ),
    LimitKind("max_activations", "peak_activation_bytes", BYTES, "Live activations alone", "4MiB"),
    LimitKind(
        "max_traffic", "traffic_bytes", BYTES, "Bytes the kernels move, on each --hw", "50MB"
    ),
    LimitKind("max_flops", "flops", COUNT, "Floating-point operations", "2G"),
    LimitKind("max_macs", "macs", COUNT, "Multiply-accumulates", "1G"),
    LimitKind("max_params", "parameters", COUNT, "Parameters", "5M"),
    LimitKind("max_model_size", "model_bytes", BYTES, "The file and its external data", "20MB"),
    LimitKind("max_kernels", "kernels", COUNT, "Kernels a runtime launches, on each --hw", "200"),
)
"""Every limit, in the order of reports."""
