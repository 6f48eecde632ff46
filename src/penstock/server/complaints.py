"""A problem that a person can mend: what happened, and what to do next. Shown as two lines, never as a traceback."""


class Complaint(Exception):
    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step


class ConfigurationWrong(Complaint):
    """A setting that cannot be used."""


class CannotStart(Complaint):
    """The node could not be brought up with what it was given."""
