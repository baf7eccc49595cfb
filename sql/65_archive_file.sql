-- The next lines in the order of their file: by capability, then by record.
-- grain: one record; at most $most after ($cap, $id)
-- reads: temp archive_lines
-- writes: $path (a text file: a delimiter that no line holds, and no quotes, leave each line as it is)
COPY (SELECT line FROM archive_lines WHERE (cap > $cap OR cap = $cap AND event_id > $id) ORDER BY cap, event_id LIMIT $most)
TO ($path) (FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER e'\x01')
