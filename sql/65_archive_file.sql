-- Length of the next file in bytes, and ids that would be in it more than once, which must be none.
-- grain: one row
-- reads: temp archive_lines; rows $first to $next, exclusive
-- writes: nothing
SELECT sum(strlen(line))::DOUBLE AS bytes, (count(*) - count(DISTINCT event_id))::DOUBLE AS twice
FROM archive_lines WHERE rowid >= $first AND rowid < $next
