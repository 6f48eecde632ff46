"""The engines of a pipeline stay in pipeline/, and a pipeline knows a broker by its protocol only. No Spark is needed to see that."""

import re
from pathlib import Path

import pytest

import penstock

pytestmark = pytest.mark.invariant("pipeline.dependencies-contained")

SOURCES = Path(penstock.__file__).parent
ENGINES = re.compile(r"^\s*(?:import|from) (?:pyspark|pyarrow|pandas|deltalake)\b", re.MULTILINE)
NODE = re.compile(
    r"^\s*(?:import|from) penstock\.(?:http|broker|links|groups|transactions|queues|cluster|partition|log|consensus)\b", re.MULTILINE
)


def files_with(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    return [str(file.relative_to(SOURCES)) for file in files if pattern.search(file.read_text(encoding="utf-8"))]


def test_only_the_pipeline_imports_spark_arrow_and_delta() -> None:
    within = list((SOURCES / "pipeline").rglob("*.py"))
    assert files_with(ENGINES, within), "the pattern finds what it looks for"
    assert files_with(ENGINES, [file for file in SOURCES.rglob("*.py") if file not in within]) == []


def test_the_pipeline_imports_nothing_of_a_node() -> None:
    assert files_with(NODE, list((SOURCES / "broker").rglob("*.py"))), "the pattern finds what it looks for"
    assert files_with(NODE, list((SOURCES / "pipeline").rglob("*.py"))) == []
