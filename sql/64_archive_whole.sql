-- What all lines together have to be, counted where the rows came from, whether some have to be made outside, and the place
-- of the first: rows that are not committed yet are numbered from somewhere high.
-- grain: one row
-- reads: temp archive_source, temp archive_lines
-- writes: nothing
SELECT count(*)::DOUBLE AS rows, coalesce(bit_xor(md5_number(event_id)), 0)::VARCHAR AS digest,
  (SELECT count(*) FROM archive_lines WHERE contains(line, '\u00'))::DOUBLE AS odd, (SELECT min(rowid) FROM archive_lines) AS base FROM archive_source
