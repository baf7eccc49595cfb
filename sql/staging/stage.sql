-- name: parsed
-- Copies the records of some segments into temp stage, with the parsed bodies of probes. The next statements load them
-- from there.
-- grain: stage = one row of a segment
-- reads: the segments $paths (JSON array of paths of Parquet files)
-- writes: temp stage
-- Of a probe's body the lake stores only the values that a sample needs. Records of other types are few, and are
-- stored with their bodies, which other statements read.
CREATE OR REPLACE TEMP TABLE stage AS
SELECT event_id, r.type, CASE WHEN topic = 'asks' OR cap <> key THEN key END AS key,
  CASE WHEN topic = 'asks' THEN cap ELSE coalesce(cap, key) END AS cap, topic, r.part, "offset" AS log_offset, observed_at, appended_at,
  CASE WHEN NOT is_probe(r.type) THEN body END AS body, says.slot.block, fault_of(says.fault, says.wall) AS fault, says.live, says.honest,
  says.latency_ms, micro_of(says.price) AS price_micro, says.pay_to, asked_micro_of(says.terms.offers) AS asked_micro,
  says.state, says.status, says.planned, says.url, says.method, says.terms, says.differs, says.signed_offers, FALSE AS filed
FROM (SELECT *, CASE WHEN is_probe(type) THEN from_json(body, '{"state": "VARCHAR", "status": "BIGINT", "live": "BOOLEAN", "honest": "BOOLEAN", "wall": "BOOLEAN",
    "fault": "VARCHAR", "latency_ms": "DOUBLE", "price": "VARCHAR", "pay_to": "VARCHAR", "planned": "VARCHAR", "url": "VARCHAR", "method": "VARCHAR",
    "slot": {"block": "INTEGER"}, "terms": {"protocols": ["VARCHAR"],
      "offers": [{"network": "VARCHAR", "asset": "VARCHAR", "payable": "BOOLEAN", "pay_to": "VARCHAR", "price": "VARCHAR"}], "defects": "JSON"}, "differs": "JSON",
    "signed_offers": {"present": "BIGINT", "unread": "BIGINT", "valid": "BIGINT", "authorised": "BIGINT"}}') END AS says
  FROM read_parquet(from_json($paths, '["VARCHAR"]'))) r;

-- name: fresh
-- Marks the segments as loaded, and stores the staged records that the lake does not have yet as events. A record is a
-- copy of another, and is dropped, if it has the same event id, partition, key and scope (below).
-- grain: loaded = one segment; stage = one new record, filed = a file of the archive has this probe; staged = one partition
--   of a topic; repeated = one staged record whose id the lake has; touched = one capability with a new record; sampled = one
--   sample that a correction may withdraw, none of them yet
-- reads: temp stage, event, filed, positions, left_id, samples; $segments (JSON array of {topic, part, file, first, last, rows})
-- writes: loaded, event, left_id, temp stage, temp staged, temp around (a view), temp repeated, temp touched, temp sampled;
--   macro scope_of
INSERT INTO loaded
SELECT s.topic, s.part, s.file, s.rows, min(r.observed_at), max(r.observed_at)
FROM (SELECT unnest(from_json($segments, '[{"topic": "VARCHAR", "part": "USMALLINT", "file": "VARCHAR", "first": "BIGINT", "last": "BIGINT",
  "rows": "BIGINT"}]'), recursive := true)) s
LEFT JOIN stage r ON r.topic = s.topic AND r.part = s.part AND r.log_offset BETWEEN s.first AND s.last GROUP BY ALL;

-- Archived rows were counted when they were first loaded. They are staged again when a segment is loaded that was
-- joined from others; then they are removed here.
DELETE FROM stage USING filed f, positions p
WHERE stage.type = f.type AND stage.part = f.part AND stage.observed_at::DATE = f.day AND stage.log_offset < f.next
  AND p.topic = stage.topic AND p.part = stage.part AND stage.log_offset < p.next;
UPDATE stage SET filed = TRUE FROM filed f
WHERE is_probe(stage.type) AND stage.type = f.type AND stage.part = f.part AND stage.observed_at::DATE = f.day
  AND stage.log_offset < f.next;

-- The id of a planned call contains its slot (planned time), so two records with one such id are copies, whatever
-- their days. Ids of other types may be used again on another day, so for these only records of one day can be copies.
CREATE OR REPLACE TEMP MACRO scope_of(type, t) AS
  CASE WHEN type IN ('handshake', 'mcp.probe', 'paid.intent', 'mcp.paid') THEN DATE '1970-01-01' ELSE t::DATE END;
-- A partition's new records are compared only with events from a day before to a day after them, so the cost does not
-- grow with the lake: the engine uses the bounds of the join to skip blocks of other days.
CREATE OR REPLACE TEMP TABLE staged AS
SELECT topic, part, min(observed_at) - INTERVAL 1 DAY AS since, max(observed_at) + INTERVAL 1 DAY AS until FROM stage GROUP BY ALL;
CREATE OR REPLACE TEMP VIEW around AS
SELECT e.topic, e.part, event_id, key, cap, scope_of(type, observed_at) AS scope
FROM event e JOIN staged s ON e.topic = s.topic AND e.part = s.part AND e.observed_at BETWEEN s.since AND s.until
UNION ALL
-- Ids of archived records, so that copies of these are dropped too.
SELECT s.topic, l.part, event_id, NULL AS key, cap, DATE '1970-01-01' AS scope FROM left_id l JOIN staged s ON l.part = s.part;
-- Few records are copies, so ids alone are compared first; within the stage their hashes, which are numbers.
CREATE OR REPLACE TEMP TABLE repeated AS
SELECT rowid AS stage_row, topic, part, event_id, coalesce(key, cap) AS name, scope_of(type, observed_at) AS scope
FROM stage WHERE event_id IN (SELECT event_id FROM around);
DELETE FROM stage WHERE rowid IN (
  SELECT unnest(list(rowid ORDER BY log_offset)[2:]) FROM stage
  WHERE hash(event_id) IN (SELECT hash(event_id) FROM stage GROUP BY ALL HAVING count(*) > 1)
  GROUP BY topic, part, event_id, coalesce(key, cap), scope_of(type, observed_at)
  UNION ALL
  SELECT stage_row FROM repeated r JOIN around e
    ON r.event_id = e.event_id AND r.topic = e.topic AND r.part = e.part AND r.scope = e.scope AND r.name = coalesce(e.key, e.cap));

-- A commitment changes no fact of its endpoint, and a receipt has no endpoint, so they mark no endpoint as touched.
CREATE OR REPLACE TEMP TABLE touched AS
SELECT DISTINCT cap FROM stage WHERE topic <> 'asks' AND type NOT IN ('paid.commitment', 'web.receipt');
CREATE OR REPLACE TEMP TABLE sampled AS SELECT obs_id, cap, t FROM samples LIMIT 0;

-- Probes that are in a file of the archive are counted in the totals, and are not stored as events. One statement
-- inserts all records: after two statements into one table in one transaction, the first of them without a row, the
-- engine (1.5.6) showed the rows of neither until a checkpoint.
INSERT INTO event BY NAME
SELECT * EXCLUDE (filed, state, status, planned, url, method, terms, differs, signed_offers) FROM stage WHERE NOT filed;
-- Adds the ids of the archived records, so that the lists of ids stay complete for the days that they cover.
INSERT INTO left_id SELECT type, observed_at::DATE, part, event_id, cap FROM stage WHERE filed;
