"""Checks the result files of the benchmarks: each says where its figures come from, and the summary links each.

    python scripts/results.py [directory]

A result file is `YYYY-MM-DD-topic.md`, or `YYYY-MM-topic.md` where the day is not known. Its first table is a header with one field a row:
date, commit, machine and command must be there and not be empty, and the date must be the one in the file's name.

A commit is one of these, and may be followed by a remark:
- `96c1a72`, `96c1a72-dirty` or several: commits in the history of this checkout;
- `unknown, REASON`: nobody knows it, or no history has it. `recorded in 96c1a72` names the commit that added the figures.

README.md in the same directory is the summary: it links every result file, its rows say the commit in the same way, and what they say is
in the file that they link. No link to a file leads nowhere.
Hashes are looked up where git has the whole history: not in a shallow clone, and not without `.git`.
Every complaint is printed; the exit code is 1 if there is any.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
SUMMARY = "README.md"
FIELDS = ("date", "commit", "machine", "command")
DATE = r"\d{4}-\d{2}(?:-\d{2})?"
HASH = r"\b[0-9a-f]{7,40}\b"
LINK = re.compile(r"\]\(([^)#:]+)[)#]")  # To a file, relative to the page.


def main(arguments: list[str]) -> int:
    found = list(complaints(Path(arguments[0]) if arguments else RESULTS))
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


def complaints(directory: Path) -> Iterator[str]:
    pages = {path: path.read_text() for path in sorted(directory.glob("*.md"))}
    summary = pages.get(directory / SUMMARY, "")
    history = history_of(directory)
    files = {path: page for path, page in pages.items() if path.name != SUMMARY}
    if not files:
        yield f"{directory}: there are no result files"
    for path, page in pages.items():
        yield from (f"{path}: {link} is linked and not there" for link in LINK.findall(page) if not (directory / link).exists())
    for path, page in files.items():
        yield from (f"{path}: {complaint}" for complaint in _complaints_of_file(path.name, page, history))
        if path.name not in LINK.findall(summary):
            yield f"{path}: {SUMMARY} does not link it"
    yield from (f"{directory / SUMMARY}: {complaint}" for complaint in _complaints_of_rows(directory, summary, history))


def _complaints_of_file(name: str, page: str, history: str | None) -> Iterator[str]:
    header = fields_of_header(page)
    missing = [field for field in FIELDS if not header.get(field)]
    yield from (f"the header has no {field}" for field in missing)
    if "commit" not in missing:
        yield from (f"the header's commit: {complaint}" for complaint in complaints_of_commit(header["commit"], history))
    named = re.match(rf"({DATE})-[a-z]", name)
    if not named:
        yield "the name does not start with a date and a topic: YYYY-MM-DD-topic.md"
        return
    dated = re.match(DATE, header.get("date", ""))
    if "date" not in missing and (not dated or dated[0] != named[1]):
        yield f"the name does not start with the date in the header: {header['date']}"


def _complaints_of_rows(directory: Path, summary: str, history: str | None) -> Iterator[str]:
    column, link = None, ""
    for line in summary.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else []
        if "commit" in cells:
            column = cells.index("commit")
        elif not cells:
            column = None
        elif column is not None and column < len(cells) and not cells[column].startswith("-"):
            link = next(iter(LINK.findall(line)), link)  # "the same" is the file of the row before.
            yield from (f"the row {cells[0]!r}: {complaint}" for complaint in complaints_of_commit(cells[column], history))
            told = (directory / link).read_text() if (directory / link).is_file() else cells[column]
            absent = [each for each in re.findall(HASH, cells[column]) if each not in told]
            yield from (f"the row {cells[0]!r}: {each} is not in {link}" for each in absent)


def complaints_of_commit(text: str, history: str | None) -> Iterator[str]:
    """Yields what is wrong with a commit as a header or a row says it. `history` has all hashes; None if it is not known."""
    named, is_unknown, reason = text.partition("unknown")
    if (named or not is_unknown) and not re.match(HASH, named):
        yield f"it begins neither with a hash nor with `unknown`: {text}"
    if is_unknown and not re.match(r"[,:;] \S", reason):
        yield f"`unknown` needs a reason, or a commit: unknown, recorded in …: {text}"
    hashes = [*re.findall(HASH, named), *re.findall(rf"recorded in ({HASH})", reason)]
    for each in hashes if history is not None else ():
        if f"\n{each}" not in f"\n{history}":
            yield f"no commit in the history is {each}"


def history_of(directory: Path) -> str | None:
    """Returns the hashes of all commits, one a line; None where git does not know them all."""
    asked = ["git", "-C", str(directory)]
    shallow = subprocess.run([*asked, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True, check=False)
    if shallow.stdout.strip() != "false":
        return None
    return subprocess.run([*asked, "rev-list", "HEAD"], capture_output=True, text=True, check=True).stdout


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
