"""Builds the compiled parts, where that can be done: some modules of `penstock.wire`, `penstock.queues._many`, and on Linux
`penstock.server._flush_threads`.

Everything else about the package is said in pyproject.toml. Each extension is a faster twin of code in Python, so that a machine without a
C compiler (or with Cython missing) still gets a working install, and is told what it lost.
"""

import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SLOWER = (
    "\n"
    "penstock: the compiled record loop could not be built: {reason}\n"
    "  Penstock works without it, but looks into batches some hundred times more slowly.\n"
    "  To have it, install a C compiler (on Debian: apt install gcc python3-dev) and install Penstock again.\n"
)
VARINTS = "_varints.pxi"  # Part of four of them.


class BuildWhatCanBeBuilt(build_ext):
    """A build that is never worth failing an install for."""

    def run(self) -> None:
        try:
            super().run()
        except Exception as failure:
            self._say_slower(failure)

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as failure:
            self._say_slower(failure)

    def copy_extensions_to_source(self) -> None:
        """In place, an extension that was not built has no file to copy."""
        try:
            super().copy_extensions_to_source()
        except OSError as failure:
            self._say_slower(failure)

    @staticmethod
    def _say_slower(failure: Exception) -> None:
        print(SLOWER.format(reason=" ".join(str(failure).split())), file=sys.stderr)


def extension(name: str, *parts: str) -> Extension:
    """`parts`: what it is built from besides itself, in its own directory. Named here, they are in the sdist too."""
    room, module = name.split(".")
    directory = f"src/penstock/{room}"
    source = f"{directory}/{module}.pyx"
    return Extension(
        f"penstock.{name}",
        [source],
        depends=[source, *(f"{directory}/{part}" for part in parts)],
        include_dirs=[directory],
        extra_compile_args=["-O3"],
        optional=True,
    )


def extensions() -> list[Extension]:
    wanted = [
        extension("wire._records", VARINTS, "_crc32c.h"),
        extension("wire._requests"),
        extension("wire._sieve", VARINTS, "_crc32c.h", "_siphash.h"),
        extension("wire._columns", VARINTS),
        extension("wire._rows"),
        extension("wire._messages", VARINTS),
        extension("wire._posts"),
        extension("queues._many"),
    ]
    if sys.platform.startswith("linux"):
        wanted.append(extension("server._flush_threads"))
    built: list[Extension] = []
    for each in wanted:
        try:
            from Cython.Build import cythonize

            built += cythonize([each])
        except Exception as failure:
            print(SLOWER.format(reason=f"Cython: {failure}"), file=sys.stderr)
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildWhatCanBeBuilt})
