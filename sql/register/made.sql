-- name: columns
-- Names of the columns in the header of a CSV file. The import recognises by them, before it reads the file, what kind
-- of file it is.
-- grain: one column, in the order of the file
-- reads: $file
-- writes: nothing
SELECT column_name AS name FROM (DESCRIBE SELECT * FROM read_csv($file, header = TRUE, all_varchar = TRUE, delim = ',', quote = '"',
  escape = '"', sample_size = 20, ignore_errors = TRUE));

-- name: write
-- Records from which files the register was made. This row is written last, so a register file without it is
-- incomplete.
-- grain: one register
-- reads: company, name, domain; $form, $source, $imported_at, $rows_read, $relations and $exceptions (null: no such file was read)
-- writes: made
CREATE TABLE made AS
SELECT $form::INTEGER AS form, $source::VARCHAR AS source, $imported_at::VARCHAR AS imported_at, $rows_read::INTEGER AS rows_read,
  (SELECT count(*) FROM company)::INTEGER AS companies, (SELECT count(*) FROM name)::INTEGER AS names,
  (SELECT count(*) FROM domain)::INTEGER AS domains, $relations::INTEGER AS relations, $exceptions::INTEGER AS exceptions,
  (SELECT strftime(max(updated), '%Y-%m-%dT%H:%M:%SZ') FROM company) AS newest_update;

-- name: read
-- The row that records from which files an open register was made.
-- grain: one register
-- reads: made
-- writes: nothing
SELECT * FROM made;
