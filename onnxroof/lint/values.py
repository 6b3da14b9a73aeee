"""The values of an analysis' weights, as weight rules see them: measured once, viewed on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.cost import Role
from onnxroof.graph.weights import WeightsUnavailable
from onnxroof.lint.statistics import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onnxroof.analysis import Analysis
    from onnxroof.cost import Weight
    from onnxroof.graph.types import Constant
    from onnxroof.graph.weights import Bits, WeightReader
    from onnxroof.lint.statistics import WeightStatistics

    Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """A weight and what its values are like."""

    constant: Constant
    statistics: WeightStatistics


class WeightValues:
    """Statistics of every readable weight, and views for closer looks.

    Attributes:
        measured: The weights that could be read, in the order of the file.
        unreadable: Reason → names of the weights that could not.
        read_bytes: Bytes looked at.
    """

    def __init__(
        self, analysis: Analysis, reader: WeightReader, progress: Progress | None = None
    ) -> None:
        """Measure all weights in one pass.

        Args:
            analysis: The run; its weights are read.
            reader: Where to read them.
            progress: Called with (bytes done, bytes in all) after each tensor.
        """
        self._reader = reader
        self.unreadable: dict[str, list[str]] = {}
        self.read_bytes = 0
        weights = [weight for weight in analysis.cost.weights if weight.role is Role.WEIGHT]
        total = sum(weight.stored_bytes or 0 for weight in weights)
        self.measured = tuple(self._measure(weights, total, progress))

    def _measure(
        self, weights: list[Weight], total: int, progress: Progress | None
    ) -> Iterator[Measured]:
        done = 0
        for weight in weights:
            constant = weight.constant
            try:
                bits = self._reader.bits(constant)
            except WeightsUnavailable as answer:
                self.unreadable.setdefault(str(answer), []).append(constant.name)
            else:
                self.read_bytes += bits.nbytes
                yield Measured(constant, measure(bits, constant.dtype))
            done += weight.stored_bytes or 0
            if progress is not None:
                progress(done, total)

    def bits(self, constant: Constant) -> Bits:
        """Bit patterns of a measured weight's elements, flat."""
        return self._reader.bits(constant)

    @property
    def skipped(self) -> Mapping[str, int]:
        """Reason → how many weights could not be read."""
        return {reason: len(names) for reason, names in self.unreadable.items()}
