"""The project as somebody else installs it: a wheel in an empty environment, and a machine without a C compiler.

One checkout is built twice, with a compiler and without; Cython translates it once. An environment holds the packages that
requirements/run.lock names, and nothing else: `make test` lends them from the environment of the suite, `make test-slow` fetches them.
"""

import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path
from urllib.request import urlopen
from zipfile import ZipFile

import pytest
from cli.running import clean_environment
from machine import missing
from packaging.requirements import Requirement
from quick_cc import COMPILED, quick_cc
from uv import find_uv_bin

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "run.lock"
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"  # What pip calls.


def foreign(environment: dict[str, str]) -> dict[str, str]:
    """Nothing that leads back to the checkout, or past PATH to a compiler."""
    return {name: value for name, value in clean_environment().items() if name not in ("PYTHONPATH", "CC", "CXX")} | environment


def run(*command: str | Path, cwd: Path, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, input=given, capture_output=True, text=True, env=foreign(environment), check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture
def source(checkout: Path) -> Path:
    """The checkout, with nothing that an earlier build left but Cython's translations."""
    shutil.rmtree(checkout / "build", ignore_errors=True)
    return checkout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build looks at and is under version control."""
    directory = tmp_path_factory.mktemp("source")
    parts = ["src", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"]
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *parts, cwd=ROOT).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, directory / name)
    return directory


def build(source: Path, directory: Path, **environment: str) -> tuple[Path, str]:
    """Returns the wheel, and what the build said."""
    done = run(sys.executable, "-c", BUILD, directory, cwd=source, **environment)
    (wheel,) = directory.glob("penstock-*.whl")
    return wheel, done.stdout + done.stderr


def compiled_in(wheel: Path) -> set[str]:
    with ZipFile(wheel) as packed:
        return {Path(name).name.split(".")[0] for name in packed.namelist() if name.endswith(".so")}


def tools_without_a_compiler(directory: Path) -> str:
    """A PATH."""
    (directory / "bin").mkdir()
    return str(directory / "bin")


def install(wheel: Path, place: Path) -> Path:
    """Makes an environment with the wheel and what is locked for it; returns its interpreter."""
    venv.create(place / "venv", with_pip=False, symlinks=True)
    python = place / "venv" / "bin" / "python"
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    lend_locked(packages)
    uv = [find_uv_bin(), "--quiet", "--offline", "--no-cache", "pip"]
    run(*uv, "install", "--no-deps", "--python", python, wheel, cwd=place)
    run(*uv, "check", "--python", python, cwd=place)
    return python


def lend_locked(packages: Path) -> None:
    """Links the locked packages of this environment, in the versions that are locked."""
    for line in re.findall(r"^[a-z][^\\\n]*==[^\\\n]*", LOCK.read_text(), re.MULTILINE):
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        lent = distribution(wanted.name)
        assert wanted.specifier.contains(lent.version), f"make setup: {line} is locked, and {lent.version} is here"
        for file in lent.files or ():
            if ".." not in file.parts:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                (packages / file).symlink_to(lent.locate_file(file))


def serve_produce_consume(python: Path, place: Path, **environment: str) -> str:
    """One life of a node from outside the checkout; what it said on standard error."""
    penstock = [python, "-m", "penstock"]
    command = [*map(str, penstock), "serve", "--data-dir", str(place / "data"), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    node = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=foreign(environment))
    try:
        assert node.stdout is not None
        ready = dict(pair.split("=", 1) for pair in node.stdout.readline().split()[2:])
        where = ["--bootstrap", ready["kafka"]]
        run(*penstock, "produce", "orders", "--compression", "zstd", *where, cwd=place, given="one\ntwo\n", **environment)
        assert run(*penstock, "consume", "orders", *where, cwd=place, **environment).stdout == "one\ntwo\n"
        with urlopen(f"http://{ready['http']}/") as page:
            assert b"<title>Penstock</title>" in page.read()
        node.terminate()
        _, said = node.communicate()
        assert node.returncode == 0, said
        return said
    finally:
        node.kill()
        node.communicate()


def test_the_wheel_works_in_an_empty_environment_outside_the_checkout(source: Path, tmp_path: Path):
    wheel, _ = build(source, tmp_path, CC=quick_cc(tmp_path))
    assert compiled_in(wheel) == (set() if missing("cc") else COMPILED)
    python = install(wheel, tmp_path)
    assert run(python, "-c", "import penstock; print(penstock.__file__)", cwd=tmp_path).stdout.startswith(str(tmp_path))
    serve_produce_consume(python, tmp_path)


def test_without_a_compiler_it_installs_all_the_same_and_says_that_it_is_slower(source: Path, tmp_path: Path):
    wheel, said = build(source, tmp_path, PATH=tools_without_a_compiler(tmp_path))
    assert "slowly" in said
    assert compiled_in(wheel) == set()
    python = install(wheel, tmp_path)
    ask = "from penstock.wire import records; print(records.COMPILED, records.__file__)"
    assert run(python, "-c", ask, cwd=tmp_path).stdout.startswith(f"False {tmp_path}")
    assert "checks records many times more slowly" in serve_produce_consume(python, tmp_path)


@pytest.mark.slow(stays="tests/cli/test_install.py::test_the_wheel_works_in_an_empty_environment_outside_the_checkout")
def test_pip_builds_it_and_fetches_what_is_locked(source: Path, tmp_path: Path):
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source]
    run(*pip, cwd=tmp_path, CC=quick_cc(tmp_path))
    (wheel,) = tmp_path.glob("penstock-*.whl")
    run(sys.executable, ROOT / "scripts" / "make_venv.py", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    run(*pip, "--require-hashes", "-r", LOCK, cwd=tmp_path)
    run(*pip, "--no-deps", wheel, cwd=tmp_path)
    run(python, "-m", "pip", "check", cwd=tmp_path)
    serve_produce_consume(python, tmp_path)


@pytest.mark.slow(stays="tests/cli/test_install.py::test_without_a_compiler_it_installs_all_the_same_and_says_that_it_is_slower")
def test_pip_shows_what_a_build_without_a_compiler_says(source: Path, tmp_path: Path):
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "install", "--verbose", "--no-compile", "--no-deps", "--no-build-isolation", "--target", target]
    done = run(*pip, source, cwd=tmp_path, PATH=tools_without_a_compiler(tmp_path))
    assert "slowly" in done.stdout + done.stderr
    assert "checks records many times more slowly" in serve_produce_consume(Path(sys.executable), tmp_path, PYTHONPATH=str(target))


def test_what_it_runs_with_is_locked_as_the_suite_has_it():
    """`make setup` installs the other lock by its hashes."""

    def locked(path: Path) -> dict[str, list[str]]:
        blocks = re.findall(r"^([a-z][^\\\n]*?) *\\\n((?: +--hash.*\n)+)", path.read_text(), re.MULTILINE)
        return {name: re.findall(r"sha256:\w+", hashes) for name, hashes in blocks}

    to_run, to_develop = locked(LOCK), locked(LOCK.with_name("dev.lock"))
    assert to_run
    assert to_run.items() <= to_develop.items()
