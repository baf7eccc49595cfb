-- Bodies of probes are kept as the text that many share and what was cut out of it (pipelines/2-ingest/probe-cuts.ts):
-- how they are read.
-- grain: segment_rows = one record of the log; whole_body = one text; pieces_of = one list of texts
-- reads: a segment (Parquet file)
-- writes: segment_rows, whole_body, pieces_of (macros)
-- Rows of a segment or several as they were committed, whatever their time. Where a body was cut the others stand in `uncut`: who
-- knows nothing of cuts asks for `body`, finds no such column and stops, instead of taking a probe for an empty one.
CREATE OR REPLACE MACRO segment_rows(path) AS TABLE
SELECT * EXCLUDE (uncut) REPLACE (coalesce(body, uncut) AS body) FROM (
  SELECT NULL::VARCHAR AS body, NULL::VARCHAR AS uncut, NULL::VARCHAR AS shape, NULL::VARCHAR AS measured, NULL::INTEGER AS block,
    NULL::INTEGER AS minute, NULL::VARCHAR AS sha WHERE FALSE
  UNION ALL BY NAME FROM read_parquet(path, union_by_name = true));
-- pieces = the shape, split where something was cut out; sha = hex, null where the shape has none
CREATE OR REPLACE MACRO whole_body(body, pieces, measured, block, minute, sha) AS
  coalesce(body, concat(pieces[1], measured, pieces[2], block, pieces[3], minute, pieces[4], sha, pieces[5]));
CREATE OR REPLACE MACRO pieces_of(shape) AS string_split(shape, e'\x1f');
