"""`LintResult` → SARIF 2.1.0, the form in which code hosts take findings.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0, 2020.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from onnxroof import __version__
from onnxroof.lint.documentation import text_of
from onnxroof.lint.registry import all_rules
from onnxroof.lint.result import unjudged
from onnxroof.lint.rule import Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxroof.lint.result import LintResult
    from onnxroof.lint.rule import Finding

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVEL: Mapping[Severity, str] = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "note",
}
_MOST_LOCATIONS = 10


def render_sarif(result: LintResult) -> str:
    """The findings, accepted ones marked as suppressed, with every rule that found something."""
    found = [*result.findings, *(finding for finding, _ in result.accepted)]
    codes = sorted({finding.code for finding in found})
    reasons = {id(finding): reason for finding, reason in result.accepted}
    run: dict[str, object] = {
        "tool": {
            "driver": {
                "name": "onnxroof",
                "semanticVersion": __version__,
                "rules": [_rule(code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(result, finding, codes.index(finding.code), reasons.get(id(finding)))
            for finding in found
        ],
    }
    if result.unknown_nodes:
        said = {"level": "warning", "message": {"text": unjudged(result)}}
        run["invocations"] = [{"executionSuccessful": True, "toolExecutionNotifications": [said]}]
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _rule(code: str) -> dict[str, object]:
    rule = all_rules()[code]
    text = text_of(rule)
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": text.problem},
        "fullDescription": {"text": text.sections["Why it costs"]},
        "help": {"text": text.sections["What to do"]},
        "defaultConfiguration": {"level": _LEVEL[rule.severity]},
    }


def _result(
    result: LintResult, finding: Finding, index: int, reason: str | None
) -> dict[str, object]:
    properties = {
        "saving_seconds": finding.saving_seconds,
        "saving_bytes": finding.saving_bytes,
        "hardware": result.hardware or None,
        **dict(finding.facts),
    }
    made: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVEL[finding.severity],
        "message": {"text": finding.message},
        "locations": [_location(result, finding)],
        "partialFingerprints": {"onnxroof/v1": fingerprint(finding)},
        "properties": properties,
    }
    if reason is not None:
        made["suppressions"] = [{"kind": "external", "justification": reason}]
    return made


def _location(result: LintResult, finding: Finding) -> dict[str, object]:
    """The model file (binary, so its first line) and the nodes and tensors in it."""
    names = [*finding.nodes, *finding.tensors][:_MOST_LOCATIONS]
    uri = quote(PurePath(result.model).as_posix())
    return {
        "physicalLocation": {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}},
        "logicalLocations": [{"name": name, "kind": "object"} for name in names],
    }


def fingerprint(finding: Finding) -> str:
    """Equal for the same finding in the next version of a model, whatever its figures."""
    parts = "\0".join([finding.code, *sorted(finding.nodes), "", *sorted(finding.tensors)])
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()
