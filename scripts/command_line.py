"""The page docs/reference/cli.md: what every command's --help prints, in one place."""

from collections.abc import Iterator

import click

from penstock.cli.root import penstock

WIDTH = 110
HEAD = """\
# The command line

<!-- Made by `make reference` from src/penstock/cli/; do not edit. -->

What `penstock ... --help` prints, in one place.
"""


def cli_page() -> str:
    return HEAD + "".join(_section(names, commands) for names, commands in _paths([], [], "penstock", penstock))


def _paths(
    names: list[str], commands: list[click.Command], name: str, command: click.Command
) -> Iterator[tuple[list[str], list[click.Command]]]:
    """Every command with those above it."""
    names, commands = [*names, name], [*commands, command]
    yield names, commands
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _paths(names, commands, inner, found)


def _section(names: list[str], commands: list[click.Command]) -> str:
    context: click.Context | None = None
    for name, command in zip(names, commands, strict=True):
        context = click.Context(command, info_name=name, parent=context, terminal_width=WIDTH, max_content_width=WIDTH)
    assert context is not None
    told = "\n".join(line.rstrip() for line in commands[-1].get_help(context).splitlines())
    return f"\n{'#' * min(3, len(names) + 1)} {' '.join(names)}\n\n```\n{told}\n```\n"
