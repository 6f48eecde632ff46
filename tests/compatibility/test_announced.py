"""A feature that our own node stops announcing fails its tests; only a foreign broker may do without."""

import announced
import pytest

OURS, FOREIGN = "127.0.0.1:1", "127.0.0.1:2"


@pytest.fixture(autouse=True)
def nothing_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announced, "apis_at", lambda bootstrap: frozenset())
    monkeypatch.delenv("PENSTOCK_PEER_CLUSTER", raising=False)
    monkeypatch.setenv("PENSTOCK_PEER", FOREIGN)


def test_our_own_node_must_announce_what_is_tested() -> None:
    with pytest.raises(pytest.fail.Exception, match="does not announce transactions"):
        announced.needs_announced(OURS, "transactions")


def test_a_foreign_broker_may_lack_it() -> None:
    with pytest.raises(pytest.skip.Exception, match="only with a broker that announces transactions"):
        announced.needs_announced(FOREIGN, "transactions")
