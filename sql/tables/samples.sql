-- Samples (facts of one exchange with an endpoint, from which grades are computed) and the tables derived with them,
-- which grading, the planner and the volatile tables read.
-- grain: every_sample = one exchange (kind 0 probe, 1 paid call of ours, 2 call that a buyer published); samples = one exchange
--   that is no probe; withdrawn = one sample that a correction withdrew; withdrawal = one withdrawn sample, with the time of the
--   earliest correction in force; site, endpoint, seen = one capability; quoted = one price of one capability; payee = one
--   address of one capability; dirty, stale = one capability with new records since it was last graded, or since its volatile
--   row was made
-- reads: event, correction, reinstated
-- writes: samples, every_sample (a view), withdrawn, withdrawal, site, dirty, stale, endpoint, seen, quoted, payee,
--   correction_in_force (a view)
-- price = price of the offer that we would pay; asked_micro = price of the first readable offer, even if we cannot pay
-- it.
CREATE TABLE IF NOT EXISTS samples (
  cap VARCHAR, obs_id VARCHAR USING COMPRESSION uncompressed, t TIMESTAMP USING COMPRESSION bitpacking,
  kind UTINYINT, payer VARCHAR, w DOUBLE, fault VARCHAR, live BOOLEAN, honest BOOLEAN,
  settled BOOLEAN, delivered BOOLEAN, refunded BOOLEAN, delivery DOUBLE, outcome DOUBLE, schema_ok BOOLEAN, latency_ms DOUBLE,
  price DOUBLE, input VARCHAR, response_sha256 VARCHAR, pay_to VARCHAR, asked_micro BIGINT);
-- The samples of probes are read from `event`: if they were stored here too, they would be half of the lake. row = a
-- number that is unique as long as no row is deleted.
CREATE OR REPLACE VIEW every_sample AS
SELECT rowid AS row, * FROM samples
UNION ALL
SELECT -1 - rowid AS row, cap, event_id, observed_at, 0::UTINYINT, NULL, 1.0::DOUBLE, fault, live, honest,
  FALSE, NULL, FALSE, NULL, NULL, NULL, latency_ms, price_micro / 1e6, NULL, NULL, pay_to, asked_micro
FROM event WHERE is_probe(type);
CREATE TABLE IF NOT EXISTS withdrawn (obs_id VARCHAR);
CREATE TABLE IF NOT EXISTS withdrawal (obs_id VARCHAR, cap VARCHAR, issued_at TIMESTAMP);
-- In the tables with one row for each endpoint, cap and terms_id are stored uncompressed: they differ in every row,
-- and trying to compress them at each checkpoint took a fifth of a load's CPU time.
CREATE TABLE IF NOT EXISTS site (cap VARCHAR USING COMPRESSION uncompressed, pay_to VARCHAR, domain VARCHAR, ours BOOLEAN, disputed BOOLEAN);
CREATE TABLE IF NOT EXISTS dirty (cap VARCHAR USING COMPRESSION uncompressed);
-- After a lake is rebuilt, this table contains every capability.
CREATE TABLE IF NOT EXISTS stale (cap VARCHAR USING COMPRESSION uncompressed);

-- The url, the method and the tool of a capability. Its id `cap` is a hash of these, so a row never changes.
CREATE TABLE IF NOT EXISTS endpoint (cap VARCHAR, url VARCHAR, method VARCHAR, tool VARCHAR, host VARCHAR, domain VARCHAR, platform VARCHAR, ours BOOLEAN);
-- Counts since the first handshake, the time of the newest paid call that was tried (paid or not), and the newest 402.
-- The totals are stored, so that they stay when the rows that they count move to the archive.
CREATE TABLE IF NOT EXISTS seen (
  cap VARCHAR USING COMPRESSION uncompressed, probes BIGINT, answered BIGINT, asked BIGINT, first_seen TIMESTAMP, last_seen TIMESTAMP, paid_calls BIGINT,
  terms_t TIMESTAMP, terms_id VARCHAR USING COMPRESSION uncompressed, price_micro BIGINT, pay_to VARCHAR,
  offers STRUCT(network VARCHAR, asset VARCHAR, payable BOOLEAN, pay_to VARCHAR, price VARCHAR)[], protocols VARCHAR[], terms_defects VARCHAR, differs VARCHAR, last_tried TIMESTAMP);
CREATE TABLE IF NOT EXISTS quoted (cap VARCHAR USING COMPRESSION uncompressed, asked_micro BIGINT);
-- t = time of the newest 402 with this address in any offer. Only the addresses that were seen last are stored
-- (samples/seen).
CREATE TABLE IF NOT EXISTS payee (cap VARCHAR USING COMPRESSION uncompressed, pay_to VARCHAR, t TIMESTAMP);

-- The corrections that count: a correction counts until a reinstatement names it. Several corrections may withdraw one
-- record.
CREATE OR REPLACE VIEW correction_in_force AS
SELECT c.* FROM correction c ANTI JOIN reinstated r ON r.cap = c.cap AND r.correction = c.id;
