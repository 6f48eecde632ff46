"""Builds the compiled parts, `penstock.wire._records`, `_requests`, `_sieve`, `_columns`, `_rows` and `_messages`, where that can be done.

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
VARINTS = "src/penstock/wire/_varints.pxi"  # Part of four of them.


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


def extensions() -> list[Extension]:
    records = Extension(
        "penstock.wire._records",
        ["src/penstock/wire/_records.pyx"],
        depends=["src/penstock/wire/_records.pyx", VARINTS, "src/penstock/wire/_crc32c.h"],  # Named here, they are in the sdist too.
        include_dirs=["src/penstock/wire"],
        extra_compile_args=["-O3"],
        optional=True,
    )
    requests = Extension(
        "penstock.wire._requests",
        ["src/penstock/wire/_requests.pyx"],
        depends=["src/penstock/wire/_requests.pyx"],
        extra_compile_args=["-O3"],
        optional=True,
    )
    sieve = Extension(
        "penstock.wire._sieve",
        ["src/penstock/wire/_sieve.pyx"],
        depends=["src/penstock/wire/_sieve.pyx", VARINTS, "src/penstock/wire/_crc32c.h", "src/penstock/wire/_siphash.h"],
        include_dirs=["src/penstock/wire"],
        extra_compile_args=["-O3"],
        optional=True,
    )
    columns, rows, messages = (
        Extension(
            f"penstock.wire.{name}",
            [f"src/penstock/wire/{name}.pyx"],
            depends=[f"src/penstock/wire/{name}.pyx", VARINTS],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for name in ("_columns", "_rows", "_messages")
    )
    built: list[Extension] = []
    for extension in (records, requests, sieve, columns, rows, messages):
        try:
            from Cython.Build import cythonize

            built += cythonize([extension])
        except Exception as failure:
            print(SLOWER.format(reason=f"Cython: {failure}"), file=sys.stderr)
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildWhatCanBeBuilt})
