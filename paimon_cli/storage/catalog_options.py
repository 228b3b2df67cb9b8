"""The options of the catalog: where the storage is, the credentials, and the commit lock.

They come from `paimon.yaml` and from `--option`, under Paimon's own names, and never end up in a table:

- `s3.endpoint`, `s3.access-key`, `s3.secret-key`, `s3.session-token`, `s3.region`, `s3.path.style.access` (also below
  `fs.s3.`, as pypaimon has them, and `fs.s3a.`); without them S3 takes what the environment says (`AWS_...`);
- `fs.<scheme>.<name>`: option `name` of the fsspec file system of any other scheme;
- `lock.enabled`, `lock.type`, `lock-acquire-timeout`, `lock-check-max-sleep`, `lock-key-max-length`, `metastore`, `uri`,
  `jdbc.user`, `jdbc.password`, `catalog-key`: the commit lock (`storage.commit_lock`).
"""

from __future__ import annotations

from collections.abc import Mapping

_STORE_PREFIXES = ("s3.", "s3a.", "fs.")
_LOCK_PREFIXES = ("jdbc.", "lock.", "lock-")
_LOCK_NAMES = {"metastore", "uri", "catalog-key"}


def is_catalog_option(key: str) -> bool:
    return key == "warehouse" or key.startswith(_STORE_PREFIXES) or _is_of_lock(key)


def store_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that tasks need to read and write files; the lock and its password are left out."""
    return {key: value for key, value in options.items() if not _is_of_lock(key)}


def _is_of_lock(key: str) -> bool:
    return key in _LOCK_NAMES or key.startswith(_LOCK_PREFIXES)


def split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options of the catalog, options of the table."""
    catalog = {key: value for key, value in options.items() if is_catalog_option(key)}
    return catalog, {key: value for key, value in options.items() if key not in catalog}


def file_system_options(scheme: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options for the fsspec file system of a scheme: those below `fs.<scheme>.`, and unknown names."""
    prefix = f"fs.{scheme}."
    plain = {key: value for key, value in options.items() if "." not in key and not is_catalog_option(key)}
    return plain | {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}
