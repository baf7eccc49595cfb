#!/bin/sh
# Creates the topics of a log in a Kafka cluster (topics.md). Safe to repeat: existing topics are not changed, and
# `touchstone` refuses topics with wrong settings.
#   create-topics.sh BOOTSTRAP PREFIX PARTITIONS [kafka-topics.sh options, such as --command-config FILE]
# KAFKA_TOPICS is the path of the tool; default: kafka-topics.sh in the PATH, else kafka-topics beside this file (jars of
# pom.xml). REPLICAS (default 3), MIN_IN_SYNC (2) and RETENTION_MS (14 days) are settings of the topics.
set -eu

if [ $# -lt 3 ]; then
  echo "usage: $0 BOOTSTRAP PREFIX PARTITIONS [options of kafka-topics.sh]" >&2
  exit 2
fi
bootstrap=$1 prefix=$2 partitions=$3
shift 3
case "$partitions" in
  1 | 2 | 4 | 8 | 16 | 32 | 64) ;;
  *) echo "$0: PARTITIONS is 1, 2, 4 .. 64 and never changed afterwards, not $partitions" >&2; exit 2 ;;
esac

tool=${KAFKA_TOPICS:-}
if [ -z "$tool" ]; then
  tool=$(command -v kafka-topics.sh) || tool=$(dirname "$0")/kafka-topics
fi

create() {
  topic=$1 count=$2
  shift 2
  "$tool" --bootstrap-server "$bootstrap" --create --if-not-exists \
    --topic "$prefix.$topic" --partitions "$count" --replication-factor "${REPLICAS:-3}" \
    --config min.insync.replicas="${MIN_IN_SYNC:-2}" \
    --config cleanup.policy=delete \
    --config unclean.leader.election.enable=false \
    --config message.timestamp.type=LogAppendTime \
    --config max.message.bytes=2097152 \
    --config compression.type=producer \
    "$@"
}

# The log's identity: one record, which never expires. The first role that starts writes it.
create log 1 --config retention.ms=-1 --config retention.bytes=-1 "$@"
# These topics are the only copy of their records, so none may expire.
for topic in watchers orders; do
  create "$topic" "$partitions" --config retention.ms=-1 --config retention.bytes=-1 "$@"
done
for topic in listings observations.free observations.paid observations.mcp asks corrections; do
  create "$topic" "$partitions" --config retention.ms="${RETENTION_MS:-1209600000}" "$@"
done
