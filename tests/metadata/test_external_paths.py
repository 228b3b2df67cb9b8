"""The place of each new data file, by its name."""

from __future__ import annotations

import re
from collections import Counter
from uuid import UUID

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.metadata.external_paths import ExternalPlaces
from paimon_cli.options.table_options import TableOptions

PATHS = "file:///a/,s3://b/c, oss://d"


def places(strategy: str, paths: str = PATHS, **settings: str) -> ExternalPlaces | None:
    own = {f"data-file.external-paths.{key.replace('_', '-')}": value for key, value in settings.items()}
    options = {"data-file.external-paths": paths, "data-file.external-paths.strategy": strategy, **own}
    return ExternalPlaces.of(TableOptions(options))


def chosen(found: ExternalPlaces | None, names: list[str]) -> list[str]:
    assert found is not None
    return [found.path_of("k=v/bucket-0", name) for name in names]


def names(writers: int, files: int) -> list[str]:
    return [f"data-{UUID(int=writer)}-{number}.parquet" for writer in range(writers) for number in range(files)]


def test_files_of_a_writer_take_turns() -> None:
    found = chosen(places("round-robin"), names(1, 7))
    order = [path.partition("/k=v/")[0] for path in found]
    assert set(order[:3]) == {"file:/a", "s3://b/c", "oss://d"} and order[3:6] == order[:3] and order[6] == order[0]
    assert all(path.endswith(f"/k=v/bucket-0/{name}") for path, name in zip(found, names(1, 7), strict=True))
    assert len({chosen(places("round-robin"), names(40, 1))[n].partition("/k=v")[0] for n in range(40)}) == 3, "from any one on"
    assert found == chosen(places("round-robin"), names(1, 7)), "the name alone decides"


def test_weights_count() -> None:
    found = Counter(path.partition("/k=v")[0] for path in chosen(places("weight-robin", weights="1, 2, 7"), names(1000, 1)))
    assert 50 < found["file:/a"] < 150 and 150 < found["s3://b/c"] < 260 and 620 < found["oss://d"] < 780
    turns = chosen(places("weight-robin"), names(1, 3))
    assert turns == chosen(places("round-robin"), names(1, 3)), "without weights as Java does"


def test_entropy_spreads_files_over_directories() -> None:
    found = chosen(places("entropy-inject"), names(20, 1))
    below = [re.fullmatch(r"(.*)/k=v/bucket-0/([01]{4}/[01]{4}/[01]{4}/[01]{8})/data-[^/]+", path) for path in found]
    assert all(below) and len({match[2] for match in below if match}) > 15
    bits = [match[2].replace("/", "") for match in below if match]
    assert len({text[8:12] for text in bits}) > 5 and not all(text.startswith(text[8:12]) for text in bits), "no bits twice"


def test_of_a_scheme() -> None:
    assert places("specific-fs", specific_fs="S3") == ExternalPlaces(("s3://b/c",), "specific-fs")
    with pytest.raises(UsageError, match="no external path has the chosen scheme"):
        places("specific-fs", specific_fs="gs")


def test_inside_of_the_table() -> None:
    assert places("none") is None and places("round-robin", "") is None
    assert ExternalPlaces.of(TableOptions({"data-file.external-paths": PATHS})) is None


@pytest.mark.parametrize(
    ("paths", "settings"),
    [("/no/scheme", {}), ("s3://a/../b", {}), ("file:/", {}), (PATHS, {"weights": "1,2"}), (PATHS, {"weights": "0,1,1"})],
)
def test_contradictions(paths: str, settings: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        places("weight-robin", paths, **settings)
