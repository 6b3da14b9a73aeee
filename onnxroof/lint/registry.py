"""Every rule by its code; the rules' modules are imported here and nowhere else."""

from __future__ import annotations

import difflib
import pkgutil
import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from onnxroof.errors import UsageError, quoted
from onnxroof.lint.rule import Rule, WeightRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_CODE = re.compile(r"[A-Z]{3}[0-9]{3}")


@cache
def all_rules() -> Mapping[str, Rule]:
    """Code → rule, in the order of the codes."""
    from onnxroof.lint import rules

    found: list[type[Rule]] = []
    for module in pkgutil.iter_modules(rules.__path__):
        loaded = import_module(f"{rules.__name__}.{module.name}")
        found += [
            value
            for value in vars(loaded).values()
            if isinstance(value, type)
            and issubclass(value, Rule)
            and value not in (Rule, WeightRule)
        ]
    return registered(found)


def registered(rules: Iterable[type[Rule]]) -> Mapping[str, Rule]:
    """One instance of each rule by its code.

    Raises:
        ValueError: Two rules share a code or a name, or a code has not the form of one.
    """
    by_code: dict[str, Rule] = {}
    names: dict[str, str] = {}
    for rule in rules:
        if not _CODE.fullmatch(rule.code):
            raise ValueError(f"{rule.__name__}: code {rule.code!r} is not three letters, digits")
        if rule.code in by_code:
            raise ValueError(f"code {rule.code} is taken by {by_code[rule.code].name}")
        if rule.name in names:
            raise ValueError(f"name {rule.name} is taken by {names[rule.name]}")
        by_code[rule.code] = rule()
        names[rule.name] = rule.code
    return dict(sorted(by_code.items()))


def choose(select: Sequence[str] = (), ignore: Sequence[str] = ()) -> tuple[Rule, ...]:
    """The rules that were asked for.

    Args:
        select: Codes, beginnings of codes, or names; none for all rules.
        ignore: The same, to be left out.

    Raises:
        UsageError: One of them matches no rule.
    """
    chosen = _matching(select, "--select") if select else set(all_rules())
    chosen -= _matching(ignore, "--ignore")
    return tuple(rule for code, rule in all_rules().items() if code in chosen)


def find_rule(word: str) -> Rule:
    """The rule of this code or name. Raises UsageError for an unknown one."""
    for rule in all_rules().values():
        if word.upper() == rule.code or word.lower() == rule.name:
            return rule
    raise UsageError(f"no lint rule {quoted(word)}{_near(word)}; `onnxroof explain` lists them all")


def _matching(words: Sequence[str], option: str) -> set[str]:
    found: set[str] = set()
    for word in (part.strip() for listed in words for part in listed.split(",")):
        codes = {
            rule.code
            for rule in all_rules().values()
            if word and (rule.code.startswith(word.upper()) or rule.name == word.lower())
        }
        if not codes:
            raise UsageError(f"{option} {quoted(word)}: no lint rule begins so{_near(word)}")
        found |= codes
    return found


def _near(word: str) -> str:
    known = [*all_rules(), *(rule.name for rule in all_rules().values())]
    close = difflib.get_close_matches(word.lower(), known, n=1) or difflib.get_close_matches(
        word.upper(), known, n=1
    )
    return f"; did you mean {close[0]}?" if close else ""
