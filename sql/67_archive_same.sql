-- Rows that stand where those of a file stood when it was made, in partitions that have not followed its manifest yet.
-- grain: one record of the log
-- reads: temp archive_source, temp archive_parts; the variable archive_between, a JSON object {first_cap, first_id, last_cap,
--   last_id}: where the file begins and ends, inclusive
-- writes: temp archive_span, temp archive_owed
CREATE OR REPLACE TEMP VIEW archive_span AS
SELECT unnest(from_json(getvariable('archive_between'),
  '{"first_cap": "VARCHAR", "first_id": "VARCHAR", "last_cap": "VARCHAR", "last_id": "VARCHAR"}'));
-- A view: to write down a million ids takes longer than to look at them again.
CREATE OR REPLACE TEMP VIEW archive_owed AS
SELECT event_id AS record_id, part FROM archive_source JOIN archive_parts USING (part), archive_span
WHERE (cap > first_cap OR cap = first_cap AND event_id >= first_id) AND (cap < last_cap OR cap = last_cap AND event_id <= last_id)
