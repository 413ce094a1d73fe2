"""Spark's own Kafka source, made to run: the peer of the benchmark, the oracle of the tests.

Its jars come from Maven Central. One that it needs is missing there (spark-token-provider-kafka,
which only logs in), and the newest source is of Spark 4.2. So three classes of our own (`stub/`,
compiled once by Eclipse's compiler, because the packaged JRE has none) replace the missing
ones: they hand Kafka's properties on as they are. Nothing of it is on the way of the data.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pyspark

from bench.java_classes import COMPILER, compiled
from rlm_sandbox.kafka_dist import cache_dir
from rlm_sandbox.maven import cached_jars

SOURCE_VERSION = "4.2.0"
_JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SOURCE_VERSION}",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
    "org.scala-lang.modules:scala-parallel-collections_2.13:1.2.0",
)
_SIZE_MIB = 15
_STUB = Path(__file__).resolve().parent / "stub"
_NEEDED = ("scala-library-*.jar", "spark-core_*.jar")
IN_WORDS = (
    f"Spark {pyspark.__version__} with its Kafka source of {SOURCE_VERSION}, kafka-clients 3.9.2"
    " and a stub of its token provider"
)


def source_class_path(progress: Callable[[str], None] = lambda _line: None) -> str:
    """What `spark.driver.extraClassPath` needs for `format("kafka")`; SandboxError where the jars
    cannot be had.
    """
    *jars, compiler = cached_jars(
        f"spark-kafka-{SOURCE_VERSION}",
        (*_JARS, COMPILER),
        cache_dir(),
        repository=os.environ.get("RLM_MAVEN_REPO"),
        size_mib=_SIZE_MIB,
        progress=progress,
        alone=True,
    )
    spark_jars = Path(pyspark.__file__).parent / "jars"
    class_path = os.pathsep.join(str(jar) for name in _NEEDED for jar in spark_jars.glob(name))
    classes = compiled(compiler, _STUB, class_path, "spark-peer")
    return os.pathsep.join(map(str, (*jars, classes)))
