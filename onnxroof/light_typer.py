"""Typer commands that convert only what needs converting, so that a command starts at once.

Since 0.26 or so, typer builds a pydantic validator for every option of a command, which imports
pydantic (60 ms) even where there is nothing to convert: text that stays text, an option that was
not given. Here such values pass as they are, and typer's own conversion sees the rest. A typer
without this mechanism is left alone.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer._click.core import Context, Parameter


class _Conversion(Protocol):
    def coerce(self, value: object, param: object, ctx: object) -> object: ...


class LightCommand(TyperCommand):
    """A command whose parameters are converted only where needed."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """The parameters, `--help` included."""
        return _put_off_conversions(super().get_params(ctx))


class LightGroup(TyperGroup):
    """A group of commands whose own parameters are converted only where needed."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """The parameters, `--help` included."""
        return _put_off_conversions(super().get_params(ctx))


def _put_off_conversions(params: list[Parameter]) -> list[Parameter]:
    for param in params:
        conversion = getattr(param, "get_runtime_param", None)
        if conversion is not None and not isinstance(conversion, _WhereNeeded):
            vars(param)["get_runtime_param"] = _WhereNeeded(param, conversion)
    return params


class _WhereNeeded:
    """Stands in for a parameter's conversion."""

    def __init__(self, param: Parameter, conversion: Callable[[], _Conversion]) -> None:
        self.is_text = getattr(param, "type_descriptor").annotation in {str, list[str]}  # noqa: B009
        self.conversion = conversion

    def __call__(self) -> _WhereNeeded:
        return self

    def coerce(self, value: object, param: object, ctx: object) -> object:
        """The value for the command's function."""
        if value is None or self.is_text or isinstance(value, Enum | int):
            return value
        return self.conversion().coerce(value, param=param, ctx=ctx)
