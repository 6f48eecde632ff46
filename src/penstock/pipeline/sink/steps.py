"""The steps of the sink's protocol by name, and a way to end the process at one of them.

Every place where a crash makes a difference calls `reached`. With PENSTOCK_SINK_EXIT_AT set to the name of a step the process ends there
as if it were killed: nothing is flushed, closed or told to anybody. So tests kill between every two steps, and anybody can see for
themselves what a restarted query does. Without the variable it does nothing.
"""

import os
from enum import Enum

EXIT_AT = "PENSTOCK_SINK_EXIT_AT"
EXIT_CODE = 86  # Tells an exit that was asked for from one that was not.


class Step(Enum):
    # Of a task.
    RUN_TAKEN = "task-has-taken-over-the-ledger"
    NAMED = "task-has-its-producer-id"
    HALF_STAGED = "task-has-stored-its-first-rows"
    STAGED = "task-has-stored-all-its-rows"
    # Of the driver.
    CHECKED = "driver-has-seen-every-transaction-open"
    COMMITTED = "driver-has-stored-the-commit-record"
    HALF_ENDED = "driver-has-ended-one-transaction"
    ENDED = "driver-has-ended-every-transaction"
    ABORTING = "driver-has-found-the-batch-uncommitted"
    # Of whoever begins a run.
    HALF_RECOVERED = "recovery-has-ended-one-transaction"


def reached(step: Step) -> None:
    if os.environ.get(EXIT_AT) == step.value:
        os._exit(EXIT_CODE)
