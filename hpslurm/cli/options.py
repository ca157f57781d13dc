"""Options and parameter types that several commands have."""

from __future__ import annotations

import re

import click

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """``90m``, ``2h``, ``1d``, or seconds; becomes seconds."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d{1,6})([smhd]?)", str(value).strip())
        if not match or not int(match[1]):
            self.fail(f"{value!r} is no time; write 90m, 2h or 1d", param, ctx)
        return float(int(match[1]) * _UNITS[match[2]])
