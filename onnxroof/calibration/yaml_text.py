"""A profile's mapping → YAML text that the strict reader takes, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from onnxroof.errors import InvalidProfileError
from onnxroof.hardware.read import problems_in

if TYPE_CHECKING:
    from collections.abc import Mapping


def checked_profile(root: Mapping[str, object], name: str, written_by: str) -> str:
    """The text of a profile.

    Raises:
        InvalidProfileError: The figures contradict each other so that no profile can hold them.
    """
    text = f"# Written by {written_by}.\n" + yaml.dump(
        root, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=96,
        default_flow_style=False,
    )  # fmt: skip
    problems = problems_in(text.encode())
    if problems:
        raise InvalidProfileError(name, problems)
    return text


class _PlainDumper(yaml.SafeDumper):
    """Plain decimals, which is all that a profile may have, and no aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _decimal(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    text = f"{value:.12f}".rstrip("0")
    return dumper.represent_scalar("tag:yaml.org,2002:float", text + "0" * text.endswith("."))


_PlainDumper.add_representer(float, _decimal)
