"""How a command ends badly: what happened, then an indented next step, on standard error; never a traceback.

Exit codes: 1 it did not work, 2 it was asked wrongly, 130 it was interrupted.
"""

import os
import sys

import click

from penstock.peers.failures import PeerFailure
from penstock.server.complaints import Complaint, ConfigurationWrong

DID_NOT_WORK, ASKED_WRONGLY, INTERRUPTED = 1, 2, 130


class Fault(Complaint):
    """A command's own complaint."""


def exit_code_of(failure: BaseException) -> int | None:
    """Tells the person what happened. None where it is nothing a person can mend: then it is a defect, and the traceback is due."""
    match failure:
        case click.exceptions.Exit():
            return failure.exit_code
        case click.UsageError():
            return _say(failure.format_message(), _usage_hint(failure), ASKED_WRONGLY)
        case click.ClickException():
            return _say(failure.format_message(), "", DID_NOT_WORK)
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED
        case BrokenPipeError():
            return _leave_quietly()
        case ConfigurationWrong():
            return _say(failure.what, failure.next_step, ASKED_WRONGLY)
        case Complaint():
            return _say(failure.what, failure.next_step, DID_NOT_WORK)
        case PeerFailure():
            return _say(failure.problem, failure.advice, DID_NOT_WORK)
        case _:
            return None


def _say(what: str, next_step: str, code: int) -> int:
    print(f"penstock: {_as_sentence(what)}", file=sys.stderr)
    for line in next_step.splitlines():
        print(f"  {line}", file=sys.stderr)
    return code


def _as_sentence(what: str) -> str:
    """As the others: no capital, no full stop."""
    what = what.rstrip(".")
    return what[:1].lower() + what[1:] if what[:2].istitle() else what


def _usage_hint(failure: click.UsageError) -> str:
    path = failure.ctx.command_path if failure.ctx is not None else "penstock"
    return f"see: {path} --help"


def _leave_quietly() -> int:
    """The reader of our output has gone (`| head`): that is an end, not a failure. Python would complain once more while it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
