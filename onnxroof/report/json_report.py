"""`Analysis` → the JSON report: the dictionary of `onnxroof.document`, indented."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onnxroof.document import as_dict

if TYPE_CHECKING:
    from onnxroof.analysis import Analysis
    from onnxroof.lint.result import LintResult
    from onnxroof.memory.order import NodeOrder


def render_json(
    analysis: Analysis,
    *,
    with_tensors: bool = False,
    with_formulas: bool = False,
    findings: LintResult | None = None,
    order: NodeOrder | None = None,
) -> str:
    """Everything the run found, in base units; documented in docs/json.md.

    ASCII only, so that no name from a file can be mangled or break a terminal.
    """
    document = as_dict(analysis, with_tensors=with_tensors, order=order)
    if with_formulas:
        from onnxroof.report.formulas import formulas_data

        document["formulas"] = formulas_data(analysis.formulas)
    if findings is not None:
        from onnxroof.lint.render import finding_dict

        document["findings"] = [finding_dict(finding) for finding in findings.findings]
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
