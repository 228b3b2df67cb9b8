"""The script that `spark-submit` runs; its arguments are those of `paimon-cli`, whose `--print-spark-submit` names it."""

from paimon_cli.__main__ import main

main()
