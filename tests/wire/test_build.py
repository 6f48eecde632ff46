"""Building without Cython succeeds and says what was lost; a source package has what is compiled elsewhere (cli/test_install.py)."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from quick_cc import COMPILED

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path):
    """What a build looks at, without anything that was built before."""
    ignored = shutil.ignore_patterns("*.so", *(f"{name}.c" for name in COMPILED), "__pycache__")
    for room in ("queues", "server", "wire"):
        shutil.copytree(ROOT / "src" / "penstock" / room, tmp_path / "src" / "penstock" / room, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def build(checkout, *command, **environment):
    command = [sys.executable, "setup.py", *(command or ("build_ext", "--inplace"))]
    return subprocess.run(command, cwd=checkout, env=os.environ | environment, capture_output=True, text=True, check=False)


def compiled_in(checkout):
    return list((checkout / "src").rglob("*.so"))


def test_without_cython_the_build_succeeds_and_says_that_it_is_slower(checkout):
    (checkout / "Cython").mkdir()
    (checkout / "Cython" / "__init__.py").write_text("raise ImportError('there is no Cython here')")
    built = build(checkout, PYTHONPATH=str(checkout))
    assert built.returncode == 0, built.stderr
    assert "more slowly" in built.stderr
    assert not compiled_in(checkout)


def test_a_source_package_carries_all_that_the_loop_is_built_from_and_nothing_that_was_made_of_it(checkout):
    for made in (ROOT / "src" / "penstock").glob("*/*.c"):  # By `make setup`; where they are missing, Cython makes them now.
        shutil.copy2(made, checkout / made.relative_to(ROOT))
    packed = build(checkout, "sdist")
    assert packed.returncode == 0, packed.stderr
    with tarfile.open(next((checkout / "dist").iterdir())) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert {f"{name}.pyx" for name in COMPILED} <= names
    assert {"_varints.pxi", "_crc32c.h", "_siphash.h"} <= names
    assert {"_records_py.py", "_sieve_py.py", "_columns_py.py", "_rows_py.py", "setup.py"} <= names
    assert not {f"{name}.c" for name in COMPILED} & names


@pytest.mark.parametrize(
    ("missing", "door"),
    [
        ("wire._records", "wire.records"), ("wire._sieve", "wire.sieve"), ("wire._columns", "wire.columns"), ("wire._rows", "wire.columns"),
        ("wire._posts", "wire.posts"), ("queues._many", "queues.many"),
    ],
)  # fmt: skip
def test_the_loop_in_python_takes_over_where_the_compiled_one_is_missing(missing, door):
    script = f"import sys; sys.modules['penstock.{missing}'] = None; from penstock.{door} import COMPILED; print(COMPILED)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True).stdout == "False\n"
