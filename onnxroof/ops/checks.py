"""Comparisons of sizes that contradict the operator's text only when they cannot be equal."""

from __future__ import annotations

from onnxroof.bounded import BoundedInt, is_exact, lower, upper
from onnxroof.ops.call import Impossible


def can_be_equal(one: int, other: int) -> bool:
    """Whether two sizes, exact or bounded, can be the same number."""
    return lower(one) <= upper(other) and lower(other) <= upper(one)


def is_same(one: int, other: int) -> bool:
    """Whether two sizes are equal whatever the data: both exact, or one bounded size."""
    if one is other:
        return True
    if isinstance(one, BoundedInt) and isinstance(other, BoundedInt):
        return bool(one.name) and one.name == other.name
    return is_exact(one) and is_exact(other) and one == other


def require_equal(one: int, other: int, what: str) -> None:
    """Raise Impossible, saying `what` differs, when two sizes cannot be the same number."""
    if not can_be_equal(one, other):
        raise Impossible(f"{what}: {one} against {other}")


def require_rank(rank: int, wanted: int, what: str) -> None:
    """Raise Impossible when a tensor has not exactly the wanted number of dimensions."""
    if rank != wanted:
        raise Impossible(f"{what} has {rank} dimensions, {wanted} are needed")


def require_rank_at_least(rank: int, least: int, what: str) -> None:
    """Raise Impossible when a tensor has too few dimensions."""
    if rank < least:
        raise Impossible(f"{what} has {rank} dimensions, at least {least} are needed")
