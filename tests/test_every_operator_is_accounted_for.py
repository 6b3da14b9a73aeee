"""Every operator of the installed standard has an answer here, at every version since opset 6.

A new release of onnx fails these tests by the names of its new operators, once.
"""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

import onnx.defs
import pytest

from onnxroof.ops import load_rules
from onnxroof.ops.control_flow import GRAPH_RULES
from onnxroof.ops.fallback import expandable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onnxroof.ops.registry import Registry

OLDEST_OPSET = 6

ELSEWHERE = {("", "Constant"): "the loader turns the node into a constant of the graph"}
"""Operators that need no rule, with the reason."""

UNKNOWN = {
    ("", "ImageDecoder"): "the work depends on the format and content of the image",
    ("ai.onnx.preview.training", "Gradient"): "a runtime decides how it differentiates",
}
"""Operators whose work no text tells, with the reason."""

SECTIONS = ("Shapes", "Formula", "Traffic", "Convention", "Source")


def qualified(domain: str, op_type: str, opset: int) -> str:
    return f"{domain or 'ai.onnx'}.{op_type} at opset {opset}"


def missing_for(registry: Registry, domain: str, op_type: str, opset: int) -> str:
    """What an operator lacks at an opset; "" when it is accounted for."""
    if (domain, op_type) in ELSEWHERE:
        return ""
    operator = registry.find(domain, op_type, opset)
    if operator is None:
        return "" if expandable(domain, op_type, opset) else "neither rules nor a function body"
    if not domain and op_type in GRAPH_RULES:
        return "" if operator.free else "no reason why it has no formula"
    lacking = [
        name
        for name, rule in (("shape", operator.shape_rule), ("cost", operator.cost_rule))
        if rule is None
    ]
    return f"no {' and no '.join(lacking)} rule" if lacking else ""


def unaccounted(schemas: Iterable[onnx.defs.OpSchema], registry: Registry) -> list[str]:
    """Operators without an answer at the first opset of a version, from the oldest opset on."""
    found = {
        qualified(schema.domain, schema.name, opset): reason
        for schema in schemas
        if not schema.deprecated
        for opset in [max(schema.since_version, 1 if schema.domain else OLDEST_OPSET)]
        if (reason := missing_for(registry, schema.domain, schema.name, opset))
    }
    return [f"{name}: {reason}" for name, reason in sorted(found.items())]


def rules(kind: str) -> list[tuple[str, str, Callable[..., object]]]:
    """(domain, type, rule) for every built-in rule of a kind, one entry an operator and version."""
    registry = load_rules()
    return [
        (operator.domain, operator.op_type, rule)
        for operator in registry
        if operator.source == "built-in"
        for rule in getattr(registry.entry(operator.domain, operator.op_type), kind).values()
    ]


def test_every_operator_of_the_standard_is_accounted_for_at_every_version() -> None:
    assert unaccounted(onnx.defs.get_all_schemas_with_history(), load_rules()) == []


def test_an_operator_of_a_newer_standard_fails_by_name() -> None:
    newer = SimpleNamespace(domain="", name="FoldProtein", since_version=99, deprecated=False)
    assert unaccounted([newer], load_rules()) == [
        "ai.onnx.FoldProtein at opset 99: neither rules nor a function body"
    ]


def test_rules_hold_at_every_opset_between_two_versions_of_an_operator() -> None:
    """A rule that begins late must not leave a hole between the operator's first opset and it."""
    registry, newest = load_rules(), onnx.defs.onnx_opset_version()
    holes = [
        qualified(operator.domain, operator.op_type, opset)
        for operator in registry
        if not operator.domain and operator.source == "built-in"
        for opset in range(OLDEST_OPSET, newest + 1)
        if missing_for(registry, operator.domain, operator.op_type, opset)
    ]
    assert holes == []


def test_what_is_listed_as_needing_no_rule_exists_and_has_none() -> None:
    registry = load_rules()
    for domain, op_type in ELSEWHERE:
        assert onnx.defs.has(op_type, domain)
        assert registry.find(domain, op_type, onnx.defs.onnx_opset_version()) is None


def test_only_listed_operators_of_the_standard_have_unknown_work() -> None:
    unknown = {
        (domain, op_type)
        for domain, op_type, rule in rules("cost_rules")
        if (inspect.getdoc(rule) or "").startswith("Unknown:") and onnx.defs.has(op_type, domain)
    }
    assert unknown == set(UNKNOWN)


@pytest.mark.parametrize("kind", ["shape_rules", "cost_rules"])
def test_every_rule_says_in_one_line_what_it_does(kind: str) -> None:
    silent = [
        f"{domain or 'ai.onnx'}.{op_type}"
        for domain, op_type, rule in rules(kind)
        if not (inspect.getdoc(rule) or "").split("\n")[0].strip()
    ]
    assert silent == []


def test_every_cost_rule_has_a_formula_with_its_source_or_says_why_it_needs_none() -> None:
    thin = []
    for domain, op_type, rule in rules("cost_rules"):
        text = inspect.getdoc(rule) or ""
        has_formula = "\nFormula\n" in text and "\nSource\n" in text
        if not has_formula and not text.startswith(("Free of arithmetic", "Unknown:")):
            thin.append(f"{domain or 'ai.onnx'}.{op_type}")
    assert thin == []


def test_every_rule_that_departs_from_default_traffic_says_so() -> None:
    quiet = []
    for domain, op_type, rule in rules("cost_rules"):
        text = inspect.getdoc(rule) or ""
        code = re.sub(r'""".*?"""', "", inspect.getsource(rule), flags=re.DOTALL)
        departs = re.search(r"\b(?:reads|writes)=|\bin_place\(|_in_place\(", code)
        if departs and "\nTraffic\n" not in text and "no bytes are moved" not in text:
            quiet.append(f"{domain or 'ai.onnx'}.{op_type}")
    assert quiet == []


def test_free_operators_give_their_reason() -> None:
    registry = load_rules()
    unexplained = [
        operator.qualified_name
        for operator in registry
        if operator.cost_rule is not None
        and (inspect.getdoc(operator.cost_rule) or "").startswith("Free of arithmetic")
        and not operator.free
    ]
    assert unexplained == []


def test_the_sections_of_a_docstring_stand_in_one_order() -> None:
    shuffled = []
    for domain, op_type, rule in rules("cost_rules"):
        lines = (inspect.getdoc(rule) or "").splitlines()
        order = [SECTIONS.index(line) for line in lines if line in SECTIONS]
        if order != sorted(order):
            shuffled.append(f"{domain or 'ai.onnx'}.{op_type}")
    assert shuffled == []
