"""Checks the result files of the benchmarks: each says where its figures come from, and the summary links each.

    python scripts/results.py [directory]

A result file is `YYYY-MM-DD-topic.md`, or `YYYY-MM-topic.md` where the day is not known. Its first table is a header with one field a row:
date, commit, machine and command must be there and not be empty, the commit must name a hash, and the date must be the one in the
file's name. README.md in the same directory is the summary and must link every result file. Every complaint is printed; the exit code
is 1 if there is any.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
SUMMARY = "README.md"
FIELDS = ("date", "commit", "machine", "command")
DATE = r"\d{4}-\d{2}(?:-\d{2})?"


def main(arguments: list[str]) -> int:
    found = list(complaints(Path(arguments[0]) if arguments else RESULTS))
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


def complaints(directory: Path) -> Iterator[str]:
    summary = directory / SUMMARY
    links = set(re.findall(r"\]\(([^)#]+)", summary.read_text())) if summary.is_file() else set()
    files = [path for path in sorted(directory.glob("*.md")) if path.name != SUMMARY]
    if not files:
        yield f"{directory}: there are no result files"
    for path in files:
        yield from (f"{path}: {complaint}" for complaint in _complaints_of_file(path))
        if path.name not in links:
            yield f"{path}: {SUMMARY} does not link it"


def _complaints_of_file(path: Path) -> Iterator[str]:
    header = fields_of_header(path.read_text())
    missing = [field for field in FIELDS if not header.get(field)]
    yield from (f"the header has no {field}" for field in missing)
    if "commit" not in missing and not re.search(r"\b[0-9a-f]{7,40}\b", header["commit"]):
        yield f"the header names no hash of a commit: {header['commit']}"
    named = re.match(rf"({DATE})-[a-z]", path.name)
    if not named:
        yield "the name does not start with a date and a topic: YYYY-MM-DD-topic.md"
        return
    dated = re.match(DATE, header.get("date", ""))
    if "date" not in missing and (not dated or dated[0] != named[1]):
        yield f"the name does not start with the date in the header: {header['date']}"


def fields_of_header(text: str) -> dict[str, str]:
    """Returns the rows of the first table in a page: the text of the second cell by that of the first."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("|"):
            name, _, value = line.strip("| ").partition("|")
            fields[name.strip()] = value.strip()
        elif fields:
            break
    return fields


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
