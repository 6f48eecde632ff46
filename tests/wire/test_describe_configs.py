"""Replies to DescribeConfigs against kio, every version."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.wire import schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.describe_configs import ConfigResult, ConfigRow, encode_configs, write_describe_configs_response

few = settings(max_examples=pick(test=12, slow=50))  # Each version is a test of its own.
texts = st.text(max_size=200)
maybe_texts = st.none() | texts
small = st.integers(0, 9)
synonyms = st.lists(st.tuples(texts, maybe_texts, small), max_size=3)
rows = st.builds(ConfigRow, texts, maybe_texts, st.booleans(), small, small, maybe_texts, synonyms)
resources = st.tuples(st.integers(-128, 127), texts, st.lists(rows, max_size=3), st.sampled_from([0, 3, 40, 42]), maybe_texts)


@pytest.mark.repeats
@pytest.mark.parametrize("version", range(1, 5))
@few
@given(described=st.lists(resources, max_size=3), throttle_ms=st.integers(0, 2**31 - 1))
def test_a_reply_reads_as_it_was_written(oracle_reply, version, described, throttle_ms):
    results = [
        ConfigResult(kind, name, encode_configs(version, configs), code, message) for kind, name, configs, code, message in described
    ]
    wire = write_describe_configs_response(version, 9, results, throttle_ms=throttle_ms)
    body = {
        "throttle_time_ms": throttle_ms,
        "results": [
            {
                "error_code": code,
                "error_message": message,
                "resource_type": kind,
                "resource_name": name,
                "configs": [config_body(row) for row in configs],
            }
            for kind, name, configs, code, message in described
        ],
    }
    assert oracle_reply(ApiKey.DESCRIBE_CONFIGS, version, wire) == (9, schemas.build_response(ApiKey.DESCRIBE_CONFIGS, version, body))


def config_body(row):
    return {
        "name": row.name,
        "value": row.value,
        "read_only": row.is_read_only,
        "config_source": row.source,
        "is_sensitive": False,
        "synonyms": [{"name": name, "value": value, "source": source} for name, value, source in row.synonyms],
        "config_type": row.config_type,
        "documentation": row.documentation,
    }
