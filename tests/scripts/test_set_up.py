"""`make setup`: what it makes the first time, what it tries again, and what it shows where a step fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = ("cc", "java", "mvn", "chromium", "ip")
# The Python of an environment: notes how pip is called, and says and ends what a test wants it to.
PYTHON = """#!/bin/sh
echo "$@" >> "{project}/pip"
[ -e "{project}/said" ] && cat "{project}/said"
[ ! -e "{project}/broken" ]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout whose path has a space, an environment that is made, and a machine with every program and no way to install one."""
    project = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", project / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / file, project)
    (project / "requirements").mkdir()
    (project / "requirements" / "dev.lock").write_text("one==1\ntwo==2\n")
    for name in COMMANDS:
        executable(tmp_path / "bin" / name)
    for name in ("cat", "make", "touch"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    executable(project / ".venv" / "bin" / "pip")
    executable(project / ".venv" / "bin" / "python", PYTHON.format(project=project))
    return project


def executable(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs make. Its output is no terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "MAKEFLAGS", "MAKELEVEL")}
    command = ["make", *arguments, f'PYTHON="{sys.executable}"']  # Its path may have a space.
    return subprocess.run(
        command, cwd=project, env=kept | {"PATH": str(project.parent / "bin")}, capture_output=True, text=True, check=False
    )


def pip_calls(project: Path) -> list[str]:
    """Returns what pip was last asked to install: the lock or the project."""
    file = project / "pip"
    calls = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return ["project" if "--editable" in call else "lock" for call in calls]


def test_it_installs_the_lock_and_the_project_and_says_so_and_the_next_time_it_does_nothing(project: Path) -> None:
    first = make(project, "setup")
    assert first.returncode == 0, first.stderr
    assert "] 2 packages: done\n" in first.stderr and "] penstock, with its compiled parts: done\n" in first.stderr
    assert pip_calls(project) == ["lock", "project"]
    again = make(project, "setup")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    (project / ".venv" / ".penstock-setup").unlink()  # As if the lock were newer.
    make(project, "setup")
    assert pip_calls(project) == ["lock", "project"]


def test_asked_for_by_name_it_looks_again_for_what_was_missing_and_other_targets_do_not(project: Path) -> None:
    maven = project.parent / "bin" / "mvn"
    maven.unlink()
    for _ in range(2):
        assert "Maven is missing" in make(project, "setup").stderr
    assert pip_calls(project) == ["lock", "project"]
    assert "set_up.py" not in make(project, "--dry-run", "check").stdout
    executable(maven)
    assert make(project, "setup").stderr == ""


def test_the_project_is_built_again_once_a_compiler_has_come(project: Path) -> None:
    compiler = project.parent / "bin" / "cc"
    compiler.unlink()
    assert "C compiler is missing" in make(project, "setup").stderr
    assert pip_calls(project) == ["lock", "project"]
    make(project, "setup")
    assert pip_calls(project) == []
    executable(compiler)
    assert "penstock, with its compiled parts: done" in make(project, "setup").stderr
    assert pip_calls(project) == ["project"]
    make(project, "setup")
    assert pip_calls(project) == []


def test_a_step_of_pip_that_fails_is_shown_as_failed_with_what_pip_said_and_is_tried_again(project: Path) -> None:
    (project / "said").write_text("Collecting one\nERROR: No matching distribution found for one\n")
    (project / "broken").touch()
    failed = make(project, "setup")
    assert failed.returncode != 0
    assert "] 2 packages: failed\n" in failed.stderr and "done" not in failed.stderr
    assert "ERROR: No matching distribution found for one\n" in failed.stderr
    (project / "broken").unlink()
    assert make(project, "setup").returncode == 0


def test_what_pip_warns_of_is_shown_and_the_rest_of_its_output_is_not(project: Path) -> None:
    (project / "said").write_text("Collecting one\nWARNING: one 1 was yanked\n")
    said = make(project, "setup").stderr
    assert said.count("WARNING: one 1 was yanked\n") == 2 and "Collecting" not in said


def test_a_package_of_an_interrupted_pip_is_installed_again(project: Path) -> None:
    packages = project / ".venv" / "lib" / "python3.11" / "site-packages"
    half, whole = packages / "one-1.dist-info", packages / "two-2.dist-info"
    for file in (half / "METADATA", whole / "METADATA", whole / "INSTALLER"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    make(project, "setup")
    assert not half.exists() and whole.exists()


def make_venv(directory: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts" / "make_venv.py"), str(directory)], check=True)


def test_an_environment_that_was_interrupted_before_it_had_pip_is_made_anew(tmp_path: Path) -> None:
    directory = tmp_path / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    half = directory / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "pip" / "__init__.py"
    half.parent.mkdir()
    half.write_text("raise ImportError\n")
    make_venv(directory)
    subprocess.run([str(directory / "bin" / "python"), "-m", "pip", "--version"], check=True)


def test_a_directory_that_is_no_environment_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    make_venv(tmp_path)
    assert (tmp_path / "thesis.txt").exists() and (tmp_path / "bin" / "pip").exists()
