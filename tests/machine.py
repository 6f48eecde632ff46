"""Probes: what this machine has, asked once each. An answer is None, or the reason why a test that needs it cannot run."""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec


def fuse() -> str | None:
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as failure:
        return f"/dev/fuse cannot be opened: {failure.strerror}"
    return None


def netns() -> str | None:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "there is no unshare or ip (Debian: util-linux, iproute2)"
    asked = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return None if asked.returncode == 0 else f"network namespaces are not allowed here: {asked.stderr.strip()}"


def java() -> str | None:
    return None if shutil.which("java") else "there is no java in PATH (Debian: openjdk-17-jre-headless)"


def spark() -> str | None:
    if find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'penstock[spark]')"
    return java()


def cc() -> str | None:
    return None if shutil.which("cc") or shutil.which("gcc") else "there is no C compiler in PATH"


BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")


def browser() -> str | None:
    if any(shutil.which(name) for name in BROWSERS):
        return None
    return "there is no Chromium in PATH (Debian: chromium-headless-shell)"


def pycurl() -> str | None:
    """It comes as a wheel for most machines, and elsewhere wants a C compiler and libcurl."""
    return None if find_spec("pycurl") else "pycurl is not installed, which kombu's SQS transport receives with (pip install 'kombu[sqs]')"


PROBES: dict[str, Callable[[], str | None]] = {
    "fuse": fuse, "netns": netns, "java": java, "spark": spark, "cc": cc, "browser": browser, "pycurl": pycurl,
}  # fmt: skip


@cache
def missing(name: str) -> str | None:
    if name not in PROBES:
        return f"nobody knows how to look for {name!r}"
    return PROBES[name]()
