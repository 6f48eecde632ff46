"""The keys of the queue door: who may use it, by access key and secret, from a file that nobody else may read.

One key a line, its id and its secret with a space between; empty lines and lines that begin with # do not count. A node without such a
file lets everybody in. Secrets are never printed: a complaint names the line, not what stands there.
"""

import stat
from pathlib import Path

from penstock.server.complaints import ConfigurationWrong

KEYS_MAX = 10_000
ID_LENGTH_MAX = 128  # As IAM's.
SECRET_LENGTH_MIN, SECRET_LENGTH_MAX = 8, 1_024

_FORM = "write one key a line, its id, a space and its secret: AKIDEXAMPLE wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"


def read_keys(file: str) -> dict[str, str]:
    """Ids and secrets; none where no file is named. Raises ConfigurationWrong."""
    if not file:
        return {}
    keys: dict[str, str] = {}
    for number, line in enumerate(_read_private(Path(file)).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"line {number} of the queue keys {file}"
        if len(words) != 2 or "/" in words[0] or len(words[0]) > ID_LENGTH_MAX:
            raise ConfigurationWrong(f"{where} is no key", _FORM)
        if not SECRET_LENGTH_MIN <= len(words[1]) <= SECRET_LENGTH_MAX:
            raise ConfigurationWrong(f"the secret in {where} must have {SECRET_LENGTH_MIN} to {SECRET_LENGTH_MAX} characters", _FORM)
        if words[0] in keys:
            raise ConfigurationWrong(f"{where} has the id of another line", "keep one of them")
        keys[words[0]] = words[1]
    if not 1 <= len(keys) <= KEYS_MAX:
        raise ConfigurationWrong(f"the queue keys {file} must have 1 to {KEYS_MAX} keys, not {len(keys)}", _FORM)
    return keys


def _read_private(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            what = f"the queue keys {path} can be read by others (mode {stat.S_IMODE(mode):03o})"
            raise ConfigurationWrong(what, f"keep them to yourself: chmod 600 {path}")
        return path.read_text(encoding="utf-8")
    except OSError as failure:
        raise ConfigurationWrong(f"the queue keys {path} cannot be read: {failure.strerror}", _FORM) from None
    except UnicodeDecodeError:
        raise ConfigurationWrong(f"the queue keys {path} are no text", _FORM) from None
