"""librdkafka and polars: a Kafka topic of JSON rows into zstd Parquet. Prints {"rows", "seconds", "cpu"}.
Usage: polars_stream.py BROKER TOPIC ROWS OUT PARTITIONS"""

import json
import sys
import time
import uuid

import polars as pl
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

broker, topic, rows, out, partitions = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
BATCH = 122_880
SLOT = pl.Struct({"block": pl.Int64, "minute": pl.Int64})
BODY = pl.Struct(
    {
        "state": pl.String,
        "live": pl.Boolean,
        "honest": pl.Boolean,
        "wall": pl.Boolean,
        "fault": pl.String,
        "status": pl.Int64,
        "latency_ms": pl.Float64,
        "price": pl.String,
        "pay_to": pl.String,
        "planned": pl.String,
        "slot": SLOT,
    }
)
SCHEMA = {name: pl.String for name in ("event_id", "type", "key", "cap", "observed_at", "producer")} | {
    "v": pl.Int64,
    "body": BODY,
}

consumer = Consumer(
    {
        "bootstrap.servers": broker,
        "group.id": str(uuid.uuid4()),
        "enable.auto.commit": False,
        "fetch.max.bytes": 64 * 1024 * 1024,
        "queued.max.messages.kbytes": 256 * 1024,
    }
)
consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])


def write(values, n):
    pl.read_ndjson(b"\n".join(values), schema=SCHEMA).write_parquet(f"{out}/{n}.parquet", compression="zstd")


begin, cpu = time.monotonic(), time.process_time()
seen, files, held = 0, 0, []
while seen < rows:
    messages = consumer.consume(10_000, timeout=30)
    if not messages:
        sys.exit(f"only {seen} of {rows} rows came")
    for message in messages:
        if message.error():
            sys.exit(str(message.error()))
        held.append(message.value())
    seen += len(messages)
    if len(held) >= BATCH or seen >= rows:
        write(held, files)
        files, held = files + 1, []
seconds, cpu = time.monotonic() - begin, time.process_time() - cpu
consumer.close()
print(json.dumps({"rows": seen, "seconds": seconds, "cpu": cpu}))
