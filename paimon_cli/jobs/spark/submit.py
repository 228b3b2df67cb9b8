"""Ships this package to other machines: an archive for executors, and command lines for `spark-submit`. Works without PySpark.

`spark-submit` starts a driver, here or in the cluster. Its Python runs `_ENTRY` with the arguments of the command, connects to
the JVM that `spark-submit` started, and takes master and settings from it (`jobs/spark/session`).
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import threading
import zipfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import paimon_cli
from paimon_cli.errors import UsageError
from paimon_cli.jobs.spark.java_runtime import user_cache
from paimon_cli.storage.injected import SystemRandom
from paimon_cli.storage.whole_file import ScratchDirectory

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

EARLIEST_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_ENTRY = "run_paimon_cli.py"
"""A script in `pyspark_paimon`: Python adds the folder of a script to its path, where the rooms of this package do not belong."""
_ENVIRONMENT, UNPACKED = "environment.tar.gz", "environment"
"""The archive of a Python environment, and the folder in the working directory of each process into which Spark unpacks it."""
DRIVER_IN_CLUSTER = ("yarn", "k8s://")
"""Prefixes of masters that run the driver in the cluster by default."""
WORKERS_PYTHON_VARIABLE = "PYSPARK_PYTHON"
WORKERS_PYTHON, DRIVERS_PYTHON = "spark.pyspark.python", "spark.pyspark.driver.python"
DEPLOY_MODE, SUBMITTED_FILES = "spark.submit.deployMode", "spark.files"
_OWN_OPTIONS = {
    "spark.app.name": "name",
    DEPLOY_MODE: "deploy-mode",
    "spark.archives": "archives",
    "spark.submit.pyFiles": "py-files",
    SUBMITTED_FILES: "files",
}
"""Settings that have an option of their own in `spark-submit`."""
_SENT = "_paimon_cli_was_sent"
"""Attribute that marks a context or Connect session that has the package."""
_SENDING = threading.Lock()


def package_files(root: Path) -> list[Path]:
    """Source and data files below `root`, without caches, in a fixed order."""
    return sorted(path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def archive_bytes(root: Path) -> bytes:
    """A reproducible zip of the directory `root`, with its name at the top."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in package_files(root):
            entry = zipfile.ZipInfo(path.relative_to(root.parent).as_posix(), EARLIEST_ZIP_TIME)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def write_package_archive(directory: Path) -> Path:
    """Write an archive of the running paimon_cli into `directory`, named after its content."""
    content = archive_bytes(Path(paimon_cli.__file__).parent)
    path = directory / f"paimon_cli-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    if not path.exists():
        draft = path.with_suffix(f".{SystemRandom().uuid()}")
        draft.write_bytes(content)
        draft.rename(path)
    return path


def classic_context(session: SparkSession) -> SparkContext | None:
    """The context of a session in this process; None over Spark Connect."""
    return session.sparkContext if hasattr(session, "_jsparkSession") else None


def check_running(session: SparkSession) -> None:
    """Raise `UsageError` for a session that has been stopped. Over Spark Connect, Spark says so itself."""
    context = classic_context(session)
    if context is not None and context._jsc is None:
        hint = "start another one with SparkSession.builder.getOrCreate(), and create the DataFrames again"
        raise UsageError("the Spark session is stopped", "it can run no more queries", hint)


def send_package(session: SparkSession) -> None:
    """Ship this package to the executors of a session, once, even if several threads begin jobs at the same time."""
    context = classic_context(session)
    if context is not None:
        send_to_executors(context)
        return
    with _SENDING:
        if not runs_from_archive() and not hasattr(session, _SENT):
            with TemporaryDirectory() as directory:
                session.addArtifacts(str(write_package_archive(Path(directory))), pyfile=True)
            setattr(session, _SENT, True)


def send_to_executors(context: SparkContext) -> None:
    """Ship this package to the executors of a context, once. Local executors run the Python of this process instead."""
    runs_here = is_local(str(context.master))
    if WORKERS_PYTHON_VARIABLE not in os.environ:  # PySpark would use the first python3 on the path and ignore its own setting
        context.pythonExec = context.getConf().get(WORKERS_PYTHON) or (sys.executable if runs_here else context.pythonExec)
    with _SENDING:
        if runs_here or runs_from_archive() or hasattr(context, _SENT):
            return
        directory = ScratchDirectory("package")
        context.addPyFile(str(write_package_archive(directory.path)))
        setattr(context, _SENT, directory)  # keeps the directory: executors that start later fetch the file from it


def runs_from_archive() -> bool:
    """Whether this process imported the package from such an archive; its executors then have it too."""
    return not Path(paimon_cli.__file__).parent.is_dir()


def spark_submit(arguments: Sequence[str], master: str, confs: Mapping[str, str], files: Sequence[str] = ()) -> list[str]:
    """The words of a `spark-submit` command that runs this command; writes the archive of the package into the user's cache.

    `arguments`: the command and its options. `files`: input files that a driver in the cluster needs in its working directory.
    `confs` override the defaults; a Python named there replaces the packed environment.
    """
    settings = {**_defaults(master, confs, files), **confs}
    options = [("master", master), *((option, settings.pop(key)) for key, option in _OWN_OPTIONS.items() if key in settings)]
    options += [("conf", f"{key}={value}") for key, value in settings.items()]
    words = [word for option, value in options for word in (f"--{option}", value)]
    return ["spark-submit", *words, str(_entry()), *arguments]


def runs_driver_in_cluster(master: str, confs: Mapping[str, str]) -> bool:
    return confs.get(DEPLOY_MODE, "cluster" if master.startswith(DRIVER_IN_CLUSTER) else "client") == "cluster"


def _defaults(master: str, confs: Mapping[str, str], files: Sequence[str]) -> dict[str, str]:
    settings = {"spark.app.name": f"paimon-cli {paimon_cli.__version__}"}
    if is_local(master):
        return settings | {WORKERS_PYTHON: sys.executable}
    settings["spark.submit.pyFiles"] = str(write_package_archive(_archives()))
    if WORKERS_PYTHON not in confs:
        settings |= {"spark.archives": f"{_ENVIRONMENT}#{UNPACKED}", WORKERS_PYTHON: f"./{UNPACKED}/bin/python"}
    if not runs_driver_in_cluster(master, confs):
        return settings | {DRIVERS_PYTHON: sys.executable}
    return settings | {DEPLOY_MODE: "cluster"} | ({SUBMITTED_FILES: ",".join(files)} if files else {})


def is_local(master: str) -> bool:
    """Whether tasks run on this machine, in Python processes like this one."""
    return master == "local" or master.startswith("local[")


def _archives() -> Path:
    cache = user_cache(os.environ)
    if cache is None:
        raise UsageError("cannot write the archive of the package", "the user's cache is not writable", "set XDG_CACHE_HOME")
    return cache


def _entry() -> Path:
    found = find_spec("pyspark_paimon")
    assert found is not None and found.origin is not None, "the wheel has both packages"
    return Path(found.origin).with_name(_ENTRY)
