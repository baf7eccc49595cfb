-- name: parts
-- Lists the partitions that another process owns now, and their buckets (groups of endpoints), whose rows this lake
-- must delete. Deletes these rows in the tables that have neither `part` nor `cap`.
-- grain: evicted = one partition; evicted_bucket = one bucket of an evicted partition
-- reads: $evicted (JSON array of partitions), $shift (6 - log2 of the log's partitions)
-- writes: temp evicted, temp evicted_bucket
-- The first bits of a bucket's number are the number of its partition (records.md).
CREATE OR REPLACE TEMP TABLE evicted AS SELECT unnest(from_json($evicted, '["USMALLINT"]')) AS part;
CREATE OR REPLACE TEMP TABLE evicted_bucket AS SELECT range AS bucket FROM range(64) WHERE range >> $shift::INTEGER IN (FROM evicted);
-- These two tables are cleared first: the rows of `withdrawn` are found through `withdrawal`, whose rows are deleted
-- later.
DELETE FROM withdrawn WHERE obs_id IN (SELECT obs_id FROM withdrawal WHERE bucket_of(cap) IN (FROM evicted_bucket));
DELETE FROM receipt_open WHERE bucket_of(sha256) IN (FROM evicted_bucket);

-- name: statements
-- Returns, for each other table, a statement that deletes the rows of the evicted partitions. A row without a
-- partition number is in the partition of its capability. The tables of asks and `endpoint` are cleared by the next
-- two queries.
-- grain: one table of the lake
-- reads: temp evicted, temp evicted_bucket
-- writes: nothing
SELECT format('DELETE FROM {} WHERE {}', table_name,
  CASE WHEN bool_or(column_name = 'part') THEN 'part IN (FROM evicted)' ELSE 'bucket_of(cap) IN (FROM evicted_bucket)' END) AS statement
FROM duckdb_tables() t JOIN duckdb_columns() c USING (table_oid, table_name, database_name)
WHERE database_name = current_database() AND column_name IN ('part', 'cap') AND table_name NOT IN ('endpoint', 'asked', 'looked', 'demand')
GROUP BY table_name;

-- name: asks
-- Empties the tables of asks, and stages the remaining records of the topic `asks`, so that they are loaded again. An
-- ask is in the partition of its url's host, not of its capability, so these tables cannot be cleared by capability.
-- grain: one record of the topic `asks`
-- reads: event
-- writes: asked, looked, demand; temp stage
CREATE OR REPLACE TEMP TABLE stage AS FROM event WHERE topic = 'asks';
DELETE FROM asked;
DELETE FROM looked;
DELETE FROM demand;

-- name: endpoints
-- Deletes endpoints that are in no partition of this lake and have no ask here. The partition of such an endpoint may
-- have been evicted earlier, while its ask was in a partition that is evicted only now.
-- grain: one capability
-- reads: asked; $held (JSON array of partitions), $shift
-- writes: endpoint
DELETE FROM endpoint WHERE bucket_of(cap) >> $shift::INTEGER NOT IN (SELECT unnest(from_json($held, '["USMALLINT"]')))
  AND cap NOT IN (SELECT cap FROM asked);
