"""The file with the keys of the queue door."""

from pathlib import Path

import pytest

from penstock.server.complaints import ConfigurationWrong
from penstock.server.queue_keys import read_keys


def keys_in(directory: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    path = directory / "queue.keys"
    path.write_text(text)
    path.chmod(mode)
    return read_keys(str(path))


def test_one_key_a_line(tmp_path: Path):
    assert keys_in(tmp_path, "# of the workers\nAKID  correct-horse\n\n\tOTHER battery-staple\n") == {
        "AKID": "correct-horse", "OTHER": "battery-staple"
    }  # fmt: skip
    assert read_keys("") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "AKID\n",
        "AKID one two-secrets\n",
        "AKID short\n",
        "A/B correct-horse\n",
        "AKID correct-horse\nAKID battery-staple\n",
    ],
)
def test_a_file_that_is_wrong_is_refused_without_a_secret_in_the_complaint(tmp_path: Path, text: str):
    with pytest.raises(ConfigurationWrong) as caught:
        keys_in(tmp_path, text)
    assert not any(secret in str(vars(caught.value)) for secret in ("correct-horse", "battery", "two-secrets", "short "))


def test_a_file_that_others_can_read_is_refused(tmp_path: Path):
    with pytest.raises(ConfigurationWrong, match="640") as caught:
        keys_in(tmp_path, "AKID correct-horse\n", 0o640)
    assert "chmod 600" in caught.value.next_step


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(ConfigurationWrong):
        read_keys(str(tmp_path / "none"))
