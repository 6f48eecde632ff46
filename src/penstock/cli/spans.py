"""Spans of time as options take them: 90, 90s, 10min, 1.5h, 7d. For `type=span`."""

import click

from penstock.cli.times import parse_span


def span(text: str) -> float:
    """In seconds."""
    seconds = parse_span(text)
    if seconds is None:
        raise click.BadParameter(f"{text!r} is no span of time such as 90s, 10min, 1.5h or 7d")
    return seconds
