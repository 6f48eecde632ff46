"""GET /: the status page. One file without outside parts, which asks the REST API for what it shows and changes nothing.

The policy that goes with it lets the browser run only the very script and style that stand in the file, and talk only to this node: even a
topic whose name is a script stays a name.
"""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from penstock.http.answers import OK, Answer

HTML = "text/html; charset=utf-8"


@cache
def status_page() -> Answer:
    content = files("penstock.http").joinpath("status.html").read_text(encoding="utf-8")
    headers = {
        "Content-Type": HTML,
        "Content-Security-Policy": policy_of(content),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return Answer(OK, content, headers)


def policy_of(content: str) -> str:
    scripts, styles = (" ".join(_digests(content, element)) for element in ("script", "style"))
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _digests(content: str, element: str) -> list[str]:
    bodies = re.findall(rf"<{element}>(.*?)</{element}>", content, re.DOTALL)
    return [f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" for body in bodies]
