"""What a web page of somebody else cannot do through a visitor's browser."""

import pytest
from all_loops import OnLoop
from http_talk import Http, on_node
from serving import Serving

from penstock.http.api.guard import refuse_change, refuse_host

pytestmark = pytest.mark.invariant("http.cross-site-refused")

API = "/api/v1"
TOPIC = {"name": "orders"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "[::1]:8080", "localhost", "LOCALHOST:80", "10.1.2.3", "broker.example:8080", "broker.example."]
)
def test_a_node_answers_to_its_addresses_and_names(host: str) -> None:
    assert refuse_host({"host": host}, ("broker.example",)) is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "", "[", "broker.example.evil"]
)
def test_a_name_that_was_made_to_point_here_is_refused(host: str) -> None:
    answer = refuse_host({"host": host}, ("broker.example",))
    assert answer is not None
    assert answer.status == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"origin": "http://127.0.0.1:8080"}, None),
        ({"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"}, None),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "application/json; charset=utf-8"}, None),
    ],
)
def test_a_change_comes_from_here_or_from_a_tool_and_as_json(headers: dict[str, str], status: int | None) -> None:
    answer = refuse_change({"host": "127.0.0.1:8080", "content-type": "application/json"} | headers, has_body=True)
    assert (answer.status if answer else None) == status


def test_the_guard_stands_at_the_door(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        for path in ("/", "/metrics", f"{API}/topics", f"{API}/openapi.json"):
            assert (await http.get(path, host="evil.example")).status == 421
            for host in ("10.1.2.3:8080", "[fd00::1]:8080", "localhost:8080", "broker.example:8080"):
                assert (await http.get(path, host=host)).status == 200
        for path in ("/health", "/ready"):  # Whoever probes comes by any name, and learns nothing.
            assert (await http.get(path, host="evil.example")).status == 200
        assert (await http.post(f"{API}/topics", TOPIC, origin="http://evil.example")).status == 403
        assert (await http.post(f"{API}/topics", TOPIC, content_type="text/plain")).status == 415
        assert (await http.ask("DELETE", f"{API}/topics/orders", origin="http://evil.example")).status == 403
        assert (await http.get(f"{API}/topics")).json["topics"] == []
        asked_first = await http.ask("OPTIONS", f"{API}/topics", origin="http://evil.example", access_control_request_method="POST")
        assert asked_first.status == 405
        assert not [name for name in asked_first.headers if name.startswith("access-control")]
        assert (await http.post(f"{API}/topics", TOPIC, host="broker.example:1", origin="http://broker.example:1")).status == 201

    on_loop(on_node(story, http_hosts="other.example, broker.example"))


def test_answers_are_neither_kept_nor_guessed_at(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        answer = await http.get(f"{API}/topics")
        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
        assert answer.headers["content-type"] == "application/json"

    on_loop(on_node(story))
