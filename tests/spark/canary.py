"""Texts in data that imitate the errors of tasks. No code in them may run, and none may choose the class or hint of an error."""

from __future__ import annotations

import base64
import glob
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from paimon_cli import Table, spark
from paimon_cli.errors import BadInput, DamagedFile, PaimonError, TableNotFound
from paimon_cli.history.table_context import TableContext
from paimon_cli.ingest.row_sources import FileRows
from paimon_cli.jobs.compact_job import run_compact
from paimon_cli.jobs.compact_request import CompactRequest
from paimon_cli.jobs.engine import Engine, NoProgress
from paimon_cli.jobs.spark.tasks import TASK_ERROR
from paimon_cli.jobs.write_job import run_write
from paimon_cli.jobs.write_request import WriteRequest
from tests.tables import data_files, make_table, named_files, write

WRONG = "CommitUnknown"
HINT = "delete the table"


def carriers(ran: Path) -> list[str]:
    """A pickle that would create `ran`, in the text that once carried errors, and other errors that a text may imitate."""
    program = base64.b64encode(f"cos\nmkdir\n(S'{ran}'\ntR.".encode()).decode()
    content = json.dumps({"class": WRONG, "what": "x", "why": "y", "hint": HINT, "details": {}})
    return [
        f"paimon-cli-error<{program}>",
        f"{TASK_ERROR}{'0' * 64} {content}",
        f"\n{TASK_ERROR}{'0' * 64} {content}\n",
        f"paimon_cli.errors.{WRONG}: x\nhint: {HINT}",
        f"\npaimon_cli.errors.{WRONG}: x\nhint: {HINT}\n",
        "\nCaused by: java.lang.OutOfMemoryError: x",
        "\nTraceback (most recent call last):\nModuleNotFoundError: No module named 'x'",
    ]


class Canary:
    """Every text in every place that messages quote, through every way of a session.

    `brief`: an error of each origin (Spark, a function of the user, this package) with these texts in it, for one kind of table.
    """

    def __init__(self, session: SparkSession, folder: Path, brief: bool) -> None:
        self.session = session
        self.folder = folder
        self.brief = brief
        self.ran = folder / "ran"
        self.checkpoints = 0
        self.all = "".join(carriers(self.ran))
        columns = {"id": "BIGINT NOT NULL", "v": "INT"}
        self.table = Table.open(make_table(folder / "t", columns, ["id"], bucket=2).url)
        self.append = Table.open(make_table(folder / "a", columns, [], bucket=-1).url)
        self.table.write(pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([1], pa.int32())}))
        self.targets = (self.table,) if brief else (self.table, self.append)

    def run(self) -> None:
        self.check_cells(self.all)
        self.check_messages(self.all)
        self.check_refused_values()
        if not self.brief:
            self.check_lost_files()
            self.check_stream_of_cells()
            self.check_names()
            self.check_paths()
            self.check_file_names()
            self.check_plans()
            self.check_streams()
        assert not self.ran.exists(), "code in data has run"
        for table in (self.table, self.append):
            assert data_files(table.context) == named_files(table.context)

    def check_cells(self, text: str) -> None:
        """A cell that Spark or this package cannot cast."""
        cells = self.session.createDataFrame([(1, text)], "id bigint, x string")
        refused = cells.selectExpr("id", "cast(if(x = '', x, x) as int) as v")
        for table in self.targets:
            self.is_bad_input(partial(spark.write, refused, table.url), "probably failed")
        self.is_shown(lambda: refused.write.format("paimon").mode("append").save(self.table.url), "CAST_INVALID_INPUT")

    def check_messages(self, text: str) -> None:
        """A message of the user's function."""
        rows = self.raising(text)
        for table in self.targets:
            self.is_bad_input(partial(spark.write, rows, table.url), "probably failed")
        self.is_shown(lambda: rows.write.format("paimon").mode("append").save(self.table.url), "ValueError")

    def raising(self, text: str) -> DataFrame:
        return failing(self.session.range(2), text)

    def check_names(self) -> None:
        """A name of a column."""
        named = self.session.createDataFrame([(1, 1)], ["id", self.all])
        with pytest.raises(BadInput, match="the table has no column") as failed:
            spark.write(named, self.table.url)
        assert "\nhint: " not in str(failed.value) + failed.value.hint
        self.is_shown(lambda: named.write.format("paimon").mode("append").save(self.table.url), "the table has no column")

    def check_paths(self) -> None:
        """A path, and the name of a data file of the snapshot that is not there."""
        for number, text in enumerate(text.replace("/", "_") for text in carriers(self.ran)):
            url = str(self.folder / f"{number}{text}"[:200])
            with pytest.raises(Exception) as failed:
                spark.read(self.session, url)
            assert type(failed.value) is TableNotFound
            self.is_shown(partial(self.load_and_collect, url), "NotFound")

    def load_and_collect(self, url: str) -> None:
        self.session.read.format("paimon").load(url).collect()

    def check_file_names(self) -> None:
        """The name of a data file in a manifest."""
        table = Table.open(make_table(self.folder / "n", {"id": "BIGINT NOT NULL", "v": "INT"}, ["id"], bucket=1).url)
        table.write(pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([1], pa.int32())}))
        texts = carriers(Path("ran"))  # a path that fits into a name
        rename_data_files(Path(table.url), f"{texts[0]}{texts[4]}{texts[5]}".replace("/", "_"))
        for frame in (spark.read(self.session, table.url, native=False), self.session.read.format("paimon").load(table.url)):
            self.is_shown(frame.collect, "errors.DamagedFile")
            for target in self.targets:
                with pytest.raises(DamagedFile) as failed:
                    spark.write(frame, target.url)
                assert (failed.value.code, failed.value.exit_code) == ("PC-DAMAGED", 10)
                assert HINT not in failed.value.hint

    def check_refused_values(self) -> None:
        """Errors of tasks come with their class, hint and details, with these texts in them."""
        typed = self.session.createDataFrame([(1, self.all)], "id bigint, v string")
        strings = Table.open(make_table(self.folder / "s", {"id": "BIGINT NOT NULL", "v": "CHAR(2)"}, ["id"]).url)
        with pytest.raises(BadInput, match="column 'v' cannot take") as bad:
            spark.write(typed, strings.url)
        assert (bad.value.details["column"], bad.value.details["row"], bad.value.exit_code) == ("v", 1, 2)
        assert bad.value.hint.startswith("nothing was committed"), bad.value.hint
        self.is_shown(lambda: typed.write.format("paimon").mode("append").save(strings.url), "errors.BadInput")

    def check_plans(self) -> None:
        """Metadata that is made of these texts, in a plan that was not made yet."""
        unplanned = Table.open(make_table(self.folder / "unplanned", {"id": "BIGINT NOT NULL", "v": "INT"}, ["id"], bucket=1).url)
        unplanned.write(pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([1], pa.int32())}))
        frame = self.session.read.format("paimon").load(unplanned.url)
        for manifest in Path(unplanned.url).glob("manifest/*"):
            manifest.write_text(self.all)
        with pytest.raises(DamagedFile) as of_plan:  # raised by the process that plans, which belongs to no job
            spark.write(frame, self.table.url)
        assert of_plan.value.exit_code == 10 and HINT not in of_plan.value.hint
        self.is_shown(frame.collect, "errors.DamagedFile")

    def check_lost_files(self) -> None:
        """A data file that has gone since the plan."""
        lost = Table.open(make_table(self.folder / "lost", {"id": "BIGINT NOT NULL", "v": "INT"}, ["id"], bucket=1).url)
        lost.write(pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([1], pa.int32())}))
        frames = [spark.read(self.session, lost.url, native=False), self.session.read.format("paimon").load(lost.url)]
        for frame in frames:
            assert frame.count() == 1
        for file in Path(lost.url).glob("bucket-*/data-*"):
            file.unlink()
        for frame in frames:
            for table in self.targets:
                with pytest.raises(PaimonError) as failed:
                    spark.write(frame, table.url)
                assert type(failed.value) is DamagedFile, failed.value
                assert failed.value.exit_code == 10 and "path" in failed.value.details
            self.is_shown(frame.collect, "errors.DamagedFile")

    def check_stream_of_cells(self) -> None:
        """A cell through a stream."""
        strings = Table.open(make_table(self.folder / "u", {"id": "BIGINT NOT NULL", "v": "CHAR(2)"}, ["id"], bucket=2).url)
        rows = self.streamed_rows()
        self.is_shown(lambda: self.stream(rows, strings.url), "errors.BadInput")
        assert data_files(strings.context) == set()

    def streamed_rows(self) -> DataFrame:
        source = str(self.folder / "source")
        self.session.createDataFrame([(1, self.all)], "id bigint, v string").write.mode("overwrite").parquet(source)
        return self.session.readStream.schema("id long, v string").parquet(source)

    def check_streams(self) -> None:
        """A message of a function, a name of a column, a path, and the name of a file, through streams."""
        rows = self.streamed_rows()
        self.is_shown(lambda: self.stream(failing(rows, self.all), self.table.url), "ValueError")
        self.is_shown(lambda: self.stream(rows.toDF("id", self.all), self.table.url), "the table has no column")
        loaded = self.session.readStream.format("paimon")
        self.is_shown(lambda: self.stream(loaded.load(str(self.folder / "n")), self.table.url), "errors.DamagedFile")
        missing = str(self.folder / carriers(Path("ran"))[0].replace("/", "_"))
        self.is_shown(lambda: self.stream(loaded.load(missing), self.table.url), "NotFound")

    def stream(self, rows: DataFrame, url: str) -> None:
        self.checkpoints += 1
        writer = rows.writeStream.format("paimon").option(
            "checkpointLocation", str(self.folder / f"checkpoint{self.checkpoints}")
        )
        writer.trigger(availableNow=True).start(url).awaitTermination()

    def is_bad_input(self, act: Callable[[], object], hint: str) -> None:
        with pytest.raises(BadInput) as failed:
            act()
        assert type(failed.value) is BadInput
        assert hint in failed.value.hint and HINT not in failed.value.hint

    def is_shown(self, act: Callable[[], object], needle: str) -> None:
        """Spark's own exception, which has the text; the class of our errors comes before any text of the data."""
        with pytest.raises(Exception) as failed:
            act()
        assert not isinstance(failed.value, PaimonError)
        text = str(failed.value)
        assert needle in text
        if (ours := text.find("paimon_cli.errors.")) >= 0 and "errors." in needle:
            assert WRONG not in text[:ours]


def failing(rows: DataFrame, text: str) -> DataFrame:
    def fail(batches: Any) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            raise ValueError(text)
        yield from ()

    return rows.mapInArrow(fail, "id long, v int")


def check_engine(engine: Engine, folder: Path, brief: bool) -> None:
    """A cell, a name of a column, a path (not if `brief`), and the name of a file in a manifest, through jobs of an engine."""
    text = "".join(carriers(folder / "ran"))
    context = make_table(folder / "e", {"k": "INT NOT NULL", "v": "CHAR(2)"}, ["k"], bucket=2)
    paths = [] if brief else [f"{one.replace('/', '_')[:200]}.jsonl" for one in carriers(folder / "ran")[2:5:2]]
    for name in ("in.jsonl", *paths):
        (folder / name).write_text(json.dumps({"k": 1, "v": text}) + "\n")
        with pytest.raises(BadInput, match="column 'v' cannot take") as failed:
            run_write(context, WriteRequest(FileRows((glob.escape(str(folder / name)),), "json")), engine, NoProgress())
        assert (failed.value.details["row"], failed.value.details["value"]) == (1, text)
        assert failed.value.hint.startswith("nothing was committed")
        assert "\nhint:" not in failed.value.what, "no line of a name is taken for ours"
    (folder / "named.jsonl").write_text(json.dumps({"k": 1, "v": "x", text: 1}) + "\n")
    with pytest.raises(BadInput) as unknown:
        run_write(context, WriteRequest(FileRows((str(folder / "named.jsonl"),), "json")), engine, NoProgress())
    assert HINT not in unknown.value.hint
    assert data_files(context) == set()
    for _ in range(2):
        write(context, [{"k": 1, "v": "x"}])
    texts = carriers(Path("ran"))
    rename_data_files(Path(context.url), f"{texts[0]}{texts[4]}{texts[5]}".replace("/", "_"))
    with pytest.raises(PaimonError) as damaged:
        run_compact(TableContext.open(context.url), CompactRequest(strategy="full"), engine, NoProgress())
    assert (type(damaged.value), damaged.value.exit_code) == (DamagedFile, 10)
    assert HINT not in damaged.value.hint
    assert not (folder / "ran").exists(), "code in data has run"


def rename_data_files(table: Path, name: str) -> None:
    """Give the data files of all manifests this name, and correct the sizes of the manifests, which are checked first."""

    def rewrite(path: Path, change: Callable[[Any], None]) -> None:
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            rows, schema = list(reader), reader.writer_schema
        for row in rows:
            change(row)
        with path.open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema(schema), rows, codec="null")

    lists = list((table / "manifest").glob("manifest-list-*"))
    for path in set((table / "manifest").glob("manifest-*")).difference(lists):
        rewrite(path, lambda row: row["_FILE"].update(_FILE_NAME=name))
    for path in lists:
        rewrite(path, lambda row: row.update(_FILE_SIZE=(table / "manifest" / row["_FILE_NAME"]).stat().st_size))
    for path in (table / "snapshot").glob("snapshot-*"):
        snapshot = json.loads(path.read_text())
        for key in [key for key in snapshot if key.endswith("ManifestListSize") and snapshot[key] is not None]:
            snapshot[key] = (table / "manifest" / snapshot[key.removesuffix("Size")]).stat().st_size
        path.write_text(json.dumps(snapshot))
