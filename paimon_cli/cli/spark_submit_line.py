"""`--print-spark-submit`: the command line of a call, as `spark-submit` takes it."""

from __future__ import annotations

import os
import re
import shlex
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from paimon_cli.catalog.table_location import CATALOG_FILE, WAREHOUSE_VARIABLE
from paimon_cli.cli.columns import Column, Item
from paimon_cli.cli.command_groups import GIVEN
from paimon_cli.cli.results import NAMES
from paimon_cli.errors import UsageError
from paimon_cli.jobs.spark.submit import runs_driver_in_cluster, spark_submit
from paimon_cli.storage.catalog_options import names_secret

if TYPE_CHECKING:
    from paimon_cli.cli.command import Call

OPTION = re.compile("-.")
SAID_TO_SPARK = frozenset({"engine", "spark_threshold", "master", "spark_conf", "print_spark_submit"})
"""Parameters of commands that become options of `spark-submit`, or that mean nothing to a job that runs on Spark anyway."""


def show_line(call: Call, context: Any) -> None:
    """Print the `spark-submit` line of a call, whose raw arguments the context has."""
    if call.engine == "local" or (call.master is not None and call.master.startswith("sc://")):
        flag, why = ("--engine local", "Spark") if call.engine == "local" else ("--remote", "spark-submit")
        raise UsageError(f"--print-spark-submit cannot be combined with {flag}", f"that runs without {why}")
    for key in (*call.catalog_options, *call.options, *call.spark_conf):
        if names_secret(key):
            why = "what a command prints ends up in logs and histories"
            hint = f"put it into {CATALOG_FILE}, which is sent along, or a setting of Spark into its spark-defaults.conf"
            raise UsageError(f"--print-spark-submit would print the value of {key}", why, hint)
    master, files, words = call.master or "local[*]", [], ["--engine", "spark"]
    if runs_driver_in_cluster(master, call.spark_conf):
        files += [CATALOG_FILE] if os.path.exists(CATALOG_FILE) else []
        warehouse = os.environ.get(WAREHOUSE_VARIABLE)
        words += ["--warehouse", warehouse] if warehouse and call.warehouse is None else []
    given = [*context.command_path.split()[1:], *_given_words(context, words)]
    line = spark_submit(given, master, call.spark_conf, files)
    shown = Item("SparkSubmit", None, SimpleNamespace(command=line), [Column("command", "Command", NAMES)])
    call.show(shown, shlex.join(line))


def _given_words(context: Any, more: list[str]) -> list[str]:
    """The command line as it was given, without what is said to Spark itself, and with some words more."""
    values, _, order = context.command.make_parser(context).parse_args(list(context.meta[GIVEN]))
    arguments: list[str] = []
    options: list[str] = []
    for parameter in (each for each in order if each.name not in SAID_TO_SPARK):
        value = values[parameter.name]
        if parameter.param_type_name == "argument":
            arguments += [word for word in (value if isinstance(value, tuple) else (value,)) if isinstance(word, str)]
        elif parameter.is_flag:
            options.append((parameter.opts if value else parameter.secondary_opts)[-1])
        else:
            options += [parameter.opts[-1], value.pop(0) if isinstance(value, list) else value]
    return [*options, *more, "--", *arguments] if any(map(OPTION.match, arguments)) else [*arguments, *options, *more]
