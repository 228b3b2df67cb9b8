"""Commands that only show metadata must not pay for Arrow."""

from __future__ import annotations

import subprocess
import sys


def test_schemas_and_options_load_without_arrow() -> None:
    code = (
        "import sys, paimon_cli.metadata.table_schema, paimon_cli.options.table_options, paimon_cli.options.option_catalog,"
        "paimon_cli.datatypes.binary_row, paimon_cli.metadata.table_layout;"
        "print([name for name in ('pyarrow', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
