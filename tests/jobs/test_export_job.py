"""The names of output files, by which users choose a format."""

from __future__ import annotations

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.jobs.export_job import FileForm


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("data.csv", "csv"),
        ("a.b/DATA.PARQUET", "parquet"),
        ("x.y.json.gz", "json.gz"),
        ("data.ndjson.zst", "json.zst"),
        ("csv", None),
        ("csv.data", None),
        ("csv.gz.data", None),
        ("json.d/data", None),
        ("data.gz", None),
        (".csv.txt", None),
    ],
)
def test_the_ending_of_a_name_decides(path: str, form: str | None) -> None:
    assert FileForm.is_known_for(path) == (form is not None)
    if form is None:
        with pytest.raises(UsageError):
            FileForm.of(path, None)
        assert FileForm.of(path, "csv").format == "csv"
    else:
        found = FileForm.of(path, None)
        assert (found.format.replace("ndjson", "json"), found.compression) == (form.partition(".")[0], form.partition(".")[2])
