"""Pack a folder of golden tables (WRITER/NAME/{table,params.json,expected*.jsonl}) into tests/goldens/WRITER.tar.xz.

The same input gives the same bytes: members are sorted, without times and owners.
"""

from __future__ import annotations

import io
import lzma
import sys
import tarfile
from pathlib import Path

DESTINATION = Path(__file__).resolve().parent.parent / "tests" / "goldens"


def pack(writer: Path, destination: Path) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(p for p in writer.rglob("*") if p.is_file()):
            member = tarfile.TarInfo(path.relative_to(writer).as_posix())
            member.size = path.stat().st_size
            member.mode = 0o644
            with path.open("rb") as content:
                archive.addfile(member, content)
    destination.write_bytes(lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{destination.name}: {destination.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: pack_goldens.py FOLDER   (holds one folder per writer)")
    for folder in sorted(p for p in Path(sys.argv[1]).iterdir() if p.is_dir()):
        pack(folder, DESTINATION / f"{folder.name}.tar.xz")
