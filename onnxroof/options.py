"""The text of command-line options → values the library takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from onnxroof.errors import UsageError, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

_SIZE = re.compile(r"[0-9]{1,18}")


def parse_dims(options: Iterable[str]) -> dict[str, int]:
    """Sizes by name of the dimension from `batch=8` and the like.

    Raises:
        UsageError: An option is not NAME=N, or binds a name a second time to another size.
    """
    sizes: dict[str, int] = {}
    for option in options:
        name, equals, size = option.rpartition("=")
        name, size = name.strip(), size.strip()
        if not equals or not name or not _SIZE.fullmatch(size):
            raise UsageError(
                f"--dim {quoted(option)}: a name and a whole number are meant, for example"
                " --dim batch=8"
            )
        if sizes.setdefault(name, int(size)) != int(size):
            raise UsageError(f"--dim {name}: bound to {sizes[name]} and to {size}; bind it once")
    return sizes


def parse_input_shapes(options: Iterable[str]) -> dict[str, tuple[int | str, ...]]:
    """Shapes by name of the input from `x=1x3x640x640` and the like; `x=` is a scalar.

    A name in the place of a size leaves the dimension open: `x=batch,3,640,640`. Where there is a
    comma, only commas part the sizes, so that a name may have an x: `x=max,` is one dimension.

    Raises:
        UsageError: An option is not NAME=SHAPE, or binds an input a second time.
    """
    shapes: dict[str, tuple[int | str, ...]] = {}
    for option in options:
        name, equals, text = option.rpartition("=")
        name, text = name.strip(), text.strip()
        sign = "," if "," in text else "[x×]"
        parts = [p.strip() for p in re.split(sign, text.removesuffix(","))] if text else []
        if not equals or not name or not all(_SIZE.fullmatch(p) or p.isidentifier() for p in parts):
            raise UsageError(
                f"--input {quoted(option)}: a name and a whole shape are meant, for example"
                " --input x=1x3x640x640, or --input x=batch,3,640,640 to leave one open"
            )
        if name in shapes:
            raise UsageError(f"--input {quoted(name)} is given twice; give it once")
        shapes[name] = tuple([int(p) if _SIZE.fullmatch(p) else p for p in parts])
    return shapes
