-- What left the lake for the archive, and the waiting room of records that come for days that were archived.
-- grain: archived = one manifest and partition, with the rows that it took out of this lake; archived_day = one (type, UTC day); late = one
--   record of which it is not known yet whether a file of its day holds it
-- reads: nothing
-- writes: archived, archived_day, late
CREATE TABLE IF NOT EXISTS archived (arc_id VARCHAR, part USMALLINT, removed BIGINT, PRIMARY KEY (arc_id, part));
CREATE TABLE IF NOT EXISTS archived_day (type VARCHAR, day DATE, PRIMARY KEY (type, day));
CREATE TABLE IF NOT EXISTS late (
  event_id VARCHAR, type VARCHAR, key VARCHAR, cap VARCHAR, topic VARCHAR, part USMALLINT, log_offset BIGINT, scope DATE,
  observed_at TIMESTAMP, appended_at TIMESTAMP, producer VARCHAR, v USMALLINT, body VARCHAR, extra VARCHAR);
ALTER TABLE late ADD COLUMN IF NOT EXISTS shape BIGINT;
ALTER TABLE late ADD COLUMN IF NOT EXISTS measured VARCHAR;
ALTER TABLE late ADD COLUMN IF NOT EXISTS block INTEGER;
ALTER TABLE late ADD COLUMN IF NOT EXISTS minute INTEGER;
ALTER TABLE late ADD COLUMN IF NOT EXISTS sha BLOB;
