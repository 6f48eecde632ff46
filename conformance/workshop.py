"""Where foreign tools come from: the machine's package registries, unpacked into .cache/conformance and nowhere else.

Nothing is installed into the system: Debian packages are only unpacked, Python packages go into an environment of their own. What is
there already is not fetched again. `NotToBeHad` carries the reason for the closing table.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "conformance"
SCRATCH = CACHE / "scratch"  # What tools print while they run.
PROGRAMS = Path(__file__).parent / "programs"
PENSTOCK = (sys.executable, "-m", "penstock")
FETCH_SECONDS_MAX = 540.0  # A cold cache and two busy cores.

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock.conformance</groupId><artifactId>java-tools</artifactId><version>1</version>
  <dependencies>
{dependencies}
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
DEPENDENCY = "    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"


class NotToBeHad(Exception):
    """This machine has no such tool, and the registry gave none either."""


def debian(name: str, *packages: str) -> Path:
    """Unpacks Debian packages into one tree. Root is not needed for that, a package list (`apt-get update`) is."""
    tree = CACHE / name
    if not (tree / "complete").exists():
        need("apt-get", "dpkg-deb")
        tree.mkdir(parents=True, exist_ok=True)
        try:
            run(["apt-get", "download", *packages], cwd=tree)
        except NotToBeHad:
            if os.geteuid() != 0:
                raise
            run(["apt-get", "update"], cwd=tree)  # A new machine may have no package list yet.
            run(["apt-get", "download", *packages], cwd=tree)
        for package in sorted(tree.glob("*.deb")):
            run(["dpkg-deb", "-x", str(package), str(tree)], cwd=tree)
        (tree / "complete").touch()
    return tree


def maven(name: str, *artifacts: str) -> str:
    """A class path with `group:artifact:version` and all that they need."""
    jars = CACHE / name
    if not (jars / "complete").exists():
        need("mvn", "java")
        jars.mkdir(parents=True, exist_ok=True)
        parts = [dict(zip(("group", "artifact", "version"), artifact.split(":"), strict=True)) for artifact in artifacts]
        (jars / "pom.xml").write_text(POM.format(dependencies="\n".join(DEPENDENCY.format(**part) for part in parts)))
        run(["mvn", "-q", "-B", "-f", str(jars / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], cwd=jars)
        (jars / "complete").touch()
    return f"{jars}/*"


def npm(name: str) -> Path:
    """The directory of a JavaScript program with the packages that its package.json names."""
    need("node", "npm")
    directory = _copied(name)
    run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"], cwd=directory)
    return directory


def go(name: str) -> Path:
    """A Go program, built. Modules are kept in the cache too."""
    need("go")
    directory = _copied(name)
    run(["go", "build", "-o", "play", "."], cwd=directory, environment={"GOFLAGS": "-modcacherw", "GOPATH": str(CACHE / "go")})
    return directory / "play"


def pip(name: str, *requirements: str) -> Path:
    """The Python of an environment with these packages in it."""
    python = CACHE / name / "bin" / "python"
    if not (CACHE / name / "complete").exists():
        shutil.rmtree(CACHE / name, ignore_errors=True)  # Half an environment cannot be finished.
        run([sys.executable, str(ROOT / "scripts" / "make_venv.py"), str(CACHE / name)], cwd=ROOT)
        run([str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *requirements], cwd=ROOT)
        (CACHE / name / "complete").touch()
    return python


def need(*commands: str) -> None:
    for command in commands:
        if shutil.which(command) is None:
            raise NotToBeHad(f"this machine has no {command}")


def run(command: Sequence[str], *, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    try:
        ended = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS_MAX,
            check=True,
        )
    except subprocess.CalledProcessError as failure:
        last_words = (failure.stderr or failure.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise NotToBeHad(f"`{' '.join(command[:3])}` failed and said: {last_words[0]}") from None
    except subprocess.TimeoutExpired:
        raise NotToBeHad(f"`{' '.join(command[:3])}` was not done after {FETCH_SECONDS_MAX:.0f} s") from None
    return ended.stdout


def _copied(name: str) -> Path:
    """A copy of a program beside what it needs, so that the source tree stays as it is."""
    shutil.copytree(PROGRAMS / name, CACHE / name, dirs_exist_ok=True)
    return CACHE / name
