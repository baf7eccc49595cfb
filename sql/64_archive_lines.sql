-- Lines of the archive (records.md, Archive rows): RFC 8785 text, members by their names.
-- grain: one record of the log
-- reads: temp archive_source; the variable archive_tool: are these probes of MCP tools?
-- writes: temp archive_lines; a line that holds \u00 is made again outside: control characters and a few numbers are not
--   printed the same way here and in RFC 8785
CREATE OR REPLACE TEMP MACRO archive_number(x) AS CASE WHEN x IS NULL THEN 'null' WHEN abs(x) >= 1e15 THEN '\u00'
  WHEN x = floor(x) THEN x::BIGINT::VARCHAR WHEN abs(x) >= 1e-4 THEN x::VARCHAR ELSE '\u00' END;
CREATE OR REPLACE TEMP MACRO archive_text(x) AS coalesce(to_json(x)::VARCHAR, 'null');
CREATE OR REPLACE TEMP TABLE archive_lines AS
WITH read AS (
  SELECT event_id, cap, observed_at, from_json(body, '{"state": "VARCHAR", "wall": "BOOLEAN", "fault": "VARCHAR",
    "status": "BIGINT", "latency_ms": "DOUBLE", "price": "VARCHAR", "terms": {"sha256": "VARCHAR", "protocols": ["VARCHAR"],
    "offers": [{"network": "VARCHAR", "asset": "VARCHAR", "payable": "BOOLEAN"}]},
    "initialize_ms": "DOUBLE", "tool": "VARCHAR", "tool_present": "BOOLEAN"}') AS b
  FROM archive_source),
 known AS (
  SELECT event_id, cap, observed_at, b, b.terms.offers AS offers, coalesce(b.fault, CASE WHEN b.wall THEN 'blocked' END) AS fault
  FROM read)
SELECT cap, event_id, concat('{"amount":', archive_text(b.price),
  ',"asset":', archive_text(coalesce(list_filter(offers, lambda o: o.payable)[1].asset, offers[1].asset)),
  ',"capability_id":', archive_text(cap), ',"counts":', CASE WHEN fault IS NULL OR fault = 'blocked' THEN 'true' ELSE 'false' END,
  ',"fault":', archive_text(fault),
  CASE WHEN getvariable('archive_tool') THEN concat(',"initialize_ms":', archive_number(b.initialize_ms)) END,
  ',"latency_ms":', archive_number(b.latency_ms),
  ',"networks":', coalesce(to_json(list_sort(list_distinct(list_transform(offers, lambda o: o.network))))::VARCHAR, '[]'),
  ',"observed_at":"', strftime(observed_at, '%Y-%m-%dT%H:%M:%S.%gZ'),
  '","protocols":', coalesce(to_json(b.terms.protocols)::VARCHAR, '[]'), ',"record_id":"', event_id,
  '","state":', archive_text(b.state), ',"status":', coalesce(b.status::VARCHAR, 'null'),
  ',"terms_sha256":', archive_text(b.terms.sha256),
  CASE WHEN getvariable('archive_tool') THEN concat(',"tool":', archive_text(b.tool),
    ',"tool_present":', coalesce(b.tool_present::VARCHAR, 'null')) END, '}') AS line
FROM known;
