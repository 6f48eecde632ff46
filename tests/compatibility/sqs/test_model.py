"""What AWS's published model says of each action, held against the node: members, what is required, types, choices, errors.

The model comes with botocore. Requests are sent as plain HTTP, since boto3 itself would refuse the wrong ones before anybody is asked.
"""

import http.client
import json
from typing import Any
from uuid import uuid4

import pytest
from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape
from waiting import PATIENCE_S

from penstock.http.sqs.aws_shapes import AWS_SHAPES

pytestmark = pytest.mark.invariant("http.sqs-requests-exact")

MODEL = ServiceModel(Loader().load_service_model("sqs", "service-2"))
OPERATIONS = {name: MODEL.operation_model(name) for name in MODEL.operation_names}
MODELLED = {shape.name for shape in MODEL.error_shapes}
UNMODELLED = {"InvalidParameterValueException", "MissingRequiredParameterException", "SerializationException"}
WRONG = {"string": 7, "integer": "seven", "long": "seven", "boolean": "yes", "list": "items", "map": "pairs", "structure": [], "blob": "%"}


class Asker:
    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://")

    def ask(self, action: str, body: object, path: str = "/") -> tuple[int, dict[str, str], Any]:
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
        try:
            headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, json.loads(answer.read())
        finally:
            connection.close()

    def refusal(self, action: str, body: object) -> str:
        """The shape of the error, which must be told in all the ways that SDKs look for."""
        status, headers, answer = self.ask(action, body)
        assert 400 <= status < 500, (action, body, answer)
        namespace, _, shape = answer["__type"].partition("#")
        assert namespace in ("com.amazonaws.sqs", "com.amazon.coral.service") and answer["message"]
        code, _, fault = headers["x-amzn-query-error"].partition(";")
        assert fault == "Sender" and headers["content-type"] == "application/x-amz-json-1.0" and headers["x-amzn-requestid"]
        if shape in MODELLED:
            old = MODEL.shape_for(shape).metadata.get("error", {}).get("code", code)
            assert code == old
        else:
            assert shape in UNMODELLED, (action, shape)
        return shape


@pytest.fixture(scope="module")
def asker(sqs) -> Asker:
    return Asker(sqs.url)


@pytest.fixture(scope="module")
def values(sqs) -> dict[str, Any]:
    """A sound value for each member that is required somewhere."""
    dead = sqs.queue()
    policy = json.dumps({"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 1})
    return {
        "QueueUrl": sqs.queue(RedrivePolicy=policy), "QueueName": f"q-{uuid4().hex[:12]}", "Label": "label",
        "AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"], "TaskHandle": "handle", "ReceiptHandle": "handle",
        "VisibilityTimeout": 60, "SourceArn": sqs.arn(dead), "MessageBody": "body", "Attributes": {}, "Tags": {"k": "v"}, "TagKeys": ["k"],
        "Entries": [{"Id": "1", "MessageBody": "body", "ReceiptHandle": "handle", "VisibilityTimeout": 60}],
    }  # fmt: skip


def sound(operation: OperationModel, values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in operation.input_shape.required_members}


def test_every_action_of_the_model_is_here_and_no_other():
    assert set(AWS_SHAPES) == set(OPERATIONS) and len(OPERATIONS) == 23


@pytest.mark.parametrize("action", OPERATIONS)
def test_the_members_of_a_request_are_those_of_the_model(action: str):
    shape, ours = OPERATIONS[action].input_shape, AWS_SHAPES[action]
    assert set(ours.members) == set(shape.members)
    assert set(ours.required) == set(shape.required_members)
    names = {"string": "string", "integer": "integer", "list": "list of", "map": "map of"}
    for name, member in shape.members.items():
        assert ours.members[name].name.startswith(names[member.type_name]), name


@pytest.mark.parametrize("action", OPERATIONS)
def test_what_is_required_is_missed(asker: Asker, values: dict[str, Any], action: str):
    operation = OPERATIONS[action]
    for name in operation.input_shape.required_members:
        body = sound(operation, values)
        del body[name]
        assert asker.refusal(action, body) == "MissingRequiredParameterException"
        assert asker.refusal(action, body | {name: None}) == "MissingRequiredParameterException"
    entries = operation.input_shape.members.get("Entries")
    for name in entries.member.required_members if isinstance(entries, ListShape) else ():
        entry = {key: value for key, value in values["Entries"][0].items() if key != name}
        assert asker.refusal(action, sound(operation, values) | {"Entries": [entry]}) == "MissingRequiredParameterException"


@pytest.mark.parametrize("action", OPERATIONS)
def test_a_value_of_another_type_is_refused(asker: Asker, values: dict[str, Any], action: str):
    operation = OPERATIONS[action]
    for name, member in operation.input_shape.members.items():
        for wrong in wrong_values(member):
            assert asker.refusal(action, sound(operation, values) | {name: wrong}) == "SerializationException", (name, wrong)


def wrong_values(shape: Shape, depth: int = 0) -> list[Any]:
    """Values that are not of this shape, outside or in one of its parts."""
    found: list[Any] = [WRONG[shape.type_name]]
    if isinstance(shape, ListShape):
        found += [[part] for part in wrong_values(shape.member, depth + 1)]
    elif isinstance(shape, MapShape):
        found += [{"k": part} for part in wrong_values(shape.value, depth + 1)]
    elif isinstance(shape, StructureShape) and depth < 4:
        found += [{name: part} for name, member in shape.members.items() for part in wrong_values(member, depth + 1)]
    return found


@pytest.mark.parametrize("action", OPERATIONS)
def test_what_is_no_structure_at_all_is_refused(asker: Asker, action: str):
    for body in ([], "text", 7, None):
        assert asker.refusal(action, body) == "SerializationException"


@pytest.mark.parametrize("action", [name for name, each in OPERATIONS.items() if "QueueUrl" in each.input_shape.members])
def test_a_queue_that_is_not_there_is_missed_by_every_action(asker: Asker, values: dict[str, Any], action: str):
    assert asker.refusal(action, sound(OPERATIONS[action], values) | {"QueueUrl": "http://x/0/nowhere"}) == "QueueDoesNotExist"


def test_every_name_that_the_model_lists_is_known(sqs, asker: Asker, values: dict[str, Any]):
    names = MODEL.shape_for("QueueAttributeName").enum
    url = values["QueueUrl"]
    status, _, answer = asker.ask("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": names})
    assert status == 200 and {"QueueArn", "VisibilityTimeout"} <= answer["Attributes"].keys() <= set(names)
    fifo = sqs.fifo()
    told = asker.ask("GetQueueAttributes", {"QueueUrl": fifo, "AttributeNames": names})[2]["Attributes"]
    assert set(told) == set(names) - {
        "All", "Policy", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "RedrivePolicy", "RedriveAllowPolicy"
    }  # fmt: skip
    asked = {"QueueUrl": fifo, "MessageSystemAttributeNames": MODEL.shape_for("MessageSystemAttributeName").enum}
    sqs.send_to(fifo, "g", "x")
    given = asker.ask("ReceiveMessage", asked)[2]["Messages"][0]["Attributes"]
    assert set(asked["MessageSystemAttributeNames"]) - set(given) == {"All", "AWSTraceHeader", "DeadLetterQueueSourceArn"}


@pytest.mark.parametrize("path", ["/", "/000000000000/other", "/queue/other", "/some/context/path?x=1", "//"])
def test_any_path_will_do_and_the_bodys_queue_counts(asker: Asker, values: dict[str, Any], path: str):
    status, headers, answer = asker.ask("GetQueueUrl", {"QueueName": values["QueueUrl"].rpartition("/")[2]}, path)
    assert status == 200 and answer["QueueUrl"] == values["QueueUrl"]
    assert headers["content-type"] == "application/x-amz-json-1.0"


def test_an_unknown_member_is_not_looked_at(asker: Asker):
    assert asker.ask("ListQueues", {"QueueNamePrefix": "none-is-called-so", "Unheard": [1]})[::2] == (200, {})


def test_what_has_nothing_to_say_answers_an_empty_structure(asker: Asker, values: dict[str, Any]):
    for action in ("TagQueue", "UntagQueue", "SetQueueAttributes", "PurgeQueue", "ReceiveMessage"):
        assert asker.ask(action, sound(OPERATIONS[action], values))[::2] == (200, {}), action


def test_an_action_that_is_none_is_unknown(asker: Asker):
    status, headers, answer = asker.ask("SendFax", {})
    assert (status, headers["x-amzn-query-error"]) == (400, "InvalidAction;Sender")
    assert answer["__type"] == "com.amazon.coral.service#UnknownOperationException" and "SendFax" in answer["message"]
