"""Penstock and what it needs as one archive that a Spark cluster unpacks beside each executor.

    penstock pipeline pack environment.tar.gz

A compiled extension does not travel in --py-files, so a whole environment does: the files of Penstock, Arrow and whatever else is named, as
they are installed here, laid out as a virtual environment whose `bin/python` is a link to the interpreter that made it. Nothing is fetched.
Spark itself stays out: a cluster has its own. `submit.py` at the top is what spark-submit runs.

Rules: the workers need the same Python (same minor version, same place) and the same kind of machine. One path names the interpreter for
driver and executors alike, so that the driver is started beside an unpacked copy.
"""

import importlib.util
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from io import BytesIO
from pathlib import Path

from penstock.pipeline.complaints import PipelineComplaint

OWN_PACKAGES = ("penstock", "pyspark_penstock")
ALWAYS = ("penstock", "pyarrow")
ON_THE_CLUSTER = frozenset({"pyspark", "py4j"})
LEVEL = 1  # Of compression: the best one halves nothing more, and takes a minute.
_LEFT_OUT = re.compile(r"(^|/)(__pycache__|tests?|include)(/|$)|\.(pyx|pxd|c|h|pyi)$")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

SUBMIT = '''"""For spark-submit: the command `penstock`, in the interpreter that runs this."""

import sys

from penstock.cli import main

sys.exit(main())
'''


def pack(file: str | Path, also: Sequence[str] = ()) -> Path:
    """Writes the archive, with these installed packages too, and what they need. It stands there whole, or not at all."""
    found = _wanted([*ALWAYS, *also])
    place = Path(file)
    begun = place.with_name(place.name + ".part")
    try:
        with tarfile.open(begun, "w:gz", compresslevel=LEVEL) as archive:
            _add_interpreter(archive)
            _add_text(archive, "submit.py", SUBMIT)
            for path, name in _files(found):
                archive.add(path, f"{_packages_folder()}/{name}", recursive=False)
        begun.replace(place)
    finally:
        begun.unlink(missing_ok=True)
    return place


def _wanted(names: Sequence[str]) -> dict[str, Distribution]:
    """The packages and all that they ask for, as far as it is installed: what is not, this machine does without as well."""
    found: dict[str, Distribution] = {}
    asked = [(name, True) for name in names]
    while asked:
        name, is_named = asked.pop()
        plain = re.sub(r"[._-]+", "-", name).lower()
        if plain in found or plain in ON_THE_CLUSTER:
            continue
        try:
            found[plain] = distribution(name)
        except PackageNotFoundError:
            if is_named:
                raise PipelineComplaint(f"the package {name!r} is not installed here and cannot be packed", f"pip install {name}") from None
            continue
        asked += [(needed, False) for needed in _needs(found[plain])]
    return found


def _needs(package: Distribution) -> Iterator[str]:
    for requirement in package.requires or ():
        name = _NAME.match(requirement)
        if name is not None and "extra ==" not in requirement:
            yield name.group()


def _files(found: dict[str, Distribution]) -> Iterator[tuple[Path, str]]:
    """Each file that is worth taking, and its name among the packages."""
    for own in OWN_PACKAGES:  # From where they are imported: an editable install lists none of its files.
        yield from _files_below(own)
    for package in found.values():
        for listed in package.files or ():
            name = listed.as_posix()
            is_own = name.partition("/")[0] in OWN_PACKAGES
            if name.startswith("..") or is_own or name.endswith(".pth") or _LEFT_OUT.search(name):
                continue
            path = Path(str(listed.locate()))
            if path.is_file():
                yield path, name


def _files_below(package: str) -> Iterator[tuple[Path, str]]:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise PipelineComplaint(f"the package {package!r} is not installed here", "pip install 'penstock[spark]'")
    folder = Path(spec.origin).parent
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder.parent).as_posix()
        if path.is_file() and not _LEFT_OUT.search(name):
            yield path, name


def _add_interpreter(archive: tarfile.TarFile) -> None:
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    for name in ("python", "python3"):
        link = tarfile.TarInfo(f"bin/{name}")
        link.type, link.linkname = tarfile.SYMTYPE, str(base)
        archive.addfile(link)
    version = ".".join(map(str, sys.version_info[:3]))
    _add_text(archive, "pyvenv.cfg", f"home = {base.parent}\ninclude-system-site-packages = false\nversion = {version}\n")


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), 0o644
    archive.addfile(entry, BytesIO(text.encode()))


def _packages_folder() -> str:
    return f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
