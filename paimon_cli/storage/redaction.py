"""Keeps secrets out of all that is shown: messages, logs, tracebacks, listings, printed command lines, process arguments.

A secret is found in a text in two ways. Its value is known, from an option whose key names a secret or from a URL in the
configuration: every spelling of it is hidden, also each piece, since a library that cuts a URL in the wrong place quotes pieces.
Or the text contains a URL: user info and parameters are left out, whatever they are.
"""

from __future__ import annotations

import base64
import functools
import html
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

MASK = "***"

_SECRET_KEY = re.compile(
    r"secret|passw|passphrase|token|credential|connection[-_.]?string|signature|cookie|jaas|\bsas\b"
    r"|(?<![a-z])(pwd|auth|pass)(?![a-z])|^header\."
    r"|authori[sz]ation|bearer|(access|account|api|private|storage|shared|encryption)[-_.]?key|^key$",
    re.IGNORECASE,
)
_ABOUT_SECRETS = (".provider", ".enabled", ".type")
"""Endings of keys that say how a secret is obtained."""
_ADDRESS_KEY = re.compile(r"(^|[._-])(uris?|url|proxy|endpoint|remote)($|[._-])", re.IGNORECASE)
"""Keys of addresses of servers. Their values may lack a scheme, and no @ is expected in their paths."""


def names_secret(key: str) -> bool:
    """Whether an option of this name holds a secret. A REST catalog sends each `header.*` as an HTTP header."""
    return _SECRET_KEY.search(key) is not None and not key.endswith(_ABOUT_SECRETS)


def holds_secret(key: str, value: str) -> bool:
    """Whether others must not see this option: its key names a secret, or its value is a URL with one."""
    return bool(value) and (names_secret(key) or next(_in_address(key, value), None) is not None)


def shown_value(key: str, value: str) -> str:
    """The value of an option as it may be shown: `***` for a secret, and addresses without user info and parameters.

    Only the scheme is shown of a server's address that cannot be parsed.
    """
    if names_secret(key):
        return MASK if value else value
    if _ADDRESS_KEY.search(key) or value.startswith(_STRICT):
        return ",".join(map(shown_address, _NEXT_URL.split(value)))
    scheme, rest = _split_scheme(value)
    # In `user:1/2@host/x` the @ may belong to the path, or the slash to the password: what might be a password is not shown.
    is_login = bool(scheme) and ":" in rest.partition("/")[0] and "@" in rest
    return without_user_info(scheme + rest.rpartition("@")[2] if is_login else value)


_HOSTS = r"(?:[\w.-]+|\[[\w:.]+\])(?::\d+)?"
_ADDRESS = re.compile(rf"(?:{_HOSTS}(?:,{_HOSTS})*)?(?:/[\w./~+-]*)?")
"""A server without login and parameters: hosts, ports, a path."""
_AFTER_LOGIN = re.compile(rf"(?://)?{_HOSTS}(?::[\w.-]+)?(?:/[\w./~+-]*)?")
"""The same in a JDBC URL without `//`: an Oracle SID may follow the port."""
_STRICT = ("jdbc:", "sc://")
"""Addresses of servers that take parameters after a semicolon."""
_SCHEME = re.compile(r"jdbc:[A-Za-z][\w+.-]{0,40}:(?://)?|[A-Za-z][\w+.-]{0,40}://")
"""Bounded, so that the time for a long word does not grow with the square of its length."""
_NEXT_URL = re.compile(rf",(?={_SCHEME.pattern})")
_URL = re.compile(rf"(?:{_SCHEME.pattern})(?:(?!{_SCHEME.pattern})\S)*")
_END = re.compile(r"[.,:;!'\"`)\]}>]*\Z")
"""Punctuation after a URL in a text."""
_CONTAINER = re.compile(r"abfss?://[\w$-]+@")
"""In abfs:// URLs, what precedes the @ is the container, which is not secret."""
_WITHOUT_LOGIN = re.compile(r"(?:jdbc:)?(?:sqlite|duckdb)\b", re.IGNORECASE)
"""Databases that are files, whose paths may contain an @."""
_PARAMETERS = re.compile(r"[?#;].*|[:&,][\w.-]+=.*", re.DOTALL)
_PARAMETER = re.compile(r"(?:^|[?&;:,#\s({])([\w.-]+)=")
_NO_PASSWORD_BEFORE = re.compile(r"[^:]*(:\d*)?|\[[^\]]*\](:\d*)?")
"""A host, perhaps with a port: no `user:password` whose password goes on after a slash."""


def shown_address(url: str) -> str:
    """The address of a server without user info and parameters; only its scheme if it does not have the form of an address."""
    scheme, rest = _split_scheme(url)
    if _WITHOUT_LOGIN.match(scheme):
        return scheme + re.sub(r"[?;].*", "", rest)
    login, at, address = rest.rpartition("@")
    bare = _PARAMETERS.sub("", address)
    is_plain = scheme.endswith("//") or not scheme
    has_form = _ADDRESS.fullmatch(bare) if is_plain else at and _AFTER_LOGIN.fullmatch(bare)
    if _PARAMETERS.search(login) or not has_form:  # the @ may belong to a parameter
        return scheme.rstrip("/") + MASK
    return f"{scheme}{bare}" if is_plain else f"{scheme}@{bare}"


def without_user_info(text: str) -> str:
    """A text with URLs, without `user:password@` and without queries. A URL in a text ends at the first space."""
    return _URL.sub(lambda found: _shown(found[0]), text)


def without_login(url: str) -> str:
    """A URL or path without `user:password@`, which may contain spaces, and without a query."""
    return _shown(url) if _SCHEME.match(url) else without_user_info(url)


def _shown(url: str) -> str:
    scheme, rest = _split_scheme(url)
    if scheme.startswith(_STRICT):
        bare = _END.sub("", url)
        return shown_address(bare) + url[len(bare) :]
    cut = 0 if _CONTAINER.match(url) else _end_of_user_info(rest)
    return scheme + rest[cut:].partition("?")[0]


def _split_scheme(url: str) -> tuple[str, str]:
    scheme = found[0] if (found := _SCHEME.match(url)) else ""
    return scheme, url[len(scheme) :]


def _end_of_user_info(rest: str) -> int:
    """Where the host begins in what follows `://`.

    User info ends at the last @ before the path. An @ in the path counts only if a password with a slash precedes it, as then
    what follows the colon is no port: a path may contain an @, such as the partition `day=a@b`.
    """
    authority = rest.partition("/")[0]
    if "@" in authority:
        return authority.rfind("@") + 1
    return 0 if _NO_PASSWORD_BEFORE.fullmatch(authority.partition("?")[0]) else rest.rfind("@") + 1


def shown_name(name: str) -> str:
    """A name that another program chose, such as a commit user, without what looks like a secret.

    Nothing is shown of what follows `password=`: where a password ends cannot be told.
    """
    secret = next((parameter for parameter in _PARAMETER.finditer(name) if names_secret(parameter[1])), None)
    return without_user_info(name if secret is None else f"{name[: secret.end()]}{MASK}")


# The values of secrets


def secrets_in(options: Mapping[str, Any]) -> Iterator[str]:
    """The values of secret options, also of nested ones, and the passwords in URLs; and their pieces."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from secrets_in(value)
        elif isinstance(value, str) and value:
            yield from _with_pieces(value) if names_secret(str(key)) else _in_address(str(key), value)


_PIECES = re.compile(r"[@/\s%;:?#&=,+\\\"'<>]+")
_SHORTEST_PIECE = 3


def _with_pieces(secret: str) -> Iterator[str]:
    """The secret, decoded too if it is percent-encoded, and what libraries may cut it into. The path of a file stays whole."""
    for form in {secret, unquote(secret), unquote(secret.replace("+", " "))}:
        yield form
        if not form.startswith("/"):
            yield from (piece for piece in _PIECES.split(form) if len(piece) >= _SHORTEST_PIECE)


def _in_address(key: str, value: str) -> Iterator[str]:
    for url in _NEXT_URL.split(value):
        scheme, rest = _split_scheme(url)
        if scheme or _ADDRESS_KEY.search(key):
            yield from _passwords(scheme, rest)
            yield from _parameters(rest)


def _passwords(scheme: str, rest: str) -> Iterator[str]:
    """What may be the password in `user:password@host`, or in Oracle's `thin:user/password@host`."""
    if _WITHOUT_LOGIN.match(scheme) or _CONTAINER.match(scheme + rest):
        return
    is_oracle = scheme.startswith("jdbc:") and not scheme.endswith("//")
    ends = {_end_of_user_info(rest) - 1, rest.rfind("@") if ":" in rest.partition("/")[0] else -1} - {-1}
    for login in (rest[:end] for end in ends or ({len(rest)} if is_oracle else ())):
        if is_oracle:
            login = re.sub(r"^[A-Za-z]\w*:", "", login).replace("/", ":", 1)
        user, _, password = login.partition(":")
        if any(names_secret(parameter[1]) for parameter in _PARAMETER.finditer(login)):
            continue  # the @ belongs to a parameter
        if password:
            yield from _with_pieces(password)
        elif user and scheme in ("http://", "https://"):  # a token
            yield from _with_pieces(user)


_MOST_ENDS = 16
_MOST_SECRETS = 32
"""Parameters of an address. What follows these is taken for one value, so that time and memory grow no faster than its length."""


def _parameters(rest: str) -> Iterator[str]:
    """The values of secret parameters. A value may contain what looks like the next parameter, so each of these may be its end.

    In `password=a b=c;db=x` the password is `a`, or `a b=c`, or all: each is hidden. What follows a space is part of it.
    """
    found = list(_PARAMETER.finditer(rest))
    secret = [number for number, parameter in enumerate(found) if names_secret(parameter[1])]
    for number in secret[:_MOST_SECRETS]:
        begin, following = found[number].end(), [match.start() for match in found[number + 1 : number + 1 + _MOST_ENDS]]
        for value in {rest[begin:end] for end in (*following, len(rest))}:
            yield from filter(None, (value, value.rstrip(";)}"), value.strip("{};)")))
        last = following[-1] if len(following) == _MOST_ENDS else len(rest)
        yield from _with_pieces(rest[begin : next((end for end in following if not rest[end].isspace()), last)])
    if secret[_MOST_SECRETS:]:
        yield from _with_pieces(rest[found[secret[_MOST_SECRETS]].end() :])


_WORD = re.compile(r"[A-Za-z]+|[0-9]+")
_SHORTEST = 3
_LONG = 8
"""A word as long as this is hidden inside other words, too."""
_BEFORE = r"(?:(?<![^\W_])|(?<=%[0-9A-Fa-f]{2})|(?<=\\[ntr])|(?<=\x1b\[\dm)|(?<=\x1b\[\d\dm))"
_AFTER = r"(?![^\W_])"
"""Where a word begins and ends, also after an escaped character and a change of colour."""

_STORES = ("AWS_", "AZURE_", "GOOGLE_")


def secrets_of_environment() -> dict[str, str]:
    """The variables, with which clients of object stores log in, and those of proxies that hold a secret."""
    wanted = ((name, value) for name, value in os.environ.items() if name.startswith(_STORES) or name.lower().endswith("_proxy"))
    return {name: value for name, value in wanted if holds_secret(name, value)}


def environment_without_secrets() -> dict[str, str]:
    """The environment for a child process that logs in nowhere."""
    return {name: value for name, value in os.environ.items() if not holds_secret(name, value)}


def redact(text: str, options: Mapping[str, Any] | None = None) -> str:
    """The text without the secrets in these options and those of this command, and without user info and queries of URLs.

    A short secret that is a plain word or number is replaced only as a whole word, never inside another one.
    """
    return without_user_info(hide_secrets(text, options))


def hide_secrets(text: str, options: Mapping[str, Any] | None = None) -> str:
    """The text without the values of secrets; URLs that have none are unchanged."""
    known = frozenset(secrets_in(options or {})).union(_of_command or ())
    return _pattern(known).sub(MASK, text) if known else text


def redacted(value: Any) -> Any:
    """A value of JSON whose texts are redacted."""
    if isinstance(value, Mapping):
        return {key: redacted(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(inner) for inner in value]
    return value if value is None or isinstance(value, (bool, int, float)) else redact(str(value))


@functools.lru_cache(maxsize=16)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    """Matches all spellings of the secrets, the longest first, in any case: names of hosts are shown in lower case."""
    longest_first = sorted(filter(None, secrets), key=lambda text: (-len(text), text))
    spellings = [*map(_spellings, longest_first), *(form for secret in longest_first for form in _encoded(secret))]
    return re.compile("|".join(spellings), re.IGNORECASE)


def _spellings(secret: str) -> str:
    pattern = "".join(map(_spelled, secret))
    is_word = _WORD.fullmatch(secret) is not None and len(secret) < _LONG
    return f"{_BEFORE}{pattern}{_AFTER}" if is_word or len(secret) < _SHORTEST else pattern


def _encoded(secret: str) -> Iterator[str]:
    """Patterns for a secret in hex, and in base64, as in `Authorization: Basic`, whatever precedes and follows it there."""
    content = secret.encode("utf-8", "surrogatepass")
    if len(content) < _LONG:
        return
    yield content.hex()
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + content + bytes(2)).decode()
        inner = text[-(-shift * 4 // 3) : (shift + len(content)) * 4 // 3]  # the characters that depend on nothing else
        yield re.escape(inner).replace(r"\+", "[+-]").replace("/", "[/_]")


@functools.cache
def _spelled(character: str) -> str:
    """A pattern for a character, percent-encoded perhaps twice, escaped as in JSON, Python, HTML and the shell, or as it is.

    Also its bytes, as Python escapes them, and as text if they were taken for Latin-1.
    """
    if character.isascii() and character.isalnum():
        return character
    encoded = character.encode("utf-8", "surrogatepass")
    percent = "".join(f"%(?:25)*{byte:02x}" for byte in encoded)
    escaped = {json.dumps(character)[1:-1], repr(character)[1:-1], ascii(character)[1:-1], html.escape(character)}
    escaped |= {repr(encoded)[2:-1], encoded.decode("latin-1"), ascii(encoded.decode("latin-1"))[1:-1]}
    escaped |= {" ": {"+"}, "'": {"'\"'\"'", "&#39;"}}.get(character, set())
    plain = rf"\\*{re.escape(character)}" if character in "'\"\\" else re.escape(character)
    return f"(?:{'|'.join([percent, *map(re.escape, sorted(escaped, key=len, reverse=True)), plain])})"


_of_command: set[str] | None = None
"""The secrets that the command of this process has read so far; None in a process that runs no command."""


@contextmanager
def hiding_secrets_of_command(words: Sequence[str]) -> Iterator[None]:
    """During the block, all secrets that the command reads are hidden by `redact`. `words`: its command line."""
    global _of_command
    before, _of_command = _of_command, set()
    try:
        remember_secrets(secrets_of_environment())
        remember_secrets(dict(_pairs(words)))
        yield
    finally:
        _of_command = before


def remember_secrets(options: Mapping[str, Any]) -> None:
    """Let `redact` hide the secrets in these options until the command of this process ends. The library keeps none."""
    if _of_command is not None:
        _of_command.update(secrets_in(options))


_OPTION_WORDS = ("--option", "--spark-conf", "--kafka-conf")


def _pairs(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The options on a command line that has not been parsed yet, and its other words, which may be URLs."""
    before = ""
    for number, word in enumerate(words):
        flag, _, value = word.partition("=") if word.startswith("--") else (before, "", word)
        key, _, setting = value.partition("=")
        yield (key, setting) if flag in _OPTION_WORDS else (f"{number}.url" if flag == "--remote" else str(number), value)
        before = word
