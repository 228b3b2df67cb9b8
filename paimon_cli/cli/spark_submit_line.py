"""`--print-spark-submit`: prints the `spark-submit` command line for a call."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paimon_cli.catalog.metastore.configuration_files import CATALOG_FILE, PROFILE, USER_FILE_VARIABLE, user_file_of
from paimon_cli.catalog.metastore.settings import PROFILE_VARIABLE, WAREHOUSE_VARIABLE
from paimon_cli.cli.command_groups import RAW_ARGUMENTS
from paimon_cli.cli.results import warn
from paimon_cli.errors import UsageError
from paimon_cli.jobs.spark.submit import SUBMITTED_FILES, runs_driver_in_cluster, spark_submit
from paimon_cli.storage.redaction import holds_secret, shown_value

OPTION = re.compile("-.")
NOT_FORWARDED = frozenset({"engine", "spark_threshold", "master", "spark_conf", "print_spark_submit"})
"""Parameters that become options of `spark-submit`, or have no meaning for a job that runs on Spark anyway."""

DRIVER_ENVIRONMENT = {"yarn": "spark.yarn.appMasterEnv", "k8s://": "spark.kubernetes.driverEnv"}
"""How settings begin that set variables of a driver in the cluster, by the beginning of the master."""

ON_SPARK_WITH = {"read": ("output_path", "--output-path")}
"""Commands that run on Spark only with one of their options: its parameter and its name."""


@dataclass(frozen=True)
class Submission:
    """The Spark settings of a call, and its options."""

    engine: str
    master: str | None
    spark_conf: Mapping[str, str]
    has_warehouse: bool
    options: Mapping[str, str]


def line_of(submission: Submission, context: Any) -> list[str]:
    """The words of the `spark-submit` command for a call, whose raw arguments are in the context.

    Raises `UsageError` if the call cannot run through `spark-submit`, or if the command would contain a secret.
    """
    given, confs = submission.master, submission.spark_conf
    if submission.engine == "local" or (given is not None and given.startswith("sc://")):
        flag, why = ("--engine local", "Spark") if submission.engine == "local" else ("--remote", "spark-submit")
        raise UsageError(f"--print-spark-submit cannot be combined with {flag}", f"that runs without {why}")
    parameter, flag = ON_SPARK_WITH.get(context.command.name, ("", ""))
    if parameter and context.params[parameter] is None:
        raise UsageError(f"--print-spark-submit needs {flag}", "without it the command runs in this process", f"add {flag} DIR")
    for key, value in (*submission.options.items(), *confs.items()):
        if holds_secret(key, value):
            raise _would_print(f"the value of {key}")
    master, files, words = given or "local[*]", list[str](), ["--engine", "spark"]
    if runs_driver_in_cluster(master, confs):
        files, confs = _configuration(master, confs)
        warehouse = os.environ.get(WAREHOUSE_VARIABLE)
        words += ["--warehouse", warehouse] if warehouse and not submission.has_warehouse else []
        profile = os.environ.get(PROFILE_VARIABLE)
        words += ["--profile", profile] if profile and PROFILE not in submission.options else []
    words = _given_words(context, words)
    for word in (master, *words):
        if holds_secret("", word):
            raise _would_print(f"the password in {shown_value('', word)}")
    return spark_submit([*context.command_path.split()[1:], *words], master, confs, files)


def _configuration(master: str, confs: Mapping[str, str]) -> tuple[list[str], Mapping[str, str]]:
    """The files of the configuration that a driver in the cluster gets into its working directory, and the Spark settings.

    A variable of the driver names the user's own file there, which nothing else would find.
    """
    files = [CATALOG_FILE] if os.path.exists(CATALOG_FILE) else []
    own = user_file_of(os.environ)
    if not os.path.isfile(own) or SUBMITTED_FILES in confs:
        return files, confs
    prefix = next((setting for start, setting in DRIVER_ENVIRONMENT.items() if master.startswith(start)), None)
    if prefix is None:
        warn(f"{own} is not sent with the job: it is not known how a driver under {shown_value('', master)} would find it")
        return files, confs
    sent = os.path.basename(own)
    sent, file = (sent, own) if sent != CATALOG_FILE else (f"own-{sent}", f"{own}#own-{sent}")
    return [*files, file], {f"{prefix}.{USER_FILE_VARIABLE}": sent, **confs}


def _would_print(what: str) -> UsageError:
    why = "printed commands end up in logs, shell histories and lists of processes"
    hint = f"put it in {CATALOG_FILE}, which is shipped with the job, or a Spark setting in spark-defaults.conf"
    return UsageError(f"--print-spark-submit would print {what}", why, hint)


def _given_words(context: Any, more: list[str]) -> list[str]:
    """The words of the command line, without the options for Spark itself, and with the words `more` added."""
    values, _, order = context.command.make_parser(context).parse_args(list(context.meta[RAW_ARGUMENTS]))
    arguments: list[str] = []
    options: list[str] = []
    for parameter in (parameter for parameter in order if parameter.name not in NOT_FORWARDED):
        value = values[parameter.name]
        if parameter.param_type_name == "argument":
            arguments += [word for word in (value if isinstance(value, tuple) else (value,)) if isinstance(word, str)]
        elif parameter.is_flag:
            options.append((parameter.opts if value else parameter.secondary_opts)[-1])
        else:
            one = value.pop(0) if isinstance(value, list) else value
            options += [parameter.opts[-1], *(one if isinstance(one, tuple) else (one,))]
    return [*options, *more, "--", *arguments] if any(map(OPTION.match, arguments)) else [*arguments, *options, *more]
