"""The options of `backup` and `restore`."""

import os
from dataclasses import KW_ONLY
from typing import Annotated, Literal

from paimon_cli.errors import UsageError
from paimon_cli.options.option_text import parse_duration, parse_size
from paimon_cli.requests.fields import Option, Parsed, PointInTime, Request, VersionName


class Bandwidth(Parsed[str | int | None, int | None]):
    """Bytes in a second."""

    metavar, unit = "SIZE", "a size such as `50 mb`, or bytes"

    def parse(self, given: str | int | None) -> int | None:
        size = parse_size(given) if isinstance(given, str) else given
        if size is not None and size < 1:
            raise UsageError(f"--bandwidth {given}", "nothing could be copied", "such as --bandwidth '50 mb'")
        return size


class Kept(Parsed[str | int | None, int | None]):
    """How long the copy keeps snapshots, in milliseconds."""

    metavar, unit = "TIME", "a time such as `30d`, or milliseconds"

    def parse(self, given: str | int | None) -> int | None:
        millis = parse_duration(given) if isinstance(given, str) else given
        if millis is not None and millis < 1:
            raise UsageError(f"--keep {given}", "the copy would keep nothing", "such as --keep 30d")
        return millis


class BackupOptions(Request):
    """What to keep in the copy, and how fast to copy."""

    _: KW_ONLY
    keep: Annotated[
        Kept, Option("Expire snapshots of the copy that are older than this, such as 30d; default none are.", tells_default=True)
    ] = Kept()
    bandwidth: Annotated[
        Bandwidth, Option("Copy at most this many bytes a second, such as '50 mb'; default no limit.", tells_default=True)
    ] = Bandwidth()


class BackupCommand(BackupOptions):
    """What the command takes: a table and where its copy goes, or only that, with the database whose tables are copied."""

    database: Annotated[str | None, Option("Back up all tables of this database.", metavar="DB")] = None


class BackupVerifyOptions(Request):
    """How closely to look at a copy; as of `VerifyOptions`, with all snapshots."""

    _: KW_ONLY
    level: Annotated[
        Literal["meta", "files", "full"],
        Option("meta: metadata only; files: every file exists and can be opened; full: every row."),
    ] = "files"


class BackupCheckCall(BackupVerifyOptions):
    """The directory or URL of a backup, or of those of databases."""

    destination: str | os.PathLike[str]


class BackupCall(BackupOptions):
    """A backup into a directory or URL, which it has for itself."""

    destination: str | os.PathLike[str]


class RestoreOptions(Request):
    """Which version to restore; without one, the latest snapshot. With `history`, all versions up to it."""

    _: KW_ONLY
    snapshot: Annotated[VersionName, Option("Restore this snapshot.")] = VersionName()
    tag: Annotated[str | None, Option("Restore the snapshot of this tag.", metavar="NAME")] = None
    as_of: Annotated[PointInTime, Option("Restore the newest snapshot at this time.")] = PointInTime()
    history: Annotated[
        bool,
        Option("Restore the whole history with tags, branches, changelogs and consumers, up to the version if one is given."),
    ] = False

    def check(self) -> None:
        super().check()
        if sum(choice is not None for choice in (self.snapshot, self.tag, self.as_of)) > 1:
            raise UsageError("choose one of --snapshot, --tag and --as-of", "each names a version")
