"""Secrets in texts: each form of address, each spelling, each channel, with random passwords."""

from __future__ import annotations

import base64
import html
import json
import shlex
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from paimon_cli.catalog.metastore.hive_client import HiveAddress
from paimon_cli.errors import PaimonError, UsageError
from paimon_cli.storage import bounded_mysql
from paimon_cli.storage.catalog_options import DatabaseAddress
from paimon_cli.storage.redaction import (
    hide_secrets,
    holds_secret,
    names_secret,
    redact,
    redacted,
    secrets_in,
    shown_address,
    shown_name,
    shown_value,
    without_login,
    without_user_info,
)
from paimon_cli.storage.sql_database import database_errors, open_database

WORDS = st.text("QXZ", min_size=4, max_size=6)
"""Pieces of passwords: no address, key or message contains them."""
PASSWORDS = st.lists(
    st.tuples(WORDS, st.sampled_from([*list("@/ %;:?#&=+'\"\\,<"), "%40", "%2F", "@/", "?;"])), min_size=1, max_size=4
).map(lambda pairs: "".join(map("".join, pairs)) + "ZXQZX")
IN_LOGIN = [
    "jdbc:postgresql://u:{}@127.0.0.1:1/db",
    "jdbc:mysql://u:{}@h,i:3306/db?useSSL=true",
    "jdbc:oracle:thin:u/{}@127.0.0.1:1521/x",
    "jdbc:oracle:thin:u/{}@//127.0.0.1:1521/x",
    "jdbc:oracle:thin:u/{}@h:1521:SID",
    "postgresql+psycopg://u:{}@h/db",
    "http://u:{}@h:8080/v1",
    "thrift://u:{}@h:9083",
    "sc://u:{}@h:15002/",
    "u:{}@proxy:3128",
]
IN_PARAMETER = [
    "jdbc:sqlserver://h;user=u;password={}",
    "jdbc:sqlserver://h:1433;password={};databaseName=x",
    "jdbc:db2://h:50000/db:user=u;password={};",
    "jdbc:postgresql://h/db?user=u&password={}",
    "jdbc:mysql://h/db?password={}&useSSL=true",
    "http://h/v1?token={}",
    "sc://h:15002/;token={}",
]
ADDRESSES = IN_LOGIN + IN_PARAMETER
SPELLINGS: list[Callable[[str], str]] = [
    str,
    quote,
    quote_plus,
    lambda secret: quote(secret, safe=""),
    lambda secret: quote(quote(secret, safe=""), safe=""),
    lambda secret: quote(secret, safe="").lower(),
    repr,
    json.dumps,
    html.escape,
    shlex.quote,
    lambda secret: repr(secret.encode()),
    lambda secret: secret.encode().decode("latin-1"),
]


def pieces(password: str) -> set[str]:
    """The words of a password: none of them may be seen."""
    return {word for word in "".join(c if c in "QXZ" else " " for c in password).split() if len(word) >= 3}


def assert_hidden(password: str, *texts: str) -> None:
    for text in texts:
        assert not any(piece.casefold() in text.casefold() for piece in pieces(password)), (password, text)


@given(PASSWORDS, st.sampled_from(ADDRESSES))
def test_an_address_is_shown_without_its_password(password: str, form: str) -> None:
    uri = form.format(password)
    assert holds_secret("uri", uri)
    assert_hidden(password, shown_value("uri", uri), shown_address(uri), redact(f"cannot open '{uri}': no", {"uri": uri}))


@given(PASSWORDS, st.sampled_from(ADDRESSES), st.sampled_from(SPELLINGS))
def test_words_of_a_library_about_a_password_are_hidden(password: str, form: str, spelled: Callable[[str], str]) -> None:
    text = f"failed to resolve host '{spelled(password)}': timeout"
    shown = redact(text, {"uri": form.format(password)})
    assert shown.startswith("failed to resolve host ") and shown.endswith(": timeout")
    assert_hidden(password, shown)


@pytest.mark.parametrize("form", [form for form in IN_PARAMETER if not form.endswith("{}")])
@pytest.mark.parametrize("separator", list(" &;:,#?"))
def test_a_password_that_looks_like_parameters_is_hidden_whole(form: str, separator: str) -> None:
    """Found by a random example: what followed `QXZ=` was shown."""
    password = f"QQQQ{separator}QXZQ=ZXQZX"
    assert_hidden(password, redact(f"failed to resolve host '{password}'", {"uri": form.format(password)}))
    assert_hidden(password, redact(f"failed to resolve host '{quote(password)}'", {"uri": form.format(password)}))


@given(
    PASSWORDS, st.sampled_from(["jdbc.password", "header.Cookie", "header.X-Any", "s3.secret-key", "token", "sasl.jaas.config"])
)
def test_secret_options_are_hidden_in_every_spelling(password: str, key: str) -> None:
    options = {key: password}
    assert shown_value(key, password) == "***"
    for spelled in SPELLINGS:
        assert_hidden(password, redact(f"denied for {spelled(password)}!", options))
    for piece in password.split("@"):  # a library that takes the @ in it for the end of the user info
        assert_hidden(password, redact(f"no host {piece}@h", options))


@given(st.text(min_size=8), st.binary(max_size=4), st.binary(max_size=4))
def test_a_secret_in_base64_is_hidden_whatever_surrounds_it(secret: str, before: bytes, after: bytes) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        told = encode(before + secret.encode() + after).decode()
        alone = encode(secret.encode()).decode()
        shown = redact(f"sent Basic {told}, got {alone}", {"token": secret})
        assert told not in shown and alone.rstrip("=")[:-1] not in shown and shown.startswith("sent Basic ")
        kept = len(shown.replace("***", "")) - len("sent Basic , got ")
        assert kept <= 16 + 4, "no more than the characters that depend on what surrounds it"


@given(st.text(min_size=8), st.binary(max_size=4))
def test_a_secret_in_hex_is_hidden_in_either_case(secret: str, around: bytes) -> None:
    told = (around + secret.encode() + around).hex()
    for text in (told, told.upper()):
        shown = redact(f"got {text} from you", {"token": secret})
        assert secret.encode().hex() not in shown.lower() and shown.startswith("got ") and shown.endswith(" from you")


@pytest.mark.parametrize("shown", ["hunter2.example.com", "\x1b[4mHUNTER2\x1b[0m", "b'caf\\xc3\\xa9=1'", "cafÃ©=1"])
def test_forms_in_which_libraries_quote(shown: str) -> None:
    assert redact(f"no host {shown}", {"password": "HUNTER2", "token": "café=1"}) in (
        "no host ***.example.com",
        "no host \x1b[4m***\x1b[0m",
        "no host b'***'",
        "no host ***",
    )


@given(st.sampled_from(["file", "s3", "https"]), st.lists(WORDS, min_size=2).map(" ".join))
def test_a_url_as_a_whole_is_shown_without_a_login_that_has_spaces(scheme: str, password: str) -> None:
    assert_hidden(password, without_login(f"{scheme}://u:{password}@bucket/a/b"))
    assert without_login("/a b/c@d e") == "/a b/c@d e"


@given(PASSWORDS)
def test_what_was_encoded_in_an_address_is_hidden_decoded(password: str) -> None:
    uri = f"jdbc:postgresql://u:{quote(password, safe='')}@h/db"
    assert_hidden(password, redact(f"password {password} is wrong", {"uri": uri}), shown_value("uri", uri))


@given(PASSWORDS, st.sampled_from(IN_LOGIN[:2] + IN_LOGIN[5:6]))
def test_a_database_gets_the_whole_password(password: str, form: str) -> None:
    """The parser of SQLAlchemy ends a password at its first @. A parameter in the text is not supported, and never named."""
    try:
        engine = open_database(DatabaseAddress(form.format(quote(password, safe="@/ :+'")).replace("?useSSL=true", "")))
    except PaimonError as failure:  # no driver for MySQL
        assert_hidden(password, str(failure), failure.hint)
    else:
        assert (engine.url.username, engine.url.password, engine.url.database) == ("u", password, "db")


@given(PASSWORDS, st.sampled_from(ADDRESSES))
def test_no_error_about_an_address_shows_its_password(password: str, form: str) -> None:
    uri = form.format(password)
    address = DatabaseAddress(uri)
    for attempt in (lambda: open_database(address), lambda: HiveAddress.of({"uri": uri}, {})):
        try:
            attempt()
        except PaimonError as failure:
            assert_hidden(password, failure.message, failure.hint, repr(failure.details))
    with pytest.raises(PaimonError) as of_driver, database_errors(address):
        raise OperationalError("SELECT 1", None, Exception(f"failed to resolve host '{password.partition('@')[2]}@h'"))
    assert_hidden(password, of_driver.value.message)


def test_the_secrets_of_an_address_grow_no_faster_than_its_length() -> None:
    """Each parameter may be the end of the one before it."""
    counted = [sum(map(len, secrets_in({"uri": "http://h/v1?" + " token=abcd" * count}))) for count in (1_000, 2_000)]
    assert counted[1] < 3 * counted[0] and counted[1] < 5_000_000
    many = "http://h/v1?" + "&".join(f"token{number}=QQQQ{number}" for number in range(40))
    assert "QQQQ" not in redact("no QQQQ0, QQQQ31 or QQQQ39 here", {"uri": many})


@pytest.mark.parametrize("form", IN_LOGIN)
def test_no_piece_of_a_password_with_a_comma_passes_for_a_host(form: str) -> None:
    with pytest.raises(UsageError) as failure:
        HiveAddress.of({"uri": form.format("QQQQ@QXZQ,ZXQZX")}, {})
    assert_hidden("QQQQ@QXZQ,ZXQZX", str(failure.value))


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("uri", "jdbc:postgresql://u:HUN@TER2@127.0.0.1:1/db", "jdbc:postgresql://127.0.0.1:1/db"),
        ("uri", "jdbc:postgresql://u:p?w;x@h:5432/db?sslmode=require", "jdbc:postgresql:***"),
        ("uri", "jdbc:oracle:thin:u/HUNTER2@127.0.0.1:1521/x", "jdbc:oracle:@127.0.0.1:1521/x"),
        ("uri", "jdbc:oracle:thin:u/HUNTER2", "jdbc:oracle:***"),
        ("uri", "jdbc:sqlserver://h:1433;user=u;password=HUNTER2", "jdbc:sqlserver://h:1433"),
        ("uri", "jdbc:db2://h:50000/db:user=u;password=HUNTER2;", "jdbc:db2://h:50000/db"),
        ("uri", "jdbc:mysql://address=(host=h)(password=HUNTER2)/db", "jdbc:mysql:***"),
        ("uri", "jdbc:sqlite:/a b/x@y.db", "jdbc:sqlite:/a b/x@y.db"),
        ("uri", "thrift://a:9083,thrift://u:HUN/TER2@b:9083", "thrift://a:9083,thrift://b:9083"),
        ("uri", "localhost:8080", "localhost:8080"),
        ("fs.s3a.proxy", "u:HUN/TER2@proxy:3128", "proxy:3128"),
        ("s3.endpoint", "http://[::1]:9000", "http://[::1]:9000"),
        ("warehouse", "s3://bucket/wh/day=a@b", "s3://bucket/wh/day=a@b"),
        ("warehouse", "s3://AK:12/HUNTER@bucket/wh", "s3://bucket/wh"),
        ("warehouse", "abfss://data@account.dfs.core.windows.net/wh", "abfss://data@account.dfs.core.windows.net/wh"),
        ("warehouse", "abfss://c:HUNTER2@account/wh", "abfss://account/wh"),
        ("warehouse", "/a b/c@d", "/a b/c@d"),
        ("header.X-Tenant", "HUNTER2", "***"),
        ("token.provider", "bear", "bear"),
    ],
)
def test_shown_values(key: str, value: str, shown: str) -> None:
    assert shown_value(key, value) == shown


def test_texts_without_secrets_stay_as_they_are() -> None:
    hint = "add uri=jdbc:postgresql://host:5432/database, or uri=http://HOST:PORT; see s3://bucket/day=a@b"
    assert redact(hint, {"uri": "jdbc:sqlite:FILE", "s3.endpoint": "http://here:9000"}) == hint
    assert without_user_info("(jdbc:postgresql://h/db).") == "(jdbc:postgresql://h/db)."
    assert hide_secrets("see s3://k:s@b/x?y", {"user": "k"}) == "see s3://k:s@b/x?y"
    assert not holds_secret("uri", "jdbc:oracle:thin:@h:1521:SID") and not names_secret("data-token.enabled")


def test_json_stays_json() -> None:
    told = redacted({"message": 'at "http://u:p@h/x?y"', "code": 3, "paths": ("s3://k:s@b",), "more": {"a": None}})
    assert told == {"message": 'at "http://h/x', "code": 3, "paths": ["s3://b"], "more": {"a": None}}


def test_an_unknown_parameter_is_named_only_if_it_is_no_part_of_a_password() -> None:
    with pytest.raises(UsageError, match="unsupported parameter tcpKeepAlive in"):
        open_database(DatabaseAddress("jdbc:postgresql://h/db?tcpKeepAlive=true"))
    with pytest.raises(UsageError, match="unsupported parameter in the JDBC URL"):
        open_database(DatabaseAddress("jdbc:postgresql://h/db?password=HUN&TER=2"))
    with pytest.raises(UsageError, match="unsupported parameter sslpassword in"):
        open_database(DatabaseAddress("jdbc:postgresql://h/db?sslpassword=HUN&TER=2"))


@pytest.mark.parametrize("scheme", ["jdbc:postgresql", "postgresql", "jdbc:mysql", "mysql"])
@pytest.mark.parametrize("rest", ["old:word@h/db", "h/db?user=old&password=word", "h/db"])
def test_options_with_a_login_override_that_of_the_url(scheme: str, rest: str) -> None:
    url = open_database(DatabaseAddress(f"{scheme}://{rest}", "paimon", "hunter2")).url
    assert (url.username, url.password, dict(url.query)) == ("paimon", "hunter2", {})
    own = open_database(DatabaseAddress(f"{scheme}://{rest}")).url
    assert (own.username, own.password) == (("old", "word") if "old" in rest else (None, None))


def test_a_database_that_is_a_file_has_no_login() -> None:
    for uri in ("jdbc:sqlite:/tmp/x.db", "sqlite:////tmp/x.db"):
        assert open_database(DatabaseAddress(uri, "paimon", "hunter2")).url.database == "/tmp/x.db"


@pytest.mark.parametrize("form", ["address=(host=h)(port=1)(user=u)(password=HUN&TER2=x)", "(host=h,user=u,password=HUN&TER2=x)"])
@pytest.mark.parametrize("scheme", ["jdbc:mysql", "mysql"])
def test_addresses_with_a_login_of_the_java_drivers_own_form_are_not_shown(scheme: str, form: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_database(DatabaseAddress(f"{scheme}://{form}/db"))
    assert "TER2" not in str(caught.value) and "HUN" not in str(caught.value)


def test_a_password_of_any_letters_reaches_mysql() -> None:
    with pytest.raises(pymysql.OperationalError, match="Can't connect"):
        bounded_mysql.connect(host="127.0.0.1", port=1, user="u", password="H€N")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("password=x1", "password=***"),
        ("etl;jdbc.password=a b&c=d", "etl;jdbc.password=***"),
        ("jdbc:postgresql://u:x1@h/d", "jdbc:postgresql://h/d"),
        ("etl-0-run=7", "etl-0-run=7"),
        ("0c5b2d4e-11aa", "0c5b2d4e-11aa"),
    ],
)
def test_names_of_commit_users(name: str, shown: str) -> None:
    assert shown_name(name) == shown


def test_the_time_for_a_long_text_grows_with_its_length_only() -> None:
    """A comment of a table may be a single word of a megabyte."""
    began = time.process_time()
    for text in ("t" * 300_000, "jdbc:" * 60_000, "a://" * 75_000, "a://" + "b:" * 75_000 + "@" * 75_000):
        redact(text)
    assert time.process_time() - began < 20
