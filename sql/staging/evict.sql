-- name: rows
-- Partitions that another process owns now: their rows leave the lake. A row of a capability is in the capability's partition.
-- grain: one partition
-- reads: $evicted (JSON array of partitions), $shift (6 - log2 of the log's partitions)
-- writes: every table of the lake but endpoint, asked, looked and demand; temp evicted
-- A partition is the first bits of its buckets (records.md).
CREATE OR REPLACE TEMP MACRO part_of(key, shift) AS (bucket_of(key) >> shift::INTEGER)::USMALLINT;
CREATE OR REPLACE TEMP TABLE evicted AS SELECT unnest(from_json($evicted, '["USMALLINT"]')) AS part;

DELETE FROM withdrawn WHERE obs_id IN (SELECT obs_id FROM withdrawal WHERE part_of(cap, $shift) IN (FROM evicted));
DELETE FROM withdrawal WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM samples WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM paid_intent WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM paid_result WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM settlement WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM paid_followup WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM retried WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM answered WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM settled_by WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM buyers WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM offer_signed WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM last_handshake WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM paid_published WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM commitment_open WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM receipt_open WHERE part_of(sha256, $shift) IN (FROM evicted);
DELETE FROM listing WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM class_mapped WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM class_asked WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM correction WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM reinstated WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM dispute WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM correction_record WHERE part IN (FROM evicted);
DELETE FROM site WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM dirty WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM stale WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM seen WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM quoted WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM payee WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM thefts WHERE part_of(cap, $shift) IN (FROM evicted);
DELETE FROM event WHERE part IN (FROM evicted);
DELETE FROM left_id WHERE part IN (FROM evicted);
DELETE FROM left_day WHERE part IN (FROM evicted);
DELETE FROM archived WHERE part IN (FROM evicted);
DELETE FROM loaded WHERE part IN (FROM evicted);
DELETE FROM positions WHERE part IN (FROM evicted);

-- name: asks
-- What is left of the topic `asks`, to be staged once more: asks lie where their host does, whatever capability they name, so
-- what stays says what is still known.
-- grain: one record of the topic `asks`
-- reads: event
-- writes: asked, looked, demand; temp stage
CREATE OR REPLACE TEMP TABLE stage AS FROM event WHERE topic = 'asks';
DELETE FROM asked;
DELETE FROM looked;
DELETE FROM demand;

-- name: endpoints
-- Endpoints that no partition here holds and nobody asked about, also of a partition that was evicted before and whose ask lay in
-- one that is evicted now.
-- grain: one capability
-- reads: asked; temp macro part_of; $held (JSON array of partitions), $shift
-- writes: endpoint
DELETE FROM endpoint WHERE part_of(cap, $shift) NOT IN (SELECT unnest(from_json($held, '["USMALLINT"]')))
  AND cap NOT IN (SELECT cap FROM asked);
