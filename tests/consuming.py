"""The client's side of a fetch session (KIP-227): it keeps the session's id and epoch, and nothing else."""

from typing import Any

from serving import Line, fetch_body, rows_of

from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey


class Consumer:
    """The client's side of a session."""

    def __init__(self, line: Line, version: int = 12, **options: Any) -> None:
        self.line = line
        self.version = version
        self.options = options
        self.session_id = 0
        self.epoch = 0

    def ask(self, topics: Any = None, **options: Any) -> None:
        body = fetch_body(topics or {}, session=(self.session_id, self.epoch), **(self.options | options))
        self.line.send(ApiKey.FETCH, self.version, **body)

    async def hear(self) -> dict[tuple[Any, int], Any]:
        answer = await self.line.receive()
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self.session_id, self.epoch = answer.session_id, self.epoch + 1
        return rows_of(answer)

    async def fetch(self, topics: Any = None, **options: Any) -> dict[tuple[Any, int], Any]:
        self.ask(topics, **options)
        return await self.hear()

    async def refusal(self, topics: Any = None, **options: Any) -> int:
        self.ask(topics, **options)
        answer = await self.line.receive()
        assert (answer.session_id, answer.responses) == (0, ())
        return int(answer.error_code)
