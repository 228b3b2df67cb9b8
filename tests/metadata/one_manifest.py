"""A manifest of some entries as one file, however many they are."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from paimon_cli.metadata.avro_writer import encode_container
from paimon_cli.metadata.data_file import ManifestEntry
from paimon_cli.metadata.manifests import ENTRY, encode_manifests


def encode_manifest(entries: Sequence[ManifestEntry]) -> bytes:
    """The bytes of the file; without entries, which no commit writes, it has only a header."""
    for content, _ in encode_manifests(entries, sys.maxsize):
        return content
    return encode_container(ENTRY, [])
