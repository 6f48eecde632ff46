"""The project as somebody else installs it: a wheel in an empty environment, and a machine without a C compiler."""

import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen
from zipfile import ZipFile

import pytest
from cli.running import clean_environment
from machine import missing
from quick_cc import COMPILED, quick_cc

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(600)


def foreign(environment: dict[str, str]) -> dict[str, str]:
    """Nothing that leads back to the checkout, or past PATH to a compiler."""
    return {name: value for name, value in clean_environment().items() if name not in ("PYTHONPATH", "CC", "CXX")} | environment


def run(*command: str | Path, cwd: Path, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, input=given, capture_output=True, text=True, env=foreign(environment), check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def checkout(directory: Path) -> Path:
    """What is under version control, and nothing that a build left lying about."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=ROOT).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, directory / name)
    return directory


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
        _, said = node.communicate(timeout=30)
        assert node.returncode == 0, said
        return said
    finally:
        node.kill()
        node.communicate()


def test_the_wheel_works_in_an_empty_environment_outside_the_checkout(tmp_path: Path):
    source = checkout(tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source]
    run(*pip, cwd=tmp_path, CC=quick_cc(tmp_path))
    (wheel,) = tmp_path.glob("penstock-*.whl")
    with ZipFile(wheel) as packed:
        compiled = {Path(name).name.split(".")[0] for name in packed.namelist() if name.endswith(".so")}
    assert compiled == (set() if missing("cc") else COMPILED)
    place = tmp_path / "elsewhere"
    place.mkdir()
    run(sys.executable, ROOT / "scripts" / "make_venv.py", place / "venv", cwd=place)
    python = place / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", "--require-hashes", "-r", ROOT / "requirements" / "run.lock", cwd=place)
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps", wheel, cwd=place)
    run(python, "-m", "pip", "check", cwd=place)
    assert "elsewhere" in run(python, "-c", "import penstock; print(penstock.__file__)", cwd=place).stdout
    serve_produce_consume(python, place)


def test_without_a_compiler_it_installs_all_the_same_and_says_that_it_is_slower(tmp_path: Path):
    source, target, tools = checkout(tmp_path / "source"), tmp_path / "target", tmp_path / "bin"
    tools.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--verbose", "--no-compile", "--no-deps", "--no-build-isolation", "--target", target]
    done = run(*pip, source, cwd=tmp_path, PATH=str(tools))
    assert "slowly" in done.stdout + done.stderr
    environment = {"PYTHONPATH": str(target)}
    ask = "from penstock.wire import records; print(records.COMPILED, records.__file__)"
    assert run(sys.executable, "-c", ask, cwd=tmp_path, **environment).stdout.startswith(f"False {target}")
    assert "checks records many times more slowly" in serve_produce_consume(Path(sys.executable), tmp_path, **environment)
