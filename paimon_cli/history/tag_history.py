"""The tags of a table or branch: named snapshots, which stay when the snapshots themselves expire (FORMAT.md, section 13.2)."""

from __future__ import annotations

from dataclasses import dataclass

from paimon_cli.errors import NotFound
from paimon_cli.metadata.table_layout import TAG_PREFIX, TableLayout
from paimon_cli.metadata.tag import Tag
from paimon_cli.storage.storage import Storage


@dataclass(frozen=True)
class TagHistory:
    """Reads `tag/`; holds no state, so every call sees the present."""

    storage: Storage
    layout: TableLayout

    def names(self) -> list[str]:
        """By name; foreign files are ignored."""
        found = self.storage.list_directory(self.layout.tag_directory)
        return sorted(s.name.removeprefix(TAG_PREFIX) for s in found if s.name.startswith(TAG_PREFIX) and not s.is_directory)

    def content(self, name: str) -> bytes | None:
        """The tag file as it stands; None if there is no such tag."""
        try:
            return self.storage.read_bytes(self.layout.tag(name))
        except FileNotFoundError:
            return None

    def find(self, name: str) -> Tag | None:
        content = self.content(name)
        return None if content is None else Tag.from_json(content, self.layout.tag(name))

    def get(self, name: str) -> Tag:
        """That tag; `NotFound` names those that there are."""
        tag = self.find(name)
        if tag is None:
            names = self.names()
            why = f"its tags are {', '.join(names)}" if names else "it has no tags"
            raise NotFound(
                f"no tag '{name}' in {self.layout.version_root}", why, f"paimon-cli tags ls {self.layout.argument}", tag=name
            )
        return tag

    def all(self) -> dict[str, Tag]:
        """Tags by name; one that is deleted meanwhile may be missing."""
        found = {name: self.find(name) for name in self.names()}
        return {name: tag for name, tag in found.items() if tag is not None}
