"""Sees to Java, which Spark runs on: where it is missing it is installed from the system's packages, if system and user are such.

    python scripts/java.py

Used by `make setup`; needs nothing but the standard library. It never fails: everything but the pipelines works without Java, and the
last line says what to install.
"""

import os
import shutil
import subprocess
import sys

PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "openjdk-25-jre-headless")  # What Spark 4 runs on.
OTHER_SYSTEMS = "on Fedora: dnf install java-21-openjdk-headless; on macOS: brew install openjdk@17"


def main() -> None:
    if has_java():
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        install()
    if not has_java():
        print(
            "Java is missing, so that pipelines cannot run and their tests are skipped; everything else works\n"
            f"  on Debian and Ubuntu: apt-get install {PACKAGES[0]}; {OTHER_SYSTEMS}",
            file=sys.stderr,
        )


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None) is not None


def install() -> None:
    if not any(map(installed, PACKAGES)):
        apt_get("update")  # Images come without lists of packages.
        any(map(installed, PACKAGES))


def installed(package: str) -> bool:
    print(f"Java is missing: apt-get install {package}", file=sys.stderr)
    return apt_get("install", "--yes", "--no-install-recommends", package) and has_java()


def apt_get(*arguments: str) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(["apt-get", "--quiet=2", *arguments], env=environment, stdout=sys.stderr, check=False).returncode == 0


if __name__ == "__main__":
    main()
