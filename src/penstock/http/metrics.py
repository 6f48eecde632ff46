"""GET /metrics: what the node counts, as Prometheus reads it (text format 0.0.4).

Samples of one name stand together under one HELP and TYPE line, as the format demands, whatever order they come in.
Not here: what is counted (broker/metrics.py, and the process's own vitals in server/).
"""

from collections.abc import Iterable
from itertools import groupby

from penstock.broker.metrics import Sample
from penstock.http.answers import OK, Answer


def metrics(samples: Iterable[Sample]) -> Answer:
    return Answer(OK, render(samples))


def render(samples: Iterable[Sample]) -> str:
    lines: list[str] = []
    for name, group in groupby(sorted(samples, key=lambda sample: sample.name), key=lambda sample: sample.name):
        family = list(group)
        lines += [f"# HELP {name} {_escape(family[0].reason)}", f"# TYPE {name} {family[0].kind}"]
        lines += [f"{name}{_labels(sample)} {_number(sample.value)}" for sample in family]
    return "\n".join(lines) + "\n"


def _labels(sample: Sample) -> str:
    if not sample.labels:
        return ""
    return "{" + ",".join(f'{label}="{_escape(value, quotes=True)}"' for label, value in sample.labels) + "}"


def _escape(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    """Whole numbers without a point: a counter of bytes must not lose its last digits to floating point."""
    return str(int(value)) if value == int(value) else repr(value)
