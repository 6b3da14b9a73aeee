"""Amounts as people write them ("5ms", "64 MiB", "2G") → numbers in base units."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from onnxroof.errors import UsageError, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

_AMOUNT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-zµμ/]*)")
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

SECONDS: Mapping[str, float] = {
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9,
}  # fmt: skip
BYTES: Mapping[str, float] = {
    **{f"{prefix}B": factor for prefix, factor in _DECIMAL.items()},
    **{f"{prefix}B": factor for prefix, factor in _BINARY.items()},
    "KB": 10**3,
}
COUNT: Mapping[str, float] = {**_DECIMAL, "K": 10**3, "B": 10**9}

EXAMPLES = {id(SECONDS): "5ms", id(BYTES): "64MiB", id(COUNT): "2G"}


def parse_amount(
    text: str, unit_factors: Mapping[str, float], where: str, example: str = ""
) -> float:
    """The number in base units.

    Args:
        text: "5ms"; a space may stand before the unit.
        unit_factors: `SECONDS`, `BYTES` or `COUNT`.
        where: What is being read, for the message: "--max-latency".
        example: An amount as one might be meant there, for the message.

    Raises:
        UsageError: Not a number with one of the units.
    """
    found = _AMOUNT.fullmatch(text.strip())
    factor = unit_factors.get(found[2]) if found else None
    if found is None or factor is None:
        units = ", ".join(filter(None, unit_factors))
        meant = (
            "a number, with a unit or without," if "" in unit_factors else "a number with a unit"
        )
        raise UsageError(
            f"{where} {quoted(text)}: {meant} is meant, for example"
            f" {example or EXAMPLES[id(unit_factors)]} (units: {units})"
        )
    whole = "." not in found[1]
    return int(found[1]) * factor if whole else float(found[1]) * factor
