"""Spans of time as options take them: 90, 90s, 10min, 1.5h, 7d."""

import click

from penstock.cli.times import parse_span


class SpanType(click.ParamType):
    name = "span"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = parse_span(value) if isinstance(value, str) else None
        if seconds is None:
            self.fail(f"{value!r} is no span of time such as 90s, 10min, 1.5h or 7d", param, ctx)
        return seconds

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "SPAN"


SPAN = SpanType()
