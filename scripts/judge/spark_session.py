"""A session of Spark SQL that answers each statement, a JSON string per line, with rows or an error. Runs in its own Python."""

import json
import sys
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main() -> None:
    builder = SparkSession.builder.master("local[2]").appName("judge")
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"rows": [list(row) for row in session.sql(json.loads(line)).collect()]}
        except (PySparkException, Py4JError) as error:
            answer = {"error": str(error)[:2000]}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
