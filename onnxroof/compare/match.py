"""Which item of one list is which of another: by name, scope and signature, whatever was renamed.

Exporters number nodes, so that one new layer renames all behind it; a name counts only together
with what the item is. What is left is aligned in order, by what the items are, then by their kind.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

MOST_ALIGNED = 1_500
"""Items up to which the best common order is looked for; longer lists are paired first to first."""


@dataclass(frozen=True, slots=True)
class Item:
    """A node or kernel as it is matched.

    Attributes:
        name: Its name.
        scope: The module path it belongs to.
        kind: Its main operator.
        signature: What it does, with sizes.
    """

    name: str
    scope: str
    kind: str
    signature: Hashable


Pair = tuple[int | None, int | None]


def match(before: Sequence[Item], after: Sequence[Item]) -> list[Pair]:
    """Positions that belong together, in the order of `after`; what vanished comes first.

    Every position of either list is in exactly one pair; its partner is None if it has none.
    """
    found: dict[int, int] = {}
    for key in (
        lambda item: (item.name, item.signature),
        lambda item: (item.scope, item.signature) if item.scope else None,
    ):
        _pair_equal(before, after, found, key)
    _align(before, after, found, lambda item: item.signature)
    _pair_equal(before, after, found, lambda item: (item.name, item.kind))
    _align(before, after, found, lambda item: (item.scope, item.kind))
    _align(before, after, found, lambda item: item.kind)
    partner = {new: old for old, new in found.items()}
    vanished: list[Pair] = [(old, None) for old in range(len(before)) if old not in found]
    return vanished + [(partner.get(new), new) for new in range(len(after))]


def _left(items: Sequence[Item], taken: set[int]) -> list[int]:
    return [at for at in range(len(items)) if at not in taken]


def _pair_equal(
    before: Sequence[Item],
    after: Sequence[Item],
    found: dict[int, int],
    key: Callable[[Item], Hashable],
) -> None:
    """Pair items with equal keys, first to first; a key of None is no key."""
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for at in _left(before, set(found)):
        waiting[key(before[at])].append(at)
    waiting.pop(None, None)
    for at in _left(after, set(found.values())):
        known = waiting.get(key(after[at]))
        if known:
            found[known.popleft()] = at


def _align(
    before: Sequence[Item],
    after: Sequence[Item],
    found: dict[int, int],
    key: Callable[[Item], Hashable],
) -> None:
    """Pair what is left along the longest common runs."""
    old, new = _left(before, set(found)), _left(after, set(found.values()))
    if max(len(old), len(new)) > MOST_ALIGNED:
        _pair_equal(before, after, found, key)
        return
    matcher = SequenceMatcher(
        None, [key(before[at]) for at in old], [key(after[at]) for at in new], autojunk=False
    )
    for block in matcher.get_matching_blocks():
        for step in range(block.size):
            found[old[block.a + step]] = new[block.b + step]
