-- Samples and what hangs on them: the tables that grading, memory and the volatile table read.
-- grain: samples, every_sample = one exchange (kind 0 handshake, 1 paid call of ours, 2 kept for buyers' published calls);
--   samples has no handshake whose body is cut; withdrawn = one sample that does not count; withdrawal = the same with the earliest correction in force; site, endpoint, seen = one
--   capability; quoted = one price of one capability; dirty = one capability with news since the last grade
-- reads: event, shape
-- writes: samples, every_sample (a view), withdrawn, withdrawal, site, dirty, endpoint, seen, quoted, correction_in_force (a view)
CREATE TABLE IF NOT EXISTS samples (
  cap VARCHAR, obs_id VARCHAR USING COMPRESSION uncompressed, t TIMESTAMP USING COMPRESSION bitpacking,
  kind UTINYINT, payer VARCHAR, w DOUBLE, fault VARCHAR, live BOOLEAN, honest BOOLEAN,
  settled BOOLEAN, delivered BOOLEAN, refunded BOOLEAN, delivery DOUBLE, outcome DOUBLE, schema_ok BOOLEAN, latency_ms DOUBLE,
  price DOUBLE, input VARCHAR, response_sha256 VARCHAR, pay_to VARCHAR);
-- Lakes from before have cut handshakes in it as well: those leave it once, when what their shapes say is read.
CREATE OR REPLACE TEMP TABLE unread AS SELECT id, probe_says(shape_text(text)) AS says FROM shape WHERE live IS NULL;
DELETE FROM samples WHERE kind = 0 AND obs_id IN (SELECT event_id FROM event JOIN unread ON unread.id = event.shape);
UPDATE shape SET fault = f.fault, live = f.live, honest = f.honest, price_micro = f.price_micro, pay_to = f.pay_to
FROM (SELECT id AS number, unnest(probe_facts(says)) FROM unread) f WHERE f.number = shape.id;
DROP TABLE unread;
-- A sample of a cut handshake is its event and what its shape says: written down it would be a third of a load's CPU and half
-- of a lake. row = one number for each, as long as none is deleted.
CREATE OR REPLACE VIEW every_sample AS
SELECT rowid AS row, * FROM samples
UNION ALL
SELECT -1 - e.rowid AS row, e.cap, e.event_id, e.observed_at, 0::UTINYINT, NULL, 1.0::DOUBLE, s.fault, s.live, s.honest,
  FALSE, NULL, FALSE, NULL, NULL, NULL,
  -- Of a tool's two times the second one: what connecting took is not its own.
  CASE WHEN e.type = 'handshake' THEN TRY_CAST(e.measured AS DOUBLE) ELSE TRY_CAST(string_split(e.measured, ':')[-1] AS DOUBLE) END,
  s.price_micro / 1e6, NULL, NULL, s.pay_to
FROM event e JOIN shape s ON s.id = e.shape;
CREATE TABLE IF NOT EXISTS withdrawn (obs_id VARCHAR);
CREATE TABLE IF NOT EXISTS withdrawal (obs_id VARCHAR, cap VARCHAR, issued_at TIMESTAMP);
CREATE TABLE IF NOT EXISTS site (cap VARCHAR, pay_to VARCHAR, domain VARCHAR, ours BOOLEAN, disputed BOOLEAN);
CREATE TABLE IF NOT EXISTS dirty (cap VARCHAR);

-- Where a capability lives. A cap is the hash of it, so a row never changes.
CREATE TABLE IF NOT EXISTS endpoint (cap VARCHAR, url VARCHAR, method VARCHAR, tool VARCHAR, host VARCHAR, domain VARCHAR, ours BOOLEAN);
-- Counts since the first handshake ever, and the newest 402: totals, so that rows may leave for the archive.
CREATE TABLE IF NOT EXISTS seen (
  cap VARCHAR, probes BIGINT, answered BIGINT, asked BIGINT, first_seen TIMESTAMP, last_seen TIMESTAMP, paid_calls BIGINT,
  terms_t TIMESTAMP, terms_id VARCHAR, price_micro BIGINT, pay_to VARCHAR,
  offers STRUCT(network VARCHAR, asset VARCHAR, payable BOOLEAN)[], protocols VARCHAR[], terms_defects VARCHAR, differs VARCHAR);
CREATE TABLE IF NOT EXISTS quoted (cap VARCHAR, price_micro BIGINT, PRIMARY KEY (cap, price_micro));

-- A correction counts until a reinstatement names it. Several corrections may withdraw one record.
CREATE OR REPLACE VIEW correction_in_force AS
SELECT c.* FROM correction c ANTI JOIN reinstated r ON r.cap = c.cap AND r.correction = c.id;
