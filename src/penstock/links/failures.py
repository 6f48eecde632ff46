"""What can go wrong for a node that asks another one."""


class LinkFailure(Exception):
    """No answer. `may_have_happened`: what was asked for was perhaps carried out all the same."""

    def __init__(self, problem: str, *, may_have_happened: bool) -> None:
        super().__init__(problem)
        self.may_have_happened = may_have_happened


class LinkLost(LinkFailure):
    """There is no link, or it broke before the answer came."""


class AskTimedOut(LinkFailure):
    """The other node took too long. The link stays: an answer that is late is dropped, and others may still come."""


class NotUnderstood(LinkFailure):
    """The other node does not know this kind of question: it runs an older version."""
