"""Shell completion: the scripts are printed, and what a shell asks with them is answered."""

import shutil
import subprocess

import pytest
from cli.running import PENSTOCK, clean_environment, penstock, succeed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_the_command_and_how_to_ask_it(shell: str) -> None:
    script = succeed("completion", shell)
    assert "_PENSTOCK_COMPLETE" in script
    assert "penstock" in script
    if shell == "zsh":
        assert script.startswith("#compdef penstock")


def test_a_shell_that_nobody_knows_is_refused() -> None:
    assert penstock("completion", "tcsh").code == 2


def test_what_a_shell_asks_is_answered() -> None:
    asked = {"COMP_WORDS": "penstock gr", "COMP_CWORD": "1", "_PENSTOCK_COMPLETE": "bash_complete"}
    answer = subprocess.run(PENSTOCK, capture_output=True, text=True, env=clean_environment(asked), check=False)
    assert answer.stdout.split() == ["plain,groups"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="only with bash in PATH")
def test_bash_takes_the_script() -> None:
    script = succeed("completion", "bash")
    taken = subprocess.run(["bash", "-c", f"{script}\ncomplete -p penstock"], capture_output=True, text=True, check=False)
    assert taken.returncode == 0, taken.stderr
    assert "penstock" in taken.stdout
