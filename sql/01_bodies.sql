-- Bodies of probes are kept as the text that many share and what was cut out of it (pipelines/2-ingest/probe-cuts.ts):
-- how they are read.
-- grain: segment_rows = one record of the log; whole_body, shape_text = one text; pieces_of = one list of texts; probe_says,
--   probe_facts = one struct
-- reads: a segment (Parquet file)
-- writes: segment_rows, whole_body, pieces_of, shape_text, probe_says, probe_facts (macros)
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
-- A shape as JSON, with nulls and zeros in the places of the cuts.
CREATE OR REPLACE MACRO shape_text(shape) AS whole_body(NULL, pieces_of(shape), 'null', 0, 0, '');
CREATE OR REPLACE MACRO probe_says(body) AS
  from_json(body, '{"state": "VARCHAR", "live": "BOOLEAN", "honest": "BOOLEAN", "wall": "BOOLEAN", "fault": "VARCHAR",
    "latency_ms": "DOUBLE", "price": "VARCHAR", "pay_to": "VARCHAR", "planned": "VARCHAR", "url": "VARCHAR", "method": "VARCHAR",
    "terms": {"protocols": ["VARCHAR"], "offers": [{"network": "VARCHAR", "asset": "VARCHAR", "payable": "BOOLEAN"}],
      "defects": "JSON"}, "differs": "JSON"}');
-- What a sample takes of it; says = a column. Money has six decimals, always: without the dot it is micro-units.
CREATE OR REPLACE MACRO probe_facts(says) AS
  {fault: coalesce(says.fault, CASE WHEN says.wall THEN 'blocked' END), live: says.live, honest: says.honest,
    price_micro: replace(says.price, '.', '')::BIGINT, pay_to: says.pay_to};
