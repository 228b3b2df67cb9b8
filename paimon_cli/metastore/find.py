"""The catalog that a call means, by the settings of the call, the environment and `paimon.yaml`."""

from __future__ import annotations

from collections.abc import Mapping

from paimon_cli.errors import NotSupported, UsageError
from paimon_cli.metastore.filesystem import FileSystemMetastore
from paimon_cli.metastore.metastore import Metastore
from paimon_cli.metastore.settings import FILESYSTEM, METASTORE, CatalogSettings, read_settings

JDBC, HIVE, REST = "jdbc", "hive", "rest"


def find_metastore(
    warehouse: str | None = None,
    options: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: str = ".",
) -> Metastore:
    """The catalog of `--warehouse` and `--option`, the environment, and `paimon.yaml` in `directory`."""
    return open_metastore(read_settings(warehouse, options, environment, directory))


def open_metastore(settings: CatalogSettings) -> Metastore:
    """The catalog of these settings; nothing is connected yet. `NotSupported` for a kind that this version does not know."""
    kind, options = settings.metastore, settings.catalog_options
    if kind == FILESYSTEM:
        del options[METASTORE]
        return FileSystemMetastore(settings.warehouse, options, settings.flags)
    if kind == JDBC:
        try:
            from paimon_cli.metastore.jdbc import JdbcMetastore
        except ModuleNotFoundError as error:
            raise UsageError("a jdbc catalog needs SQLAlchemy", str(error), "pip install 'paimon-cli[jdbc]'") from None

        return JdbcMetastore(settings.warehouse, options, settings.flags)
    if kind == HIVE:
        from paimon_cli.metastore.hive import HiveMetastore

        return HiveMetastore(settings.warehouse, options, settings.flags)
    if kind == REST:
        from paimon_cli.metastore.rest import RestMetastore

        return RestMetastore(settings.warehouse, options, settings.flags)
    origin, source = settings.sources[METASTORE]
    raise NotSupported(
        f"catalogs of the kind '{kind}' are not supported",
        f"metastore={kind} ({source or origin}) is none of {', '.join((FILESYSTEM, JDBC, HIVE, REST))}",
        "correct metastore, or name the table by its path with --option metastore=filesystem",
    )
