-- The same lines in their order, as the owner of all partitions would have written them.
-- grain: one line; at most $most after ($cap, $id)
-- reads: temp archive_merged
-- writes: $path (text file)
COPY (SELECT line FROM archive_merged WHERE cap > $cap OR cap = $cap AND event_id > $id ORDER BY cap, event_id LIMIT $most)
TO ($path) (FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER e'\x01')
