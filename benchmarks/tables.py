"""Plain tables, for the terminal and for Markdown alike, and figures that a person can read."""

from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns also line up in a terminal. The first column is text, the others are figures."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        others = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *others]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])]) + "|"
    return "\n".join([line(heads), rule, *map(line, rows)])


def count(value: float) -> str:
    """1,234 or 1.23 M: three figures are all that a benchmark can vouch for."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M" if value < 1e9 else f"{value / 1e6:,.0f} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ms(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(value: float, base: float) -> str:
    return f"{value / base:.2f}" if base else "-"


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of an ordered, non-empty sequence does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
