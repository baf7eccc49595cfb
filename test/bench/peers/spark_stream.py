"""Spark Structured Streaming, local[2]: a Kafka topic of JSON rows into zstd Parquet. Prints {"rows", "seconds"} of a warm run.
Usage: spark_stream.py BROKER TOPIC ROWS OUT JARS(comma separated)"""

import json
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
    .config("spark.driver.memory", "1g")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.parquet.compression.codec", "zstd")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


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

begin = time.monotonic()
query = started("measured", {}, {"availableNow": True})
query.awaitTermination()
seconds = time.monotonic() - begin
found = spark.read.parquet(f"{out}/measured").count()
spark.stop()
print(json.dumps({"rows": found, "seconds": seconds}))
