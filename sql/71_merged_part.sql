-- The lines of one partition's file, each as it stands there: a delimiter that no line holds, and no quotes.
-- grain: one line
-- reads: $path (text file)
-- writes: temp archive_merged
INSERT INTO archive_merged
SELECT line->>'$.capability_id', line->>'$.record_id', line FROM read_csv($path, columns = {line: 'VARCHAR'}, auto_detect = false,
  header = false, delim = e'\x01', quote = '', escape = '', comment = '', nullstr = e'\x02', strict_mode = true, max_line_size = 16777216)
