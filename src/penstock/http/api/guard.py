"""What keeps a web page of somebody else from using this API, or reading /metrics, through a visitor's browser.

A node on loopback or in a private network is out of a stranger's reach, but not out of reach of a browser inside. Three rules:
- The Host header must be an address, `localhost`, the advertised host, or a name from the setting `http.hosts`. A page that lets its own
  name point here (DNS rebinding) still sends its own name.
- What changes something must not come from another origin: browsers say so in Origin and Sec-Fetch-Site. Tools send neither.
- A body must be application/json, which no form can send, and which a script of another origin may send only after asking; nobody here
  answers such a question.
Not here: who may do what. There is no access control yet.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from penstock.http.answers import Answer, error

FORBIDDEN, MISDIRECTED, UNSUPPORTED_MEDIA = 403, 421, 415
READING = ("GET", "HEAD")
_OWN_SITES = ("same-origin", "none")


def refuse_host(headers: Mapping[str, str], names: tuple[str, ...]) -> Answer | None:
    """`names`: what this node may be called besides its addresses."""
    host = _name_in(headers.get("host", ""))
    if host is not None and (host == "localhost" or host in names or _is_address(host)):
        return None
    message = f"this node is not called {headers.get('host', '')!r}; use its address, or add the name to the setting http.hosts"
    return error(MISDIRECTED, "foreign_host", message)


def refuse_change(headers: Mapping[str, str], *, has_body: bool) -> Answer | None:
    """For requests that change something."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        return error(FORBIDDEN, "foreign_origin", f"changes are not taken from a page of {origin}")
    if site is not None and site not in _OWN_SITES:
        return error(FORBIDDEN, "foreign_origin", "changes are not taken from pages of another site")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if has_body and kind != "application/json":
        return error(UNSUPPORTED_MEDIA, "not_json", "send the body as JSON and say so: Content-Type: application/json")
    return None


def _name_in(host: str) -> str | None:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return None
    return name.lower().rstrip(".") if name else None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
