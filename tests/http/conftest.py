"""Scenarios of the HTTP port run on all loops, or say why not."""

import pytest
from all_loops import require_reason


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    require_reason(metafunc)
