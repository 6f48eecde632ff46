"""What a call is refused with that is asked again until its deadline, because the refusal may pass."""

from collections.abc import Awaitable, Callable

from waiting import EXPIRES_S

from penstock.peers.failures import GaveUp, Refused


async def last_refusal(call: Callable[[float], Awaitable[object]]) -> Refused:
    """Gives `call` a short deadline, and a longer one where a busy node was not heard before it."""
    deadline_s = EXPIRES_S
    while True:
        try:
            answer = await call(deadline_s)
        except GaveUp as failure:
            if isinstance(failure.last, Refused):
                return failure.last
            deadline_s *= 2
        else:
            raise AssertionError(f"it was not refused, but answered {answer!r}")
