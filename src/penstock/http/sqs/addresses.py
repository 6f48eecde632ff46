"""Queue URLs and ARNs ⇄ queue names.

A client may reach the node by a name that the node has never heard of (a container's port, a proxy, a tunnel), and may have kept the URL
from another day. So only the end of a URL's path counts, and an ARN's last part; host, region and account are written but never compared.
"""

from urllib.parse import unquote

from penstock.http.sqs.errors import INVALID_PARAMETER_VALUE, SqsError, no_such_queue

ACCOUNT, REGION = "000000000000", "us-east-1"  # There is only one of each here; tools that read ARNs refuse names that AWS could not have.
FIFO_SUFFIX = ".fifo"
NAME_LENGTH_MAX = 80

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_ARN_PARTS = 6


def queue_url(host: str, queue: str) -> str:
    """As this client can use it: by the name with which it came."""
    return f"http://{host}/{ACCOUNT}/{queue}"


def name_in_url(url: str) -> str:
    name = url.rstrip("/").rpartition("/")[2]
    if not name:
        raise no_such_queue()
    return unquote(name) if "%" in name else name


def queue_arn(queue: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}"


def name_in_arn(arn: str, parameter: str) -> str:
    parts = arn.split(":")
    if len(parts) != _ARN_PARTS or parts[0] != "arn" or parts[2] != "sqs" or not parts[5]:
        form = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        raise SqsError(INVALID_PARAMETER_VALUE, f"You must use this format to specify the {parameter}: {form}")
    return parts[5]


def check_queue_name(name: str, *, is_fifo: bool) -> None:
    """For a new queue. The suffix counts, and only FIFO queues have it."""
    stem = name.removesuffix(FIFO_SUFFIX)
    if is_fifo and stem == name:
        raise SqsError(INVALID_PARAMETER_VALUE, "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
                       "underscores, must end with .fifo suffix and be 1 to 80 in length.")  # fmt: skip
    if (not is_fifo and stem != name) or not stem or len(name) > NAME_LENGTH_MAX or not _NAME_CHARACTERS.issuperset(stem):
        raise SqsError(INVALID_PARAMETER_VALUE, "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
