-- Which rows were moved from the lake to the archive, by their positions in the log, and the ids by which a copy of an
-- archived row is recognised.
-- grain: archived = one manifest applied to one partition, removed = rows that it and the other manifests of its type, day
--   and positions removed from this lake (null: the partition was loaded after the rows had been archived);
--   filed (a view) = one (type, UTC day, partition): its rows at offsets below `next` are in archive files;
--   left_id = one archived record of a day in left_day
-- reads: nothing
-- writes: archived, filed, left_id, left_day
CREATE TABLE IF NOT EXISTS archived (
  arc_id VARCHAR, type VARCHAR, day DATE, part USMALLINT, next BIGINT, removed BIGINT, PRIMARY KEY (arc_id, part));
CREATE OR REPLACE VIEW filed AS SELECT type, day, part, max(next) AS next FROM archived GROUP BY ALL;
CREATE TABLE IF NOT EXISTS left_id (type VARCHAR, day DATE, part USMALLINT, event_id VARCHAR, cap VARCHAR);
CREATE TABLE IF NOT EXISTS left_day (type VARCHAR, day DATE, part USMALLINT);
