"""Which class archive a JVM uses or writes, if any, and that a JVM accepts these options."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from paimon_cli.jobs.spark.java_runtime import JavaRuntime, find_java
from paimon_cli.jobs.spark.session import MAX_ARCHIVES, archive_options

JAVA = JavaRuntime(Path("/opt/jdk"), 21, "21.0.8 of a vendor")
OTHER = JavaRuntime(Path("/opt/jdk"), 21, "21.0.9 of a vendor")


def written(options: list[str]) -> Path:
    """The file that the JVM is to write."""
    (option,) = options
    name, _, path = option.partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    return Path(path)


def aged(path: Path, content: bytes, seconds: int) -> Path:
    path.write_bytes(content)
    os.utime(path, (1_000_000 - seconds, 1_000_000 - seconds))
    return path


def test_the_newest_whole_archive_of_this_java_is_used(tmp_path: Path) -> None:
    places = [written(archive_options(JAVA, tmp_path)) for _ in range(3)]
    assert len(set(places)) == 3, "JVMs that start at the same time must not write into one file"
    aged(places[0], b"\xa8\xba\x0b\xf0...", 9)
    aged(places[1], b"\xa8\xba\x0b\xf0...", 5)
    aged(places[2], b"\0\0\0\0 in the making", 1)
    assert archive_options(JAVA, tmp_path) == [f"-XX:SharedArchiveFile={places[1]}"]
    assert {path for path in places if path.exists()} == {*places[1:]}, "one is enough; what is being written stays"
    assert written(archive_options(OTHER, tmp_path)) not in places


def test_old_archives_go(tmp_path: Path) -> None:
    places = [written(archive_options(JAVA, tmp_path)) for _ in range(MAX_ARCHIVES + 2)]
    paths = [aged(place, b"\xa8\xba\x0b\xf0", age) for age, place in enumerate(places)]
    (tmp_path / "jre-1").mkdir()
    archive_options(OTHER, tmp_path)
    assert set(tmp_path.iterdir()) == {*paths[:MAX_ARCHIVES], tmp_path / "jre-1"}


def test_nothing_is_written_without_a_cache_or_beside_a_log_for_people(tmp_path: Path) -> None:
    assert archive_options(JAVA, None) == []
    assert archive_options(JAVA, tmp_path, only_use=True) == []


def test_a_damaged_archive_stops_no_jvm(tmp_path: Path) -> None:
    java = find_java(os.environ)
    written(archive_options(java, tmp_path)).write_bytes(b"\xa8\xba\x0b\xf0" * 1000)
    (option,) = archive_options(java, tmp_path)
    assert option.startswith("-XX:SharedArchiveFile")
    subprocess.run([java.home / "bin" / "java", option, "-version"], check=True, capture_output=True)
