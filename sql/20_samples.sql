-- Samples and what hangs on them: the tables that grading, memory and the volatile table read.
-- grain: samples = one exchange (kind 0 handshake, 1 paid call of ours, 2 kept for buyers' published calls); withdrawn = one
--   sample that does not count; withdrawal = the same with the earliest correction in force; site, endpoint, seen = one
--   capability; quoted = one price of one capability; dirty = one capability with news since the last grade
-- reads: nothing
-- writes: samples, withdrawn, withdrawal, site, dirty, endpoint, seen, quoted
CREATE TABLE IF NOT EXISTS samples (
  cap VARCHAR USING COMPRESSION dictionary, obs_id VARCHAR USING COMPRESSION uncompressed, t TIMESTAMP USING COMPRESSION bitpacking,
  kind UTINYINT, payer VARCHAR, w DOUBLE, fault VARCHAR, live BOOLEAN, honest BOOLEAN,
  settled BOOLEAN, delivered BOOLEAN, refunded BOOLEAN, delivery DOUBLE, outcome DOUBLE, schema_ok BOOLEAN, latency_ms DOUBLE,
  price DOUBLE, input VARCHAR, response_sha256 VARCHAR, pay_to VARCHAR);
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
