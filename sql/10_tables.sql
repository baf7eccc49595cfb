-- What the log said, as loaded from the commit chain's segments, and how far each partition is loaded.
-- grain: loaded = one live segment; positions = one (topic, part); shape = one text that cut bodies share; every other table =
--   one record of the log, once
-- reads: nothing
-- writes: loaded, positions, shape, event, event_whole (a view), paid_intent, paid_result, settlement, paid_followup, commitment_open, listing, correction, reinstated, dispute, said

CREATE TABLE IF NOT EXISTS loaded (topic VARCHAR, part USMALLINT, file VARCHAR, rows BIGINT, PRIMARY KEY (topic, part, file));
-- Every offset below `next` is in a loaded segment, rejected, or in a hole that the chain admits.
CREATE TABLE IF NOT EXISTS positions (topic VARCHAR, part USMALLINT, next BIGINT, PRIMARY KEY (topic, part));

-- key = null where it is the cap, as it nearly always is; lakes from before say it twice.
-- scope = where a copy is looked for: the UTC day, or one constant day where the id names its planned slot already.
-- Trying every packing on every column was a sixth of a load's CPU. What is named here is tried alone: where it does not
-- fit, the engine stores the column as it is.
CREATE TABLE IF NOT EXISTS event (
  event_id VARCHAR USING COMPRESSION uncompressed, type VARCHAR,
  key VARCHAR, cap VARCHAR,
  topic VARCHAR, part USMALLINT, log_offset BIGINT USING COMPRESSION bitpacking, scope DATE,
  observed_at TIMESTAMP USING COMPRESSION bitpacking, appended_at TIMESTAMP USING COMPRESSION bitpacking,
  producer VARCHAR, v USMALLINT, body VARCHAR,
  extra VARCHAR, shape BIGINT USING COMPRESSION bitpacking,
  measured VARCHAR, block INTEGER USING COMPRESSION bitpacking,
  minute INTEGER USING COMPRESSION bitpacking, sha BLOB USING COMPRESSION uncompressed);
-- The body of a probe is null where it is cut (pipelines/2-ingest/probe-cuts.ts): then it is the text of its shape with these
-- in the places of the cuts. Lakes from before have whole bodies; both kinds stand beside each other.
ALTER TABLE event ADD COLUMN IF NOT EXISTS shape BIGINT;
ALTER TABLE event ADD COLUMN IF NOT EXISTS measured VARCHAR;
ALTER TABLE event ADD COLUMN IF NOT EXISTS block INTEGER;
ALTER TABLE event ADD COLUMN IF NOT EXISTS minute INTEGER;
ALTER TABLE event ADD COLUMN IF NOT EXISTS sha BLOB;
-- name = sha256 of the text; behind it what the text says of an exchange, for 20_samples. `live` is null where nobody has read it yet.
CREATE TABLE IF NOT EXISTS shape (
  id BIGINT USING COMPRESSION bitpacking, name BLOB USING COMPRESSION uncompressed, text VARCHAR,
  fault VARCHAR, live BOOLEAN, honest BOOLEAN, price_micro BIGINT, pay_to VARCHAR);
ALTER TABLE shape ADD COLUMN IF NOT EXISTS fault VARCHAR;
ALTER TABLE shape ADD COLUMN IF NOT EXISTS live BOOLEAN;
ALTER TABLE shape ADD COLUMN IF NOT EXISTS honest BOOLEAN;
ALTER TABLE shape ADD COLUMN IF NOT EXISTS price_micro BIGINT;
ALTER TABLE shape ADD COLUMN IF NOT EXISTS pay_to VARCHAR;
-- Records with their bodies, for those who read probes; whoever asks for other types finds whole bodies in `event` itself.
CREATE OR REPLACE VIEW event_whole AS
SELECT e.* REPLACE (whole_body(e.body, s.pieces, e.measured, e.block, e.minute, lower(hex(e.sha))) AS body)
FROM event e LEFT JOIN (SELECT id, pieces_of(text) AS pieces FROM shape) s ON s.id = e.shape;

CREATE TABLE IF NOT EXISTS paid_intent (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, slot_block INTEGER, w DOUBLE, input VARCHAR, url VARCHAR, price_micro BIGINT,
  pay_to VARCHAR, valid_before BIGINT, leg_honest BOOLEAN);
CREATE TABLE IF NOT EXISTS paid_result (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, intent VARCHAR, watched BOOLEAN, fault VARCHAR, live BOOLEAN, honest BOOLEAN,
  delivered BOOLEAN, delivery DOUBLE, outcome DOUBLE, schema_ok BOOLEAN, latency_ms DOUBLE, response_sha256 VARCHAR);
CREATE TABLE IF NOT EXISTS settlement (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, intent VARCHAR, final BOOLEAN, as_quoted BOOLEAN);
CREATE TABLE IF NOT EXISTS paid_followup (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, intent VARCHAR, kind VARCHAR, watched BOOLEAN,
  delivered BOOLEAN, delivery DOUBLE, outcome DOUBLE, schema_ok BOOLEAN, latency_ms DOUBLE, response_sha256 VARCHAR);
-- Commitments that the tree was not seen to hold yet: what it holds leaves this table, so that it stays short.
CREATE TABLE IF NOT EXISTS commitment_open (cap VARCHAR, t TIMESTAMP, sha256 VARCHAR);

CREATE TABLE IF NOT EXISTS listing (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, log_offset BIGINT, source VARCHAR, source_id VARCHAR, gone BOOLEAN,
  seller_controlled BOOLEAN, claims VARCHAR, defects VARCHAR);

CREATE TABLE IF NOT EXISTS correction (
  event_id VARCHAR, cap VARCHAR, t TIMESTAMP, id VARCHAR, record_id VARCHAR, fault VARCHAR, issued_at TIMESTAMP);
CREATE TABLE IF NOT EXISTS reinstated (event_id VARCHAR, cap VARCHAR, t TIMESTAMP, correction VARCHAR);
CREATE TABLE IF NOT EXISTS dispute (event_id VARCHAR, cap VARCHAR, t TIMESTAMP, id VARCHAR, record_id VARCHAR);
-- All three of them as they were said, for the tree and for what serving shows before it: few, so a look at them is cheap.
CREATE TABLE IF NOT EXISTS said (
  event_id VARCHAR, type VARCHAR, cap VARCHAR, part USMALLINT, log_offset BIGINT, t TIMESTAMP, body VARCHAR);
