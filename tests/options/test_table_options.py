"""Typed options: defaults, overrides, older keys and refusals."""

from __future__ import annotations

import pickle

import pytest

from paimon_cli.errors import UsageError
from paimon_cli.options import option_text as read
from paimon_cli.options import table_options
from paimon_cli.options.option_catalog import OPTIONS, OWN_OPTIONS
from paimon_cli.options.option_text import TypedOption, parse_duration, parse_size
from paimon_cli.options.table_options import TYPED_OPTIONS, TableOptions

MB = 1 << 20


def test_defaults_are_those_of_the_catalog() -> None:
    """Every typed attribute whose default Paimon lists has that very default."""
    catalog = {option.key: option for option in OPTIONS}
    others = ("target-file-size", "parquet.writer.version", *(option.key for option in OWN_OPTIONS))
    typed = {name: o for name, o in TYPED_OPTIONS.items() if o.key not in others}
    for name, option in typed.items():
        listed = catalog[option.key]
        if listed.default is None:
            assert option.default in (None, ()) or callable(option.default), name
        elif listed.type == "Map<String, String>":
            assert option.default == {}, name
        else:
            assert option.read(listed.default) == option.default, name
        assert set(option.older_keys) <= set(listed.older_keys), name
    assert len(typed) > 50


def test_defaults_that_depend_on_others() -> None:
    options = TableOptions({})
    assert (options.compaction_trigger, options.stop_trigger, options.num_levels) == (5, 8, 6)
    assert options.target_file_size is None, "it depends on whether the table has a primary key"
    more = options.with_overrides({"num-sorted-run.compaction-trigger": "9"})
    assert (more.stop_trigger, more.num_levels, more.lookup_compact_max_interval) == (12, 10, 18)
    assert more.with_overrides({"num-sorted-run.stop-trigger": "3"}).stop_trigger == 9


def test_values_are_read() -> None:
    options = TableOptions(
        {
            "bucket": "4",
            "bucket-key": "a, b",
            "merge-engine": "Partial-Update",
            "write-only": "TRUE",
            "target-file-size": "1 mb",
            "compaction.optimization-interval": "2 min",
            "file.format.per.level": "0:avro,3:ORC",
            "file.compression": "LZ4",
            "partition.legacy-name": "false",
        }
    )
    assert (options.bucket, options.bucket_keys, options.merge_engine.name, options.write_only) == (
        4,
        ("a", "b"),
        "partial-update",
        True,
    )
    assert (options.target_file_size, options.optimization_interval) == (MB, 120_000)
    assert [options.format_at(level) for level in (0, 1, 3)] == ["avro", "parquet", "orc"]
    assert (options.compression_at(0), options.partition_legacy_name) == ("lz4", False)


def test_older_keys_count_only_without_the_new_one() -> None:
    assert TableOptions({"write.compaction-skip": "true"}).write_only
    assert not TableOptions({"write.compaction-skip": "true", "write-only": "false"}).write_only
    assert TableOptions({"partial-update.ignore-delete": "true"}).ignore_delete


def test_overrides_leave_the_original_alone() -> None:
    options = TableOptions({"bucket": "1"})
    assert options.with_overrides({"bucket": "2", "x": "y"}).raw == {"bucket": "2", "x": "y"}
    assert options.bucket == 1


def test_stats_modes() -> None:
    options = TableOptions(
        {
            "metadata.stats-mode": "counts",
            "fields.a.stats-mode": "FULL",
            "metadata.stats-mode.per.level": "0:none",
            "fields.b.stats-mode": "x",
        }
    )
    assert [options.stats_mode("a", 0), options.stats_mode("c", 0), options.stats_mode("c", 1)] == ["full", "none", "counts"]
    assert TableOptions({}).stats_mode("c") == "truncate(16)"
    with pytest.raises(UsageError, match=r"fields\.b\.stats-mode"):
        options.stats_mode("b")


@pytest.mark.parametrize(
    ("attribute", "key", "value", "allowed"),
    [
        ("bucket", "bucket", "x", "-2"),
        ("bucket", "bucket", "-3", "-2"),
        ("bucket", "bucket", "1_0", "-2"),
        ("merge_engine", "merge-engine", "merge", "deduplicate, partial-update"),
        ("write_only", "write-only", "yes", "true or false"),
        ("target_file_size", "target-file-size", "0", "1 byte"),
        ("write_buffer_size", "write-buffer-size", "big", "128 mb"),
        ("commit_timeout", "commit.timeout", "soon", "1 h"),
        ("small_file_ratio", "compaction.small-file-ratio", "1.5", "0 to 1"),
        ("small_file_ratio", "compaction.small-file-ratio", "0.1_5", "0 to 1"),
        ("small_file_ratio", "compaction.small-file-ratio", "nan", "0 to 1"),
        ("file_format_per_level", "file.format.per.level", "avro", "0:avro"),
        ("num_levels", "num-levels", "1", "from 2"),
        ("zstd_level", "file.compression.zstd-level", "99", "22"),
    ],
)
def test_bad_values_name_key_value_and_what_is_allowed(attribute: str, key: str, value: str, allowed: str) -> None:
    with pytest.raises(UsageError) as error:
        getattr(TableOptions({key: value}), attribute)
    assert f"'{key}'" in error.value.what and f"'{value}'" in error.value.what and allowed in error.value.why


def test_a_bad_value_affects_only_its_own_option() -> None:
    options = TableOptions({"num-sorted-run.compaction-trigger": "x", "bucket": "4", "num-levels": "1"})
    assert (options.bucket, options.write_only) == (4, False)
    for attribute, key in (("compaction_trigger", "trigger"), ("stop_trigger", "trigger"), ("num_levels", "num-levels")):
        for _ in range(2):
            with pytest.raises(UsageError, match=key):
                getattr(options, attribute)
    with pytest.raises(UsageError, match="compaction-trigger"):
        options.check()
    assert options.with_overrides({"num-sorted-run.compaction-trigger": "3", "num-levels": "4"}).stop_trigger == 6


def test_texts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    options = TableOptions({"bucket": "4", "write.compaction-skip": "true", "num-sorted-run.compaction-trigger": "2"})
    monkeypatch.setattr(table_options, "read_option", None)
    monkeypatch.setattr(TypedOption, "__get__", None)
    values = {name: getattr(options, name) for name in TYPED_OPTIONS}
    assert (values["bucket"], values["write_only"], values["num_levels"], options.stop_trigger) == (4, True, 3, 5)


def test_each_key_belongs_to_one_attribute() -> None:
    keys = [key for option in TYPED_OPTIONS.values() for key in (option.key, *option.older_keys)]
    assert len(keys) == len(set(keys))


def test_options_do_not_change() -> None:
    options = TableOptions({"bucket": "4"})
    with pytest.raises(AttributeError, match="bucket"):
        options.bucket = 5
    assert options.bucket == 4


def test_options_travel_to_other_processes_as_texts() -> None:
    options = TableOptions({"bucket": "3", "num-levels": "x"})
    assert pickle.loads(pickle.dumps(options)).bucket == 3
    assert len(pickle.dumps(options)) < 200


def test_sizes_and_durations_of_the_catalog_are_readable() -> None:
    for option in OPTIONS:
        if option.type == "MemorySize" and option.default is not None:
            assert parse_size(option.default) >= 0
    assert parse_duration("1 d") == 86_400_000


@pytest.mark.parametrize("text", ["0", "x:orc", "0:avro,x:orc", "-1:orc", "1.5:orc,0:avro", ":orc", "0:avro,orc"])
def test_a_level_that_is_no_number_is_not_passed_over(text: str) -> None:
    with pytest.raises(UsageError, match="pairs of level and value"):
        _ = TableOptions({"file.format.per.level": text}).file_format_per_level


def test_changelog_files_have_no_indexes_of_data_files() -> None:
    given = {"file-index.bloom-filter.columns": "k", "file-index.bloom-filter.k.fpp": "0.1", "target-file-row-num": "9"}
    options = TableOptions({**given, "zorder.var-length-contribution": "4"}).of_changelog_files
    assert not options.raw.keys() & given.keys() and options.zorder_text_bytes == 4


@pytest.mark.parametrize("older", [False, True])
def test_values_that_cannot_be_read_are_left_out_under_whatever_key(older: bool) -> None:
    several = [option for option in TYPED_OPTIONS.values() if option.older_keys and option.read is read.boolean]
    assert len(several) > 1
    for option in several:
        key = option.older_keys[-1] if older else option.key
        left = TableOptions({key: "maybe", "bucket": "3"}).readable
        left.check()
        assert left.raw == {"bucket": "3"}


def test_files_of_postponed_buckets_keep_the_other_options() -> None:
    given = {
        "fields.a.stats-mode": "full",
        "fields.a.aggregate-function": "sum",
        "file-index.x.columns": "a",
        "bucket": "-2",
    }
    own = TableOptions(given).of_postponed_files("avro", "p-").raw
    assert {key: own.get(key) for key in given} == {
        "fields.a.stats-mode": None,
        "fields.a.aggregate-function": "sum",
        "file-index.x.columns": None,
        "bucket": "-2",
    }
    assert (own["file.format"], own["metadata.stats-mode"], own["data-file.prefix"]) == ("avro", "none", "p-")


@pytest.mark.parametrize(
    ("key", "value", "looks_up"),
    [
        ("deletion-vectors.enabled", "true", True),
        ("changelog-producer", "lookup", True),
        ("force-lookup", "true", True),
        ("merge-engine", "first-row", True),
        ("changelog-producer", "input", False),
        ("merge-engine", "partial-update", False),
    ],
)
def test_each_option_for_which_compactions_look_up_keys(key: str, value: str, looks_up: bool) -> None:
    assert TableOptions({key: value}).looks_up_keys == looks_up
