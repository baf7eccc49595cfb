"""Spark Structured Streaming, local[2]: a Kafka topic of JSON rows into zstd Parquet. Prints {"rows", "seconds", "cpu"} of a
warm run; CPU is that of its virtual machine.
Usage: spark_stream.py BROKER TOPIC ROWS OUT JARS(comma separated)"""

import json
import os
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

broker, topic, rows, out, jars = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
SCHEMA = """event_id STRING, type STRING, key STRING, cap STRING, observed_at TIMESTAMP, producer STRING, v INT,
  body STRUCT<state: STRING, live: BOOLEAN, honest: BOOLEAN, wall: BOOLEAN, fault: STRING, status: INT, latency_ms: DOUBLE,
    price: STRING, pay_to: STRING, planned: STRING, slot: STRUCT<block: INT, minute: INT>>"""

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    # A busy machine may keep it waiting for long; that is slow, not broken.
    .config("spark.executor.heartbeatInterval", "600s")
    .config("spark.network.timeout", "900s")
    .config("spark.rpc.askTimeout", "900s")
    .config("spark.rpc.lookupTimeout", "900s")
    .config("spark.driver.memory", "1g")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.parquet.compression.codec", "zstd")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


machine = spark.sparkContext._gateway.proc.pid


def cpu_seconds():
    """User and system time of the machine (proc(5), fields 14 and 15 of stat)."""
    with open(f"/proc/{machine}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started(name, options, trigger):
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )
    parsed = stream.select(from_json(col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
    return (
        parsed.writeStream.format("parquet")
        .option("path", f"{out}/{name}")
        .option("checkpointLocation", f"{out}/{name}.checkpoint")
        .trigger(**trigger)
        .start()
    )


# Some batches first: what is measured shall not be the machine's warming up.
warm = started("warm", {"maxOffsetsPerTrigger": str(max(1, rows // 10))}, {"processingTime": "0 seconds"})
while (warm.lastProgress or {}).get("batchId", 0) < 2:
    time.sleep(0.2)
warm.stop()

begin, cpu = time.monotonic(), cpu_seconds()
query = started("measured", {}, {"availableNow": True})
query.awaitTermination()
seconds, cpu = time.monotonic() - begin, cpu_seconds() - cpu
found = spark.read.parquet(f"{out}/measured").count()
spark.stop()
print(json.dumps({"rows": found, "seconds": seconds, "cpu": cpu}))
