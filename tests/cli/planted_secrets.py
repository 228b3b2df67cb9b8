"""Secrets in every place from which a command takes some, each of letters of its own, and a search for all their spellings."""

from __future__ import annotations

import base64
import html
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from hypothesis import strategies as st

LETTERS = ("QXZ", "JKV", "WYN", "HUL", "GPM", "ÄßЖ")
"""Of each triple, secrets of one place are made: no key, message or name contains four of them in a row."""
SIGNS = [*list("@/ %;:?#&=+'\"\\,<"), "%40", "%2F", "@/", "?;"]
IN_ADDRESS = ("jdbc:postgresql://u:{}@127.0.0.1:1/d", "jdbc:oracle:thin:u/{}@h:1/x", "jdbc:sqlserver://h;user=u;password={}")


def secrets_of(letters: str) -> st.SearchStrategy[str]:
    """Words of these letters with signs between them that have a meaning in URLs, YAML, JSON, HTML or shells."""
    words = st.text(letters, min_size=6, max_size=8)  # of four letters, compressed bytes of a new file had one by chance
    pairs = st.lists(st.tuples(words, st.sampled_from(SIGNS)), min_size=1, max_size=3)
    return st.tuples(pairs, words).map(lambda found: "".join(map("".join, found[0])) + found[1] + letters)


@dataclass(frozen=True)
class Planted:
    """One secret for each place. The pieces of `of_table` are stored in the table, by a writer that hides nothing."""

    in_url: str
    in_option: str
    in_file: str
    in_environment: str
    of_table: str
    in_address: str
    form: str

    @staticmethod
    def any() -> st.SearchStrategy[Planted]:
        return st.builds(Planted, *map(secrets_of, LETTERS), st.sampled_from(IN_ADDRESS))

    def url(self, path: Path) -> str:
        """A table on this machine, in a URL with a password."""
        return f"file://u:{quote(self.in_url, safe='')}@localhost{quote(str(path))}"

    @property
    def words(self) -> list[str]:
        """Options of a command."""
        options = {"s3.secret-key": self.in_option, "fs.s3a.session.token": f"x{self.in_option}", "header.Cookie": self.in_option}
        options["fs.s3a.proxy"] = f"http://u:{self.in_option}@h:1"
        return [word for key, value in options.items() for word in ("--option", f"{key}={value}")]

    @property
    def catalog_file(self) -> str:
        """The content of `paimon.yaml`, with a profile."""
        listed = {"jdbc.password": self.in_file, "token": self.in_file, "s3.access-key": self.in_file}
        return yaml.safe_dump({**listed, "profiles": {"p": {"uri": self.form.format(self.in_address)}}}, allow_unicode=True)

    @property
    def variables(self) -> dict[str, str]:
        secret = self.in_environment
        return {"AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": f"x{secret}", "HTTPS_PROXY": f"http://u:{secret}@proxy:1"}

    def store_in(self, table: Path) -> None:
        """Put secrets among the options of the table, and into its commit users, as a writer may have done that hides none."""
        for path in table.glob("schema/schema-*"):
            schema = json.loads(path.read_text())
            schema["options"] |= {"s3.secret-key": self.of_table, "metastore.uri": self.form.format(self.of_table)}
            path.write_text(json.dumps(schema))
        for path in (*table.glob("snapshot/snapshot-*"), *table.glob("tag/tag-*"), *table.glob("changelog/changelog-*")):
            snapshot = json.loads(path.read_text())
            path.write_text(json.dumps(snapshot | {"commitUser": f"etl password={self.of_table}"}))

    def found_in(self, text: str, *, of_table: bool = True) -> list[str]:
        """The words of secrets that a text contains, in whatever case, and whole secrets in base64."""
        secrets = [self.in_url, self.in_option, self.in_file, self.in_environment, self.in_address, *([self.of_table] * of_table)]
        folded = text.casefold()
        return [form for secret in secrets for form in shown_forms(secret) if form.casefold() in folded]


def shown_forms(secret: str) -> Iterator[str]:
    """Its words as they are, percent-encoded, and as Python, JSON and HTML escape them; and all of it in base64."""
    letters = next(letters for letters in LETTERS if secret[-1] in letters)
    for word in "".join(c if c in letters else " " for c in secret).split():
        if len(word) >= 4:
            escaped = word.encode().decode("latin-1")
            yield from {word, quote(word), ascii(word)[1:-1], repr(word.encode())[2:-1], json.dumps(word)[1:-1], escaped}
            yield html.escape(word)
    yield base64.b64encode(secret.encode()).decode().rstrip("=")[:-1]
    yield base64.b64encode(f"u:{secret}".encode()).decode().rstrip("=")[:-1]


class Place:
    """A directory with a copy of a table, a configuration file, and an environment; all with planted secrets."""

    def __init__(self, folder: Path, sound: Path, planted: Planted, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._planted = folder, planted
        self._table = folder / "w.db" / "t"
        shutil.copytree(sound, self._table)
        planted.store_in(self._table)
        for name in ("out", "here"):
            (folder / name).mkdir()
        (folder / "rows.json").write_text('{"dt": "a", "k": 1, "v": "new", "n": 5}\n')
        (folder / "here/paimon.yaml").write_text(planted.catalog_file)
        patch.chdir(folder / "here")
        for name, value in planted.variables.items():
            patch.setenv(name, value)
        patch.setenv("PAIMON_WAREHOUSE", f"file://u:{quote(planted.in_environment, safe='')}@localhost{folder}")
        self._sound = sound

    def words_of(self, command: str) -> list[str]:
        """The words of a command, with its placeholders replaced."""
        planted, folder = self._planted, self._folder
        names: Mapping[str, object] = {
            "t": planted.url(self._table),
            "w": planted.url(folder / "w.db"),
            "none": planted.url(folder / "w.db" / "none"),
            "place": planted.url(folder),
            "path": self._table,
            "out": folder / "out",
            "url": planted.url(folder / "out"),
            "rows": folder / "rows.json",
            "sound": self._sound,
            "secret": planted.in_option,
        }
        queries = {"SELECT_COUNT": f"SELECT count(*) FROM '{names['t']}'", "SELECT_NOTHING": f"SELECT x FROM '{names['t']}'"}
        return [queries.get(word) or word.format(**names) for word in command.split()]

    def _was_there(self, path: Path) -> bool:
        before = self._sound / path.relative_to(self._table) if path.is_relative_to(self._table) else None
        return before is not None and before.is_file() and before.read_bytes() == path.read_bytes()

    def found_in_files(self) -> dict[str, list[str]]:
        """What each file that the command has made or changed has of secrets: those of the table only count in reports, as it had
        them before. Compressed bytes of the sound table may have letters of any secret.
        """
        found = {}
        for path in self._folder.rglob("*"):
            if path.is_file() and path.name != "paimon.yaml" and not self._was_there(path):
                text = path.read_bytes().decode("utf-8", "replace")
                if words := self._planted.found_in(text, of_table=path.suffix in (".html", ".prom")):
                    found[str(path.relative_to(self._folder))] = words
        return found
