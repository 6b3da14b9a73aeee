"""Numbers and names for people: the one place where base units become kB, GFLOP and ms.

Everything inside the package is in base units (counts, bytes, seconds, operations per second);
reports call these functions last. Decimal prefixes unless the name says binary. Unknown stays
visible: `None` is written "?", never 0.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

UNKNOWN = "?"
"""How a value that is not known is written."""

AT_LEAST = "at least "
AT_MOST = "at most "

_DECIMAL = ("", "k", "M", "G", "T", "P", "E", "Z")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_CUT = "…"
_SEPARATORS = "/.:"
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~#@!&$])")


def significant(value: float, digits: int = 3) -> str:
    """A number from 0 to 1000 with so many significant digits: 4.09, 40.9, 409; 0 is "0"."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    whole = math.floor(math.log10(abs(rounded))) + 1
    return f"{value:.{max(digits - whole, 0)}f}"


def count(value: float | None, unit: str = "") -> str:
    """A count with a decimal prefix: 4089184256 → "4.09 G", with a unit "4.09 GMAC".

    Whole numbers below 1000 are exact.
    """
    if value is None:
        return UNKNOWN
    number, prefix = _scaled(float(value), 1000.0, _DECIMAL)
    text = str(round(value)) if not prefix and value == round(value) else significant(number)
    return f"{text} {prefix}{unit}".rstrip()


def exact(value: int | None) -> str:
    """A count with all its digits: "25,530,472"."""
    return UNKNOWN if value is None else f"{int(value):,}"


def plural(number: int, noun: str) -> str:
    """A number of things: "1 kernel", "2 kernels"."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def size(nbytes: float | None) -> str:
    """Bytes with a decimal prefix (kB = 1000 bytes): 102400 → "102 kB"."""
    return count(nbytes, "B")


def binary_size(nbytes: float | None) -> str:
    """Bytes with a binary prefix (KiB = 1024 bytes): 6291456 → "6.00 MiB"."""
    if nbytes is None:
        return UNKNOWN
    number, prefix = _scaled(float(nbytes), 1024.0, _BINARY)
    return f"{significant(number) if prefix else round(nbytes)} {prefix}B"


def duration(seconds: float | None) -> str:
    """Seconds in the unit that fits: 0.00158 → "1.58 ms"."""
    if seconds is None:
        return UNKNOWN
    if seconds == 0:
        return "0 s"
    for factor, unit in _SECONDS:
        if seconds >= factor * 0.9995:
            scaled = seconds / factor
            return f"{significant(scaled) if scaled < 999.5 else f'{scaled:.0f}'} {unit}"
    return "<1 ns"


def rate(per_second: float | None, unit: str) -> str:
    """Something per second: 1.25e14, "FLOP/s" → "125 TFLOP/s"."""
    return count(per_second, unit)


def percent(share: float | None) -> str:
    """A share of one: 0.813 → "81.3 %"; more than nothing is never written as nothing."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1:
        return ">99.9 %"
    return f"{share * 100:.0f} %" if share in {0, 1} else f"{share * 100:.1f} %"


def intensity(flop_per_byte: float | None) -> str:
    """FLOP per byte: two digits after the point where they matter; "–" when nothing is moved."""
    if flop_per_byte is None:
        return "–"
    if flop_per_byte == 0:
        return "0"
    if flop_per_byte < 0.01:
        return "<0.01"
    return f"{flop_per_byte:.2f}" if flop_per_byte < 10 else significant(flop_per_byte, 3)


def bounded(text: str, *, at_least: bool = False, at_most: bool = False) -> str:
    """The text with what is known about the number in front: "at least " or "at most "."""
    return f"{AT_LEAST if at_least else AT_MOST if at_most else ''}{text}"


def shape(dims: tuple[int, ...] | None) -> str:
    """Dimensions as 1×3×224×224; "scalar" for none, "?" when not even the rank is known."""
    if dims is None:
        return UNKNOWN
    return "×".join(map(str, dims)) or "scalar"


def printable(text: str) -> str:
    """Text from a file on one line: control and invisible characters become visible escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _is_visible(char) else _escape(char) for char in text)


def escaped(text: str) -> str:
    """Text with every character that means something to markdown escaped; stays on one line."""
    return _MARKDOWN.sub(r"\\\1", printable(" ".join(text.splitlines())))


def shorten(name: str, width: int) -> str:
    """A name cut to so many characters, keeping its end, which tells it from its neighbours.

    Whole path components go first ("…/layer3.0/conv2/Conv"). A single component that is still
    too long keeps its first and last letters around the cut, so that neither what it is nor its
    number is lost.
    """
    if len(name) <= width:
        return name
    if width < 2:
        return name[:width]
    start = len(name) - (width - 1)
    boundary = _boundary(name, start)
    if boundary is not None and len(name) - boundary >= min(width // 2, 8):
        return _CUT + name[boundary:]
    tail = max((width - 1) * 2 // 3, 1)
    head = width - 1 - tail
    return name[:head] + _CUT + name[-tail:]


def shorten_all(names: Sequence[str], width: int) -> list[str]:
    """Every name cut by `shorten`, but so that different names stay different where they can.

    Names that would look the same keep, besides their end, the path components in which they
    differ: "…/layer.0/…/MatMul" and "…/layer.1/…/MatMul". Where that is too long, or they differ
    inside a component, they begin where they differ.
    """
    cut = {name: shorten(name, width) for name in names}
    groups = _alike(cut)
    while groups:
        for group in groups:
            cut.update(zip(group, _kept_apart(group, width), strict=True))
        merged = _merged([*groups, *_alike(cut)], cut)
        if merged == groups:
            break
        groups = merged
    for group in _alike(cut):
        cut.update(_from_difference(group, width))
    return [cut[name] for name in names]


def _alike(cut: Mapping[str, str]) -> list[list[str]]:
    """The names that would look the same, a list for each look."""
    groups: dict[str, list[str]] = {}
    for name, short in cut.items():
        groups.setdefault(short, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _merged(groups: Sequence[Sequence[str]], names: Iterable[str]) -> list[list[str]]:
    """Groups with a name in common put together; all in the order of the names."""
    place = {name: at for at, name in enumerate(names)}
    merged: list[set[str]] = []
    for group in groups:
        apart = [other for other in merged if other.isdisjoint(group)]
        merged = [*apart, set(group).union(*(o for o in merged if not o.isdisjoint(group)))]
    ordered = [sorted(group, key=place.__getitem__) for group in merged]
    return sorted(ordered, key=lambda group: place[group[0]])


def _kept_apart(names: Sequence[str], width: int) -> list[str]:
    """Each name's last component, and the fewest before it that tell the names apart."""
    paths = [name.split("/") for name in names]
    deepest = max(map(len, paths))
    padded = [[*path[:-1], *[""] * (deepest - len(path)), path[-1]] for path in paths]
    kept = [deepest - 1]

    def looks(place: int) -> int:
        return len({tuple(path[at] for at in (*kept, place)) for path in padded})

    while (best := max(range(deepest), key=looks)) not in kept and looks(best) > looks(kept[0]):
        kept.append(best)
    if len(kept) == 1:
        return [shorten(name, width) for name in names]
    return [_with_gaps(path, sorted(kept), width) for path in padded]


def _with_gaps(path: Sequence[str], kept: Sequence[int], width: int) -> str:
    """Some components of a path, with a mark for what is left out; the last may be cut."""
    text, before = "", -1
    for place in kept:
        if not path[place] and place:
            continue
        joint = "/" if not any(path[before + 1 : place]) and before >= 0 else f"/{_CUT}/"
        text += (joint if text or place == 0 else f"{_CUT}/") + path[place]
        before = place
    return truncate(text, width)


def _from_difference(names: Sequence[str], width: int) -> dict[str, str]:
    """Names that begin where they first differ, as far as the width goes."""
    first, last = min(names), max(names)
    alike = zip(first, last, strict=False)
    start = next((at for at, (one, two) in enumerate(alike) if one != two), len(first))
    cut = {name: truncate((_CUT if start else "") + name[start:], width) for name in names}
    for group in _alike(cut):
        if len(group) < len(names):
            cut.update(_from_difference(group, width))
    return cut


def distinct(names: Sequence[str]) -> list[str]:
    """Names with a number behind those that repeat, so that no two are the same: "v100_2"."""
    found: list[str] = []
    for name in names:
        label, number = name, 1
        while label in found or (number > 1 and label in names):
            number += 1
            label = f"{name}_{number}"
        found.append(label)
    return found


def truncate(text: str, width: int) -> str:
    """Text cut to so many characters, keeping its beginning."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + _CUT


def _boundary(name: str, start: int) -> int | None:
    """Where the first path component after `start` begins, with its separator; a slash first."""
    for separators in ("/", _SEPARATORS):
        found = [place for s in separators if (place := name.find(s, start)) >= 0]
        if found and len(name) - min(found) > (len(name) - start) // 2:
            return min(found)
    return None


def _scaled(value: float, base: float, prefixes: tuple[str, ...]) -> tuple[float, str]:
    """The value below the base with its prefix; 999.95 k is written 1.00 M."""
    for prefix in prefixes:
        if abs(value) < base * (0.9995 if base == 1000 else 0.99951) or prefix == prefixes[-1]:
            return value, prefix
        value /= base
    return value, prefixes[-1]


def _is_visible(char: str) -> bool:
    return char.isprintable() and not unicodedata.combining(char)


def _escape(char: str) -> str:
    code = ord(char)
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    if char in named:
        return named[char]
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )
