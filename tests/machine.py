"""Probes: what this machine has, asked once each. An answer is None, or the reason why a test that needs it cannot run.

    python tests/machine.py

prints for PENSTOCK_REQUIRE what must be tested here, and on the standard error what need not be, with the reason. Where packages may be
installed, that is everything that `make setup` installs, whether it could or not: else a mirror that is down would leave half of the suite
untested. Elsewhere it is what the machine has. What the kernel must allow is asked of it everywhere.
What `make setup` installs is probed as there, and its packages are named in one place: scripts/system_packages.py.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts"))
from system_packages import BROWSERS, lack_of, may_install

__all__ = ["BROWSERS", "PROBES", "maven", "missing", "unbuilt"]

if os.environ.get("JAVA_HOME"):  # Spark and Maven take Java from there: what is started as `java` is the same one.
    os.environ["PATH"] = os.pathsep.join([os.path.join(os.environ["JAVA_HOME"], "bin"), os.environ["PATH"]])


def fuse() -> str | None:
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as failure:
        return f"/dev/fuse cannot be opened: {failure.strerror}"
    return None


def network_namespaces() -> str | None:
    if shutil.which("unshare") is None:
        return "there is no unshare here (Debian: util-linux)"
    asked = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return None if asked.returncode == 0 else f"network namespaces are not allowed here: {asked.stderr.strip()}"


def netns() -> str | None:
    return lack_of("ip") or network_namespaces()


def java() -> str | None:
    return lack_of("Java")


def maven() -> str | None:
    return lack_of("Maven")


def spark() -> str | None:
    if find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'penstock[spark]')"
    return java()


def cc() -> str | None:
    return lack_of("C compiler") or lack_of("Python.h")


def browser() -> str | None:
    return lack_of("Chromium")


def pycurl() -> str | None:
    """It comes as a wheel for most machines, and elsewhere wants a C compiler and libcurl."""
    return None if find_spec("pycurl") else "pycurl is not installed, which kombu's SQS transport receives with (pip install 'kombu[sqs]')"


PROBES: dict[str, Callable[[], str | None]] = {
    "fuse": fuse, "netns": netns, "java": java, "spark": spark, "cc": cc, "browser": browser, "pycurl": pycurl,
}  # fmt: skip
OF_THE_KERNEL = {"fuse": fuse, "netns": network_namespaces}


@cache
def missing(name: str) -> str | None:
    if name not in PROBES:
        return f"nobody knows how to look for {name!r}"
    return PROBES[name]()


def unbuilt(parts: str) -> str:
    """Returns the reason of a skip for compiled parts that are not there."""
    return f"needs cc: {cc() or f'{parts} were not built (make setup)'}"


def not_required(name: str) -> str | None:
    """Returns None where this must be tested here, else why it need not be."""
    if may_install():
        return OF_THE_KERNEL[name]() if name in OF_THE_KERNEL else None
    return PROBES[name]() or (maven() if name == "java" else None)  # Most of Java's tests are for jars that Maven fetches.


def main() -> None:
    reasons = {name: not_required(name) for name in PROBES}
    for name, reason in reasons.items():
        if reason is not None:
            print(f"not required here: {name}: {reason}", file=sys.stderr)
    print(",".join(name for name, reason in reasons.items() if reason is None))


if __name__ == "__main__":
    main()
