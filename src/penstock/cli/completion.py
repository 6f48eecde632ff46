"""`penstock completion`: what a shell needs to complete commands and options with the Tab key."""

import click
from click.shell_completion import get_completion_class

from penstock.cli.faults import Fault

VARIABLE = "_PENSTOCK_COMPLETE"
WHERE = {
    "bash": "~/.local/share/bash-completion/completions/penstock",
    "zsh": "a directory of your $fpath, as the file _penstock",
    "fish": "~/.config/fish/completions/penstock.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(WHERE)))
def completion(shell: str) -> None:
    """Print a script that completes penstock's commands and options in SHELL.

    \b
      eval "$(penstock completion bash)"
      penstock completion bash > ~/.local/share/bash-completion/completions/penstock
      penstock completion zsh > "${fpath[1]}/_penstock"
      penstock completion fish > ~/.config/fish/completions/penstock.fish

    The first line is for trying it out in bash; the others keep it for every shell to come.
    """
    from penstock.cli.root import penstock

    kind = get_completion_class(shell)
    if kind is None:
        raise Fault(f"this version of click knows no {shell}", "upgrade click")
    script = kind(penstock, {}, "penstock", VARIABLE)
    body = script.source_template % script.source_vars()  # Not `source()`: for bash that would start a bash to ask for its version.
    if shell == "zsh":  # Its first line must stay the first.
        return click.echo(body)
    click.echo(f"# Completion of penstock for {shell}. Keep it in {WHERE[shell]}\n{body}")
