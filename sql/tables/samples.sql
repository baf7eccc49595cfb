-- Samples and what hangs on them: the tables that grading, memory and the volatile table read.
-- grain: every_sample = one exchange (kind 0 probe, 1 paid call of ours, 2 call that a buyer published); samples = the same
--   without probes; withdrawn = one sample that does not count; withdrawal = the same with the earliest correction in force;
--   site, endpoint, seen = one capability; quoted = one price of one capability; payee = one address of one capability;
--   dirty, stale = one capability with news since the last grade, or since its volatile row was taken
-- reads: event
-- writes: samples, every_sample (a view), withdrawn, withdrawal, site, dirty, stale, endpoint, seen, quoted, payee,
--   correction_in_force (a view)
-- price = of the offer that our rail would pay; asked_micro = of the first offer that can be read, whoever could pay it.
CREATE TABLE IF NOT EXISTS samples (
  cap VARCHAR, obs_id VARCHAR USING COMPRESSION uncompressed, t TIMESTAMP USING COMPRESSION bitpacking,
  kind UTINYINT, payer VARCHAR, w DOUBLE, fault VARCHAR, live BOOLEAN, honest BOOLEAN,
  settled BOOLEAN, delivered BOOLEAN, refunded BOOLEAN, delivery DOUBLE, outcome DOUBLE, schema_ok BOOLEAN, latency_ms DOUBLE,
  price DOUBLE, input VARCHAR, response_sha256 VARCHAR, pay_to VARCHAR, asked_micro BIGINT);
-- A probe's sample is its event: written down once more it would be half of a lake. row = one number for each, as long as none
-- is deleted.
CREATE OR REPLACE VIEW every_sample AS
SELECT rowid AS row, * FROM samples
UNION ALL
SELECT -1 - rowid AS row, cap, event_id, observed_at, 0::UTINYINT, NULL, 1.0::DOUBLE, fault, live, honest,
  FALSE, NULL, FALSE, NULL, NULL, NULL, latency_ms, price_micro / 1e6, NULL, NULL, pay_to, asked_micro
FROM event WHERE is_probe(type);
CREATE TABLE IF NOT EXISTS withdrawn (obs_id VARCHAR);
CREATE TABLE IF NOT EXISTS withdrawal (obs_id VARCHAR, cap VARCHAR, issued_at TIMESTAMP);
-- cap and terms_id of the tables of endpoints are stored as they are: trying to pack texts that differ in every row, at each
-- checkpoint, was a fifth of the CPU of a load.
CREATE TABLE IF NOT EXISTS site (cap VARCHAR USING COMPRESSION uncompressed, pay_to VARCHAR, domain VARCHAR, ours BOOLEAN, disputed BOOLEAN);
CREATE TABLE IF NOT EXISTS dirty (cap VARCHAR USING COMPRESSION uncompressed);
-- A lake that is loaded anew has all of them here.
CREATE TABLE IF NOT EXISTS stale (cap VARCHAR USING COMPRESSION uncompressed);

-- Where a capability lives. A cap is the hash of it, so a row never changes.
CREATE TABLE IF NOT EXISTS endpoint (cap VARCHAR, url VARCHAR, method VARCHAR, tool VARCHAR, host VARCHAR, domain VARCHAR, platform VARCHAR, ours BOOLEAN);
-- Counts since the first handshake ever, the newest paid call that was tried (paid or not), and the newest 402: totals,
-- so that rows may leave for the archive.
CREATE TABLE IF NOT EXISTS seen (
  cap VARCHAR USING COMPRESSION uncompressed, probes BIGINT, answered BIGINT, asked BIGINT, first_seen TIMESTAMP, last_seen TIMESTAMP, paid_calls BIGINT,
  terms_t TIMESTAMP, terms_id VARCHAR USING COMPRESSION uncompressed, price_micro BIGINT, pay_to VARCHAR,
  offers STRUCT(network VARCHAR, asset VARCHAR, payable BOOLEAN, pay_to VARCHAR, price VARCHAR)[], protocols VARCHAR[], terms_defects VARCHAR, differs VARCHAR, last_tried TIMESTAMP);
CREATE TABLE IF NOT EXISTS quoted (cap VARCHAR USING COMPRESSION uncompressed, asked_micro BIGINT);
-- t = the newest 402 that named it, in any offer. So many of an endpoint, those seen last (samples/seen).
CREATE TABLE IF NOT EXISTS payee (cap VARCHAR USING COMPRESSION uncompressed, pay_to VARCHAR, t TIMESTAMP);

-- A correction counts until a reinstatement names it. Several corrections may withdraw one record.
CREATE OR REPLACE VIEW correction_in_force AS
SELECT c.* FROM correction c ANTI JOIN reinstated r ON r.cap = c.cap AND r.correction = c.id;
