-- Rows that stand where those of a file stood when it was made, in partitions that have not followed its manifest yet.
-- grain: one record of the log; place = of the row in its table, as long as this transaction
-- reads: temp archive_source, temp archive_parts; rows from ($first_cap, $first_id) to ($last_cap, $last_id), inclusive
-- writes: temp archive_here
CREATE OR REPLACE TEMP TABLE archive_here AS
SELECT place, part, event_id FROM archive_source JOIN archive_parts USING (part)
WHERE (cap > $first_cap OR cap = $first_cap AND event_id >= $first_id) AND (cap < $last_cap OR cap = $last_cap AND event_id <= $last_id)
