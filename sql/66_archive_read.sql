-- Ids of a file of the archive, as it was read back and unpacked.
-- grain: one line
-- reads: the file named by the variable archive_path
-- writes: temp archive_ids
CREATE OR REPLACE TEMP TABLE archive_ids AS
SELECT record_id, capability_id, observed_at FROM read_json(getvariable('archive_path'), format = 'newline_delimited',
  maximum_object_size = 16777216, columns = {record_id: 'VARCHAR', capability_id: 'VARCHAR', observed_at: 'TIMESTAMP'});
