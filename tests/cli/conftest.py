"""One node for the tests of a file that only talk to it."""

from collections.abc import Iterator

import pytest
from system import harness


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Node]:
    with harness.Node(tmp_path_factory.mktemp("node") / "data") as node:
        yield node
        assert node.complaints() == []
        assert node.stop() == 0
