"""What `penstock cluster replace-node` refuses before it stops anything."""

import pytest

from penstock.cli.cluster_picture import Picture
from penstock.cli.cluster_replace import refuse_loss
from penstock.cli.faults import Fault
from penstock.peers.cluster import DescribedCluster

UNKNOWN_QUORUM = Picture(DescribedCluster("id", None, ()), None, (), {}, {})


def test_a_voter_is_not_replaced_while_nobody_knows_the_quorum() -> None:
    """Its old vote would stay, and its new disk could vote a second time for what the old one had promised."""
    with pytest.raises(Fault, match="node 2 votes on metadata, and nobody could tell"):
        refuse_loss(UNKNOWN_QUORUM, 2, is_voter=True, force=True)


def test_a_broker_without_a_vote_may_be_replaced_then() -> None:
    refuse_loss(UNKNOWN_QUORUM, 2, is_voter=False, force=False)
