-- What left the lake for the archive, by position, and what it takes to know a copy of it.
-- grain: archived = one manifest and partition that were followed, removed = rows that left this lake with the manifest's whole
--   group of files (null: the partition was loaded after they had been filed); filed (a view) = one (type, UTC day, partition):
--   rows at an offset below `next` are in files; left_id = one record that is in a file, of the days of left_day and no other
-- reads: nothing
-- writes: archived, filed, left_id, left_day
CREATE TABLE IF NOT EXISTS archived (
  arc_id VARCHAR, type VARCHAR, day DATE, part USMALLINT, next BIGINT, removed BIGINT, PRIMARY KEY (arc_id, part));
CREATE OR REPLACE VIEW filed AS SELECT type, day, part, max(next) AS next FROM archived GROUP BY ALL;
CREATE TABLE IF NOT EXISTS left_id (type VARCHAR, day DATE, part USMALLINT, event_id VARCHAR, cap VARCHAR);
CREATE TABLE IF NOT EXISTS left_day (type VARCHAR, day DATE, part USMALLINT);
