"""Bytes in JSON: as they are where they are a text, in base64 where they are not."""

from base64 import b64encode


def text_of(content: bytes) -> str | None:
    """None: it is no text."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def base64_text(content: bytes) -> str:
    return b64encode(content).decode()
