"""What a pipeline says when it cannot go on: what happened and why, then what to do.

Options and jobs refuse with it before anything is started; the command line prints it in its own two lines.
"""


class PipelineComplaint(Exception):
    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}\n  {advice}" if advice else problem)
        self.problem = problem
        self.advice = advice
