"""The command `compare` as a pure function: analyses and options in, text and exit code out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxroof.compare import devices, render
from onnxroof.compare.comparison import compare
from onnxroof.compare.render import CompareFormat
from onnxroof.errors import UsageError, quoted
from onnxroof.report.render import DEFAULT_WIDTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxroof.analysis import Analysis

SLOWER = 1
"""Exit code when a model grew slower than allowed."""


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What the command line said.

    Attributes:
        top: Kernels to show, 0 for all.
        fail_above: Growth of latency that fails: 0.1 for a tenth; None: never.
        format_: What to write.
        width: Columns of the terminal, for text.
    """

    top: int = 15
    fail_above: float | None = None
    format_: CompareFormat = CompareFormat.TEXT
    width: int = DEFAULT_WIDTH


def compare_command(analyses: Sequence[Analysis], options: CompareOptions) -> tuple[str, int]:
    """Compare two analyses, or the devices of one.

    Returns:
        The report, and the exit code: 0, or 1 when latency grew more than allowed.

    Raises:
        UsageError: Nothing to compare.
    """
    markdown, width = options.format_ is CompareFormat.MARKDOWN, options.width
    if len(analyses) == 1:
        (only,) = analyses
        if not only.rooflines:
            raise UsageError("nothing to compare: give a second model, or devices (--hw NAME)")
        if options.fail_above is not None:
            raise UsageError("--fail-above compares two models; give a second one")
        if options.format_ is CompareFormat.JSON:
            return devices.as_json(only), 0
        tables = devices.sections(only, options.top)
        headline = devices.headline(only)
        return render.render(tables, headline, markdown=markdown, width=width), 0
    before, after = analyses
    found = compare(before, after)
    growth = found.growth()
    allowed = options.fail_above
    code = SLOWER if allowed is not None and growth is not None and growth > allowed else 0
    if options.format_ is CompareFormat.JSON:
        return render.as_json(found), code
    headline = render.headline(found)
    if code and allowed is not None:
        headline += f" (more than {100 * allowed:g} % is not allowed)"
    tables = render.sections(found, options.top)
    return render.render(tables, headline, markdown=markdown, width=width), code


def parse_percent(text: str, where: str) -> float:
    """A share of one from "10%" or "10". Raises UsageError for anything else."""
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 1e6:
        raise UsageError(f"{where} {quoted(text)}: a percentage is meant, for example 10%")
    return percent / 100
