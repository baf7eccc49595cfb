-- What the lake has of one partition.
-- grain: one loaded file; one row without a file where there is none
-- reads: loaded, positions
-- writes: nothing
SELECT l.file, p.next FROM (SELECT (SELECT next FROM positions WHERE topic = $topic AND part = $part) AS next) p
LEFT JOIN (SELECT file FROM loaded WHERE topic = $topic AND part = $part) l ON TRUE
