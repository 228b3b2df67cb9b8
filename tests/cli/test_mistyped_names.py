"""Names that nearly match: the hint is the line that was meant."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.calling import Run


@pytest.fixture
def folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    run("create", "shop/orders", "-C", "id INT NOT NULL", "-C", "item STRING", "--primary-key", "id", "--bucket", "1")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("snapshots shop/orders", "paimon-cli snapshots ls shop/orders"),
        ("tags ./shop/orders", "paimon-cli tags ls ./shop/orders"),
        ("show shop/orders", "paimon-cli describe shop/orders"),
        ("log shop/orders", "paimon-cli snapshots ls shop/orders"),
        ("history shop/orders", "paimon-cli history check shop/orders"),
        ("lsm shop/orders", "paimon-cli lsm show shop/orders"),
    ],
)
def test_commands_in_other_words_can_be_pasted(run: Run, folder: Path, line: str, hint: str) -> None:
    assert f"hint: {hint}" in run(*shlex.split(line), code=2).err
    run(*shlex.split(hint)[1:])


@pytest.mark.parametrize(
    ("table", "meant"), [("shop/oders", "shop/orders"), ("shp/orders", "shop/orders"), ("./shop/ORDERS", "./shop/orders")]
)
@pytest.mark.parametrize("command", ["read", "describe", "doctor", "health"])
def test_tables_that_nearly_match_are_named(run: Run, folder: Path, command: str, table: str, meant: str) -> None:
    assert f"did you mean {meant}?" in run(command, table, code=3).err


@pytest.mark.parametrize(
    ("table", "meant"),
    [
        ("wh/a.db/order", "wh/a.db/orders"),
        ("wh/a/orders", "wh/a.db/orders"),
        ("./wh/a/order", "./wh/a.db/orders"),
        ("wh/a.orders", "wh/a.db/orders"),
        ("wh/a.order", "wh/a.db/orders"),
        ("wh/A.db/orders", "wh/a.db/orders"),
        ("wh/a.db/orders/schema", "wh/a.db/orders"),
        ("wh/a.db/orders/bucket-0/data-1.parquet", "wh/a.db/orders"),
        ("a/orders --warehouse wh", "a.orders"),
        ("a.db/orders --warehouse wh", "a.orders"),
    ],
)
def test_paths_of_a_warehouse_that_nearly_match_are_named(run: Run, folder: Path, table: str, meant: str) -> None:
    run("create", "wh/a.db/orders", "-C", "id INT")
    assert f"did you mean {meant}?" in run("read", *table.split(), code=3).err


@pytest.mark.parametrize("place", ["wh", "wh/a.db"])
def test_a_place_of_tables_is_not_a_table(run: Run, folder: Path, place: str) -> None:
    run("create", "wh/a.db/orders", "-C", "id INT")
    answer = run("read", place, code=3)
    hint = answer.err.splitlines()[-1]
    assert "with the" in answer.err and ("wh/a.db/orders" in hint or f"paimon-cli ls {place}" in hint or "--warehouse wh" in hint)


def test_columns_that_nearly_match_are_named(run: Run, folder: Path) -> None:
    assert "did you mean 'item'?" in run("read", "shop/orders", "-w", "itm = 'tea'", code=2).err
    assert "write strings in single quotes: 'tea'" in run("read", "shop/orders", "-w", "item = tea", code=2).err


@pytest.mark.parametrize(
    ("line", "code", "meant"),
    [
        ("read shop/orders --tag v1", 3, "did you mean 'v12'?"),
        ("rollback shop/orders --to v13 -y", 3, "did you mean 'v12'?"),
        ("read 'shop/orders$branch_exq'", 3, "did you mean 'exp'?"),
        ("alter shop/orders", 2, "paimon-cli alter shop/orders set --help"),
        ("alter shop/orders --branch main", 2, "drop-column"),
        ("db create shp/orders", 2, "paimon-cli db create orders --warehouse shp"),
        ('read shop/orders -w "item = tea"', 2, ": \"item = 'tea'\""),
        ("read shop/orders --select itm", 2, "did you mean 'item'?"),
        ("alter shop/orders drop-column itm", 2, "did you mean 'item'?"),
        ("create t -C 'id INTEGR'", 2, "did you mean 'INTEGER'?"),
        ("create t -C 'id INT' --primary-key idd", 2, "did you mean 'id'?"),
        ("write shop/orders rows.jsn", 3, "did you mean 'rows.json'?"),
        ("verify shop/orders --only dvv", 2, "did you mean 'dv'?"),
        ("lab run lost-update-colums", 2, "did you mean 'lost-update-columns'?"),
        ("create t -C 'z datetime'", 2, "did you mean 'TIMESTAMP'?"),
        ("create t -C 'z TEXT'", 2, "did you mean 'STRING'?"),
        ("create t -C 'z UUID'", 2, "did you mean 'STRING'?"),
        ("create t --from-file row.json", 3, "did you mean 'rows.json'?"),
        ("reed shop/orders", 2, "hint: did you mean 'read'? paimon-cli read shop/orders\n"),
        ("branch ls shop/orders", 2, "hint: did you mean 'branches'? paimon-cli branches ls shop/orders\n"),
        ("snapshot ls shop/orders", 2, "hint: did you mean 'snapshots'? paimon-cli snapshots ls shop/orders\n"),
        ("alter shop/orders set-option bucket=2", 2, "did you mean 'set'? paimon-cli alter shop/orders set bucket=2\n"),
        ("select shop/orders", 2, "hint: paimon-cli sql 'SELECT * FROM \"shop/orders\" LIMIT 10'\n"),
        ("select count(*) from shop.orders", 2, "hint: paimon-cli sql 'SELECT count(*) from shop.orders'\n"),
        ("ls shp", 3, "did you mean 'shop'?"),
        ("read shop.oders --warehouse wh", 3, "did you mean 'shop.orders'?"),
        ("read shop.orders", 2, "named by its path: ./shop/orders"),
        ("read shop.orders --warehouse .", 3, "name it ./shop/orders"),
    ],
)
@pytest.mark.in_part(2)
def test_other_names_that_nearly_match_are_named(run: Run, folder: Path, line: str, code: int, meant: str) -> None:
    (folder / "rows.json").write_text('{"id": 1}')
    run("write", "shop/orders", "rows.json")
    run("tags", "create", "shop/orders", "v12")
    run("branches", "create", "shop/orders", "exp")
    run("create", "wh/shop.db/orders", "-C", "id INT")
    assert meant in run(*shlex.split(line), code=code).err


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("changelog orders", "paimon-cli changelog read orders"),
        ("export orders", "paimon-cli export iceberg orders"),
        ("snapshots orders", "paimon-cli snapshots ls orders"),
        ("dv orders", "paimon-cli dv ls orders"),
        ("db orders", "paimon-cli db --help"),
        ("config orders", "paimon-cli config --help"),
    ],
)
def test_a_table_in_place_of_the_command_of_a_group(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, hint: str
) -> None:
    monkeypatch.chdir(folder / "shop")
    assert f"hint: {hint}\n" in run(*shlex.split(line), code=2).err


def test_a_link_that_leads_nowhere_is_told(run: Run, folder: Path) -> None:
    (folder / "d.csv").symlink_to("/nowhere/d.csv")
    for command in ("write shop/orders d.csv", "describe ./d.csv"):
        shown = run(*command.split(), code=3).err
        assert "it is a link whose target does not exist" in shown and "did you mean" not in shown


def test_a_directory_that_is_not_there_is_told(run: Run, folder: Path) -> None:
    assert "there is no such directory" in run("describe", "nosuch/tiny", code=3).err
    shown = run("describe", "shp/orders", code=3).err
    assert "there is no such directory" in shown and "did you mean shop/orders?" in shown
    (folder / "empty").mkdir()
    assert "has no schema/schema-* file" in run("describe", "empty", code=3).err


def test_decimal_commas_are_named_beside_texts_for_null(run: Run, folder: Path) -> None:
    run("create", "prices", "-C", "id INT", "-C", "price DOUBLE")
    (folder / "p.csv").write_text("id;price\n1;1.234,50\n2;12,00\n3;n/a\n4;?!\n")
    shown = run("write", "prices", "p.csv", "--delimiter", ";", code=2).err
    assert "--null-value 'n/a'; " in shown and "--decimal , --thousands ." in shown
    (folder / "p.csv").write_text("id;price\n1;1.234,50\n2;12,00\n3;n/a\n")
    run("write", "prices", "p.csv", "--delimiter", ";", "--null-value", "n/a", "--decimal", ",", "--thousands", ".")


def test_a_file_with_nothing_but_its_extension_in_common_was_not_meant(run: Run, folder: Path) -> None:
    (folder / "eu.csv").write_text("id\n1\n")
    assert "did you mean" not in run("create", "sh", "--from-file", "nofile.csv", code=3).err
    assert "did you mean 'eu.csv'?" in run("create", "sh", "--from-file", "eu.cvs", code=3).err


def test_the_query_that_was_meant_can_be_pasted(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hint = run("select", "shop/orders", code=2).err.split("hint: ")[1]
    run(*shlex.split(hint)[1:])
    monkeypatch.chdir(folder / "shop")
    hint = run("select", "orders", code=2).err.split("hint: ")[1]
    run(*shlex.split(hint)[1:])


@pytest.fixture
def first_hour(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a new user: a warehouse with one table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PAIMON_WAREHOUSE", raising=False)
    run("create", "wh/shop.db/orders", "-C", "id INT NOT NULL", "--primary-key", "id", "--bucket", 1)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        ("hepl", 2, "did you mean 'help'? paimon-cli help"),
        ("ls", 2, "did you mean --warehouse wh?"),
        ("health --database shop", 2, "did you mean --warehouse wh?"),
        ("read shop.orders", 2, "did you mean --warehouse wh?"),
        ("read wh", 3, "list its tables: paimon-cli ls wh"),
        ("doctor wh", 3, "list its tables: paimon-cli ls wh"),
        ("health wh", 3, "all of its tables: paimon-cli health --warehouse wh"),
        ("compact wh", 3, "all of its tables: paimon-cli compact --all-tables --warehouse wh"),
        ("read wh/shop.db", 3, "did you mean wh/shop.db/orders?"),
        ("read wh/shop.db/orders@1", 3, "did you mean wh/shop.db/orders? --snapshot 1 chooses its version"),
        ("read wh/shop.db/orders@v1", 3, "did you mean wh/shop.db/orders? --tag v1 chooses its version"),
        ("read wh/shop.db/orders --filter id=1", 2, "did you mean --where? paimon-cli read --help"),
        ("read wh/shop.db/orders --columns id", 2, "did you mean --select? paimon-cli read --help"),
        ("read wh/shop.db/orders --limit", 2, "paimon-cli read --help"),
        ("create t -c id --pk id", 2, "did you mean -C? paimon-cli create --help"),
        ("drop wh/shop.db/orders --force", 2, "did you mean --yes? paimon-cli drop --help"),
    ],
)
def test_the_first_hour(run: Run, first_hour: Path, words: str, code: int, hint: str) -> None:
    assert run(*words.split(), code=code).err.splitlines()[-1] == f"hint: {hint}"


@pytest.mark.parametrize("command", ["health --warehouse wh", "ls wh", "compact --all-tables --warehouse wh", "help"])
def test_commands_that_the_first_hour_is_given_work(run: Run, first_hour: Path, command: str) -> None:
    run(*command.split())


def test_several_warehouses_are_not_guessed_among(run: Run, first_hour: Path) -> None:
    (first_hour / "other" / "x.db").mkdir(parents=True)
    assert run("ls", code=2).err.splitlines()[-1] == "hint: pass --warehouse URI, or name a path instead"
    (first_hour / "y.db").mkdir()
    assert run("ls", code=2).err.splitlines()[-1] == "hint: did you mean --warehouse .?"


@pytest.mark.parametrize(
    ("words", "missing", "example"),
    [
        ("rollback wh/shop.db/orders 1", "Missing option '--to'", "paimon-cli rollback ./wh/shop.db/orders --to 12"),
        ("compare wh/shop.db/orders", "Missing argument 'B'", "paimon-cli compare ./wh/shop.db/orders@12 ./wh/shop.db/orders"),
        ("create", "Missing argument 'TABLE'", "paimon-cli create ./wh/shop.db/orders -C 'id BIGINT NOT NULL'"),
    ],
)
def test_what_is_missing_is_shown_in_an_example(run: Run, first_hour: Path, words: str, missing: str, example: str) -> None:
    what, why, hint = run(*words.split(), code=2).err.splitlines()
    assert what == f"error: {missing}" and why.startswith(f"such as: {example}")
    assert hint == f"hint: paimon-cli {words.split()[0]} --help"
