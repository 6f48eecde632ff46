"""What a query died of, in words: Spark wraps it into pages of two languages' stack traces.

Python workers send their traceback as text inside of a Java exception. Its last line is what our own code said; where there is none, it is
Spark's own first sentence.
"""

import re

from penstock.pipeline.complaints import PipelineComplaint

# "module.Class: words", and the lines of advice under it, as they stand at the end of a Python traceback.
_LAST_WORDS = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*): (?P<problem>.+)(?P<advice>(?:\n {2}\S.*)*)", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_OURS = "penstock."
_NOISE = re.compile(r"^\[[A-Z_.]+\]\s*|\s*SQLSTATE: \w+\s*$")
PROBLEM_LENGTH_MAX = 500
SEE_LOG = "Spark's own account stands in its log"


def told_by(failure: BaseException) -> tuple[str, str]:
    """The problem and the advice."""
    if isinstance(failure, PipelineComplaint):
        return failure.problem, failure.advice
    text = str(failure)
    # What our own code said counts before what went wrong afterwards, while somebody cleaned up behind it.
    words = [said for piece in text.split(_TRACEBACK)[1:] for said in [_LAST_WORDS.search(piece)] if said is not None]
    if words:
        said = next((each for each in words if each["kind"].startswith(_OURS)), words[-1])
        problem = said["problem"] if said["kind"].startswith(_OURS) else f"{said['kind'].rpartition('.')[2]}: {said['problem']}"
        advice = "\n".join(line.strip() for line in said["advice"].splitlines() if line.strip())
        return problem[:PROBLEM_LENGTH_MAX], advice or SEE_LOG
    first = next((line for line in text.splitlines() if line.strip()), type(failure).__name__)
    return _NOISE.sub("", first)[:PROBLEM_LENGTH_MAX], SEE_LOG
