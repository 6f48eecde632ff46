"""A packed environment: it runs where it is unpacked, with the compiled parts, and without anything of where it was made."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.packing import pack

LOOK = """
import importlib.util, sys
import pyarrow, penstock.wire.columns, penstock.wire.records
assert importlib.util.find_spec("pyspark_penstock"), "the format is found by this name"
assert importlib.util.find_spec("pyspark") is None, "Spark is the cluster's"
assert importlib.util.find_spec("pytest") is None, "nobody asked for it"
print(penstock.wire.columns.__file__, penstock.wire.columns.COMPILED, pyarrow.__file__)
"""


@pytest.mark.needs("spark")
def test_a_packed_environment_runs_where_it_is_unpacked(tmp_path: Path) -> None:
    from penstock.wire.columns import COMPILED

    archive = pack(tmp_path / "environment.tar.gz")
    there = tmp_path / "elsewhere"
    with tarfile.open(archive) as packed:
        packed.extractall(there, filter="fully_trusted")  # The interpreter is a link to outside.
    python = there / "bin" / "python"
    asked = subprocess.run([python, "-c", LOOK], capture_output=True, text=True, check=False, cwd=tmp_path, env={})
    assert asked.returncode == 0, asked.stderr
    columns, is_compiled, arrow = asked.stdout.split()
    assert Path(columns).is_relative_to(there)
    assert Path(arrow).is_relative_to(there)
    assert is_compiled == str(COMPILED)
    told = subprocess.run([python, there / "submit.py", "--version"], capture_output=True, text=True, check=False, cwd=tmp_path, env={})
    assert "penstock" in told.stdout, told.stderr
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["environment.tar.gz"]


def test_a_package_that_is_not_there_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(PipelineComplaint, match="'no-such-thing' is not installed here"):
        pack(tmp_path / "environment.tar.gz", also=["no-such-thing"])
    assert list(tmp_path.iterdir()) == []
