-- Lines of the archive (records.md, Archive rows): RFC 8785 text with its newline, members by their names, in the order of
-- their file. Members are cut out of the body as they stand there, one reading for all; only numbers, and the offers of a 402
-- that has several, are read for what they mean.
-- grain: one record of the log
-- reads: temp archive_source; the variable archive_tool: are these probes of MCP tools?
-- writes: temp archive_lines; a line that holds \u00 is made again outside: control characters and a few numbers are not
--   printed the same way here and in RFC 8785
CREATE OR REPLACE TEMP MACRO archive_printed(x) AS CASE WHEN x IS NULL THEN 'null' WHEN abs(x) >= 1e15 THEN '\u00'
  WHEN x = floor(x) THEN x::BIGINT::VARCHAR WHEN abs(x) >= 1e-4 THEN x::VARCHAR ELSE '\u00' END;
CREATE OR REPLACE TEMP MACRO archive_number(text) AS archive_printed(CASE WHEN text <> 'null' THEN text::DOUBLE END);
CREATE OR REPLACE TEMP MACRO archive_text(x) AS coalesce(to_json(x)::VARCHAR, 'null');
CREATE OR REPLACE TEMP MACRO archive_offers(body) AS
  from_json(json_extract(body, '$.terms.offers'), '[{"network": "VARCHAR", "asset": "VARCHAR", "payable": "BOOLEAN"}]');
CREATE OR REPLACE TEMP TABLE archive_lines AS
WITH cut AS (
  SELECT cap, event_id, observed_at, body, json_extract(body, ['$.state', '$.status', '$.latency_ms', '$.price', '$.wall',
    '$.fault', '$.terms.sha256', '$.terms.protocols', '$.terms.offers[0].network', '$.terms.offers[0].asset',
    '$.terms.offers[1].network', '$.initialize_ms', '$.tool', '$.tool_present'])::VARCHAR[] AS x
  FROM archive_source),
 known AS (
  SELECT cap, event_id, observed_at, body, x, x[11] IS NOT NULL AS several,
    CASE WHEN x[6] <> 'null' THEN x[6] WHEN x[5] = 'true' THEN '"blocked"' ELSE 'null' END AS fault
  FROM cut)
SELECT cap, event_id, concat('{"amount":', coalesce(x[4], 'null'),
  ',"asset":', CASE WHEN several THEN archive_text(coalesce(list_filter(archive_offers(body), lambda o: o.payable)[1].asset,
    archive_offers(body)[1].asset)) ELSE coalesce(x[10], 'null') END,
  ',"capability_id":', to_json(cap), CASE WHEN fault IN ('null', '"blocked"') THEN ',"counts":true' ELSE ',"counts":false' END,
  ',"fault":', fault,
  CASE WHEN getvariable('archive_tool') THEN concat(',"initialize_ms":', archive_number(x[12])) END,
  ',"latency_ms":', archive_number(x[3]),
  ',"networks":', CASE WHEN several THEN to_json(list_sort(list_distinct(list_transform(archive_offers(body), lambda o: o.network))))::VARCHAR
    ELSE concat('[', x[9], ']') END,
  ',"observed_at":"', strftime(observed_at, '%Y-%m-%dT%H:%M:%S.%gZ'),
  '","protocols":', coalesce(x[8], '[]'), ',"record_id":"', event_id,
  '","state":', coalesce(x[1], 'null'), ',"status":', archive_number(x[2]),
  ',"terms_sha256":', coalesce(x[7], 'null'),
  CASE WHEN getvariable('archive_tool') THEN concat(',"tool":', coalesce(x[13], 'null'), ',"tool_present":', coalesce(x[14], 'null')) END,
  e'}\n') AS line
FROM known ORDER BY cap, event_id
