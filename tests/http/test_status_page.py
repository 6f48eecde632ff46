"""The status page: it needs nothing from elsewhere, lets nothing else run, and asks only for what the API has."""

import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest
from all_loops import OnLoop
from browser import Browser
from http_talk import Http, on_node
from serving import Serving

from penstock.http.api.routes import PREFIX, ROUTES
from penstock.http.status_page import policy_of, status_page

CONTENT = files("penstock.http").joinpath("status.html").read_text(encoding="utf-8")
SCRIPT = "".join(re.findall(r"<script>(.*?)</script>", CONTENT, re.DOTALL))


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(CONTENT)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_comes_with_its_policy(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        page = await http.get("/")
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert page.text == CONTENT
        assert page.headers["content-security-policy"] == policy_of(CONTENT)
        assert page.headers["x-content-type-options"] == "nosniff"

    on_loop(on_node(story))


def test_nothing_comes_from_elsewhere_and_nothing_else_may_run() -> None:
    policy = status_page().headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for tag, attributes in Elements().found:
        assert "src" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on") or name == "style"], "the policy would not let it work"
        target = attributes.get("href")
        assert target is None or target == "data:," or target.startswith("/"), target


def test_what_the_node_says_never_becomes_markup() -> None:
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "setAttribute(\"on"):
        assert way not in SCRIPT, way


def test_everything_that_the_script_looks_for_is_in_the_page() -> None:
    ids = {attributes["id"] for _, attributes in Elements().found if "id" in attributes}
    wanted = set(re.findall(r'byId\("([\w-]+)"\)', SCRIPT)) | set(re.findall(r'fill\("([\w-]+)"', SCRIPT))
    assert wanted
    assert wanted <= ids


def test_it_asks_only_for_what_the_api_has(on_loop: OnLoop) -> None:
    """And gets it: a page against an API that has moved on would show nothing."""
    asked = re.findall(r'ask\("([^"]+)"', SCRIPT)
    paths = {route.path for route in ROUTES}
    assert {path.partition("?")[0] for path in asked} == {"/nodes", "/quorum", "/unwell", "/topics", "/lag", "/queues", "/topics/"}
    assert {"/nodes", "/quorum", "/unwell", "/topics", "/lag", "/queues", "/topics/{topic}/partitions"} <= paths

    async def story(serving: Serving, http: Http) -> None:
        await (await serving.line()).create("orders")
        lists = ("/topics?limit=500", "/lag?limit=500", "/queues?limit=100")
        for path in ("/nodes", "/quorum", "/unwell", *lists, "/topics/orders/partitions"):
            assert (await http.get(PREFIX + path)).status == 200

    on_loop(on_node(story))


def test_every_field_that_it_shows_is_in_an_answer() -> None:
    from penstock.http.api import lag, nodes, quorum, topics, unwell

    def fields(value: object) -> set[str]:
        if not isinstance(value, dict):
            return set()
        return set(value.get("properties", {})).union(*map(fields, value.values()))

    answers = (
        lag.LAGS, lag.GROUP_LAG, lag.LAG_ROW, nodes.NODES, topics.TOPICS, topics.TOPIC_SUMMARY, topics.PARTITION,
        quorum.QUORUM, quorum.QUORUM_REPLICA, unwell.UNWELL, unwell.UNWELL_PARTITION,
    )  # fmt: skip
    known = set().union(*map(fields, answers))
    known |= {"rate"}  # The page reckons it itself.
    shown = set(re.findall(r"\b(?:each|group|topic|node|nodes|lags|topics|quorum|unwell)\.([a-z_]+)", SCRIPT))
    shown -= {"map", "length", "get", "has"}
    assert shown
    assert shown <= known, shown - known


@pytest.mark.needs("browser")
def test_the_script_parses(tmp_path: Path) -> None:
    page = tmp_path / "status.html"
    page.write_text(CONTENT, encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(page.as_uri())
        assert "SyntaxError" not in "".join(browser.complaints)
        assert browser.evaluate("typeof byId") == "function", "the script was run"
