"""The script that `--print-spark-submit` passes to `spark-submit`; it takes the same arguments as `paimon-cli`."""

from paimon_cli.__main__ import main

main()
