"""The requests of AWS's 23 actions. The members are those of AWS's published model, and a test compares the two."""

from penstock.http.sqs.shapes import BLOB, INTEGER, STRING, Shape, Type, list_of, map_of, structure

_ATTRIBUTE = structure(
    Shape(
        {
            "StringValue": STRING, "BinaryValue": BLOB, "StringListValues": list_of(STRING), "BinaryListValues": list_of(BLOB),
            "DataType": STRING,
        }
    )
)  # fmt: skip
_MESSAGE = {
    "MessageBody": STRING, "DelaySeconds": INTEGER, "MessageAttributes": map_of(_ATTRIBUTE), "MessageSystemAttributes": map_of(_ATTRIBUTE),
    "MessageDeduplicationId": STRING, "MessageGroupId": STRING,
}  # fmt: skip
_HANDLE = {"ReceiptHandle": STRING}
_CHANGE = {"ReceiptHandle": STRING, "VisibilityTimeout": INTEGER}
_PAGED = {"NextToken": STRING, "MaxResults": INTEGER}


def _of_queue(members: dict[str, Type] | None = None, required: tuple[str, ...] = ()) -> Shape:
    return Shape({"QueueUrl": STRING, **(members or {})}, ("QueueUrl", *required))


def _batch(members: dict[str, Type], required: tuple[str, ...]) -> Shape:
    entry = Shape({"Id": STRING, **members}, ("Id", *required))
    return _of_queue({"Entries": list_of(structure(entry))}, ("Entries",))


AWS_SHAPES: dict[str, Shape] = {
    "AddPermission": _of_queue(
        {"Label": STRING, "AWSAccountIds": list_of(STRING), "Actions": list_of(STRING)}, ("Label", "AWSAccountIds", "Actions")
    ),
    "CancelMessageMoveTask": Shape({"TaskHandle": STRING}, ("TaskHandle",)),
    "ChangeMessageVisibility": _of_queue(_CHANGE, ("ReceiptHandle", "VisibilityTimeout")),
    "ChangeMessageVisibilityBatch": _batch(_CHANGE, ("ReceiptHandle",)),
    "CreateQueue": Shape({"QueueName": STRING, "Attributes": map_of(STRING), "tags": map_of(STRING)}, ("QueueName",)),
    "DeleteMessage": _of_queue(_HANDLE, ("ReceiptHandle",)),
    "DeleteMessageBatch": _batch(_HANDLE, ("ReceiptHandle",)),
    "DeleteQueue": _of_queue(),
    "GetQueueAttributes": _of_queue({"AttributeNames": list_of(STRING)}),
    "GetQueueUrl": Shape({"QueueName": STRING, "QueueOwnerAWSAccountId": STRING}, ("QueueName",)),
    "ListDeadLetterSourceQueues": _of_queue(_PAGED),
    "ListMessageMoveTasks": Shape({"SourceArn": STRING, "MaxResults": INTEGER}, ("SourceArn",)),
    "ListQueueTags": _of_queue(),
    "ListQueues": Shape({"QueueNamePrefix": STRING, **_PAGED}),
    "PurgeQueue": _of_queue(),
    "ReceiveMessage": _of_queue(
        {
            "AttributeNames": list_of(STRING), "MessageSystemAttributeNames": list_of(STRING), "MessageAttributeNames": list_of(STRING),
            "MaxNumberOfMessages": INTEGER, "VisibilityTimeout": INTEGER, "WaitTimeSeconds": INTEGER, "ReceiveRequestAttemptId": STRING,
        }
    ),
    "RemovePermission": _of_queue({"Label": STRING}, ("Label",)),
    "SendMessage": _of_queue(_MESSAGE, ("MessageBody",)),
    "SendMessageBatch": _batch(_MESSAGE, ("MessageBody",)),
    "SetQueueAttributes": _of_queue({"Attributes": map_of(STRING)}, ("Attributes",)),
    "StartMessageMoveTask": Shape(
        {"SourceArn": STRING, "DestinationArn": STRING, "MaxNumberOfMessagesPerSecond": INTEGER}, ("SourceArn",)
    ),
    "TagQueue": _of_queue({"Tags": map_of(STRING)}, ("Tags",)),
    "UntagQueue": _of_queue({"TagKeys": list_of(STRING)}, ("TagKeys",)),
}  # fmt: skip
