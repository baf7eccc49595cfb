-- The records of some segments that the lake does not have yet, what their probes say, and all of them as events: a copy is
-- dropped by event id within its partition, key and scope.
-- grain: stage = one new record; staged = one partition of a topic; probe = one staged probe; touched = one capability with a
--   new record; sampled = one sample that a correction may withdraw, none of them yet
-- reads: the segments $segments (JSON array of paths of Parquet files), event, filed, positions, left_id
-- writes: temp stage, temp staged, temp probe, temp touched, temp sampled, event, left_id
-- The id of a planned call names its slot, so its copy is the same wherever it lies; the others repeat day by day.
CREATE OR REPLACE TEMP MACRO scope_of(type, t) AS
  CASE WHEN type IN ('handshake', 'mcp.probe', 'paid.intent', 'mcp.paid') THEN DATE '1970-01-01' ELSE t::DATE END;
CREATE OR REPLACE TEMP TABLE stage AS
SELECT event_id, type, CASE WHEN topic = 'asks' OR cap <> key THEN key END AS key,
  CASE WHEN topic = 'asks' THEN cap ELSE coalesce(cap, key) END AS cap, topic, part, "offset" AS log_offset, observed_at, appended_at, body
FROM read_parquet(from_json($segments, '["VARCHAR"]'));

-- What left for the archive was counted when it was loaded; with a segment that was joined from others it comes once more.
DELETE FROM stage USING filed f, positions p
WHERE stage.type = f.type AND stage.part = f.part AND stage.observed_at::DATE = f.day AND stage.log_offset < f.next
  AND p.topic = stage.topic AND p.part = stage.part AND stage.log_offset < p.next;

-- Only the days around a partition's new records are looked at, whatever the lake has grown to: copies have one key. The
-- engine takes the bounds of a join and skips what it holds of other days.
CREATE OR REPLACE TEMP TABLE staged AS
SELECT topic, part, min(observed_at) - INTERVAL 1 DAY AS since, max(observed_at) + INTERVAL 1 DAY AS until FROM stage GROUP BY ALL;
CREATE OR REPLACE TEMP VIEW around AS
SELECT e.topic, e.part, event_id, key, cap, scope_of(type, observed_at) AS scope
FROM event e JOIN staged s ON e.topic = s.topic AND e.part = s.part AND e.observed_at BETWEEN s.since AND s.until
UNION ALL
-- A copy of what left is a copy.
SELECT s.topic, l.part, event_id, NULL AS key, cap, DATE '1970-01-01' AS scope FROM left_id l JOIN staged s ON l.part = s.part;
-- Nearly none is a copy, and a look at numbers alone says so of most.
DELETE FROM stage WHERE rowid IN (
  SELECT unnest(list(rowid ORDER BY log_offset)[2:]) FROM stage
  WHERE hash(event_id) IN (SELECT hash(event_id) FROM stage GROUP BY ALL HAVING count(*) > 1)
  GROUP BY topic, part, event_id, coalesce(key, cap), scope_of(type, observed_at)
  UNION ALL
  SELECT s.rowid FROM around e JOIN stage s
    ON e.event_id = s.event_id AND e.topic = s.topic AND e.part = s.part AND e.scope = scope_of(s.type, s.observed_at)
  WHERE coalesce(e.key, e.cap) = coalesce(s.key, s.cap) AND hash(s.event_id) IN (SELECT hash(event_id) FROM around));

-- A commitment says nothing of its endpoint: it touches none.
CREATE OR REPLACE TEMP TABLE touched AS SELECT DISTINCT cap FROM stage WHERE topic <> 'asks' AND type <> 'paid.commitment';
CREATE OR REPLACE TEMP TABLE sampled AS SELECT obs_id, cap, t FROM samples LIMIT 0;

-- New handshakes, and probes of MCP tools. Those that a file of the archive holds (`filed`) count in the totals and are
-- no rows.
CREATE OR REPLACE TEMP TABLE probe AS
SELECT p.* EXCLUDE (body, says), coalesce(p.log_offset < f.next, FALSE) AS filed, says.slot.block, fault_of(says.fault, says.wall) AS fault, says.live, says.honest,
  says.latency_ms, micro_of(says.price) AS price_micro, says.pay_to, says.state, says.status, says.planned, says.url, says.method,
  says.terms, says.differs, says.signed_offers, asked_micro_of(says.terms.offers) AS asked_micro
FROM (SELECT *, from_json(body, '{"state": "VARCHAR", "status": "BIGINT", "live": "BOOLEAN", "honest": "BOOLEAN", "wall": "BOOLEAN", "fault": "VARCHAR",
    "latency_ms": "DOUBLE", "price": "VARCHAR", "pay_to": "VARCHAR", "planned": "VARCHAR", "url": "VARCHAR", "method": "VARCHAR",
    "slot": {"block": "INTEGER"}, "terms": {"protocols": ["VARCHAR"],
      "offers": [{"network": "VARCHAR", "asset": "VARCHAR", "payable": "BOOLEAN", "pay_to": "VARCHAR", "price": "VARCHAR"}], "defects": "JSON"}, "differs": "JSON",
    "signed_offers": {"present": "BIGINT", "unread": "BIGINT", "valid": "BIGINT", "authorised": "BIGINT"}}') AS says
  FROM stage WHERE is_probe(type)) p
LEFT JOIN filed f ON f.type = p.type AND f.part = p.part AND f.day = p.observed_at::DATE;

-- Of a probe's body the lake keeps what a sample takes; the other types are few, and whoever folds, settles or plans
-- reads their bodies again. In one statement: after two into one table in one transaction the engine (1.5.6) showed the
-- rows of neither until a checkpoint, when the first of them had no row.
INSERT INTO event BY NAME
SELECT * EXCLUDE (filed, state, status, planned, url, method, terms, differs, signed_offers) FROM probe WHERE NOT filed
UNION ALL BY NAME FROM stage WHERE NOT is_probe(type);
-- The ids of filed days that are here stay whole.
INSERT INTO left_id SELECT type, observed_at::DATE, part, event_id, cap FROM probe WHERE filed;
