-- A piece of a file as one text. Counted in the lines themselves: a row counts when its line tells its id and its day.
-- grain: one row; digest = of the ids, knowing no order
-- reads: temp archive_lines; rows $first to $next, exclusive; the variable archive_day
-- writes: nothing
SELECT encode(string_agg(line, '' ORDER BY cap, event_id)) AS text, count_if(told)::DOUBLE AS rows,
  coalesce(bit_xor(md5_number(event_id)) FILTER (told), 0)::VARCHAR AS digest,
  min({cap: cap, id: event_id}) AS first, max({cap: cap, id: event_id}) AS last
FROM (SELECT *, contains(line, concat(',"record_id":"', event_id, '","state":'))
  AND contains(line, concat(',"observed_at":"', getvariable('archive_day'), 'T')) AS told
  FROM archive_lines WHERE rowid >= $first AND rowid < $next)
