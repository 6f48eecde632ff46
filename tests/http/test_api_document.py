"""The OpenAPI document: it is served, it holds together, and what the node answers has the shapes that it prints."""

import re
from typing import Any

import pytest
from all_loops import OnLoop
from http_talk import Http, on_node
from members import commit, coordinated, member, stable
from serving import Serving

from penstock.http.api.openapi import document, statuses_of
from penstock.http.api.routes import COMPONENTS, PREFIX, ROUTES
from penstock.http.api.schemas import fault_in, flag, integer, listing, named, or_null, shape, text, texts_by_name

DOCUMENT = document(ROUTES, COMPONENTS, PREFIX)


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"].rpartition("/")[2]} if "$ref" in value else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list | tuple) else set()


def test_every_route_is_in_the_document_and_every_name_in_it_is_explained() -> None:
    assert {(path, method.upper()) for path, methods in DOCUMENT["paths"].items() for method in methods} == {
        (route.path, route.method) for route in ROUTES
    }
    assert references(DOCUMENT) == set(COMPONENTS)
    ids = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


def test_every_part_of_a_path_is_a_parameter() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            told = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
            assert told == re.findall(r"\{(\w+)\}", path)


def test_the_node_serves_the_document(on_loop: OnLoop) -> None:
    async def story(serving: Serving, http: Http) -> None:
        served = await http.get(f"{PREFIX}/openapi.json")
        assert served.json["openapi"] == "3.1.0"
        assert set(served.json["paths"]) == set(DOCUMENT["paths"])

    on_loop(on_node(story))


def test_what_is_answered_has_the_shape_that_is_documented(on_loop: OnLoop) -> None:
    """Every route once, well and badly asked."""
    asked = {
        ("POST", "/topics"): {"name": "new"},
        ("PATCH", "/topics/{topic}"): {"partitions": 5},
        ("PATCH", "/topics/{topic}/configs"): {"set": {"retention.ms": "1000"}},
        ("POST", "/groups/{group}/offsets"): {"to": "earliest"},
    }

    async def story(serving: Serving, http: Http) -> None:
        line = await serving.line()
        await coordinated(line)
        await line.create("orders", 2)
        await serving.node.queues.create("jobs", {})
        await line.produce("orders", b"x")
        await commit(line, "billing", "orders", {0: 0})
        await stable(await member(serving, "busy"))
        for route in sorted(ROUTES, key=lambda route: route.method == "DELETE"):
            for topic, group, queue in (("orders", "billing", "jobs"), ("orders", "busy", "orders"), ("nowhere", "nobody", "nowhere")):
                path = PREFIX + route.path.format(topic=topic, group=group, queue=queue)
                answer = await http.ask(route.method, path, asked.get((route.method, route.path)))
                assert answer.status in statuses_of(route), (route, answer)
                expected = route.answer if answer.status == route.status else named("Error")
                assert fault_in(answer.json, expected, COMPONENTS) is None, (route, answer.text)

    on_loop(on_node(story))


SAMPLE = shape(
    {"name": text("A name.", enum=["a", "b"]), "count": or_null(integer("How many.", minimum=1, maximum=9)), "tags": listing(named("Tag")),
     "all": flag("All of them."), "by_name": texts_by_name("By name.")},
    optional=("tags", "all", "by_name"),
)  # fmt: skip
TAGS = {"Tag": shape({"tag": text("A tag.")})}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"name": "a", "count": 3}, None),
        ({"name": "b", "count": None, "tags": [{"tag": "x"}], "all": True, "by_name": {"k": "v"}}, None),
        ([], "the body must be an object"),
        ({"name": "a"}, "the body needs 'count'"),
        ({"name": "c", "count": 1}, "name must be one of a, b"),
        ({"name": 5, "count": 1}, "name must be a string"),
        ({"name": "a", "count": 0}, "count must lie between 1 and 9"),
        ({"name": "a", "count": True}, "count must be an integer or null"),
        ({"name": "a", "count": 1, "all": 1}, "all must be a boolean"),
        ({"name": "a", "count": 1, "colour": 1}, "the body has no field 'colour'; it has name, count, tags, all, by_name"),
        ({"name": "a", "count": 1, "tags": [{"tag": "x"}, {}]}, "tags[1] needs 'tag'"),
        ({"name": "a", "count": 1, "by_name": {"k": 1}}, "by_name.k must be a string"),
    ],
)
def test_a_value_that_has_another_shape_is_told_where(value: object, fault: str | None) -> None:
    assert fault_in(value, SAMPLE, TAGS) == fault
