-- The lines of an archive file of probes, read from the segments; each line is RFC 8785 JSON and a newline.
-- A file holds the rows of one type and UTC day whose offset in their partition is at least `first` and below `next`:
-- of several copies of an event the first, and no event that is in one of the files $others. If a text has an escape,
-- or another engine might print a number in another way, the line is 0x1e and {event_id, cap, t (Unix ms), body}, from
-- which probe-files.ts prints the line.
-- grain: one line, ascending by capability and record
-- reads: the segments $files (a glob), the files $others (a JSON array of paths of lines); $type, $day, $bounds (JSON
-- array of {part, first, next})
-- writes: nothing
WITH bounds AS (SELECT unnest(from_json($bounds, '[{"part": "USMALLINT", "first": "BIGINT", "next": "BIGINT"}]'), recursive := true)),
 -- Two copies of one event may have been observed before and after midnight, so the days around $day are read too.
 near AS MATERIALIZED (
  SELECT part, "offset", event_id, coalesce(cap, key) AS cap FROM read_parquet($files) JOIN bounds USING (part)
  WHERE type = $type AND observed_at >= $day::DATE - 1 AND observed_at < $day::DATE + 2 AND "offset" < next),
 copies AS (
  SELECT part, unnest(list_sort(list("offset"))[2:]) AS "offset" FROM near
  WHERE hash(event_id) IN (SELECT hash(event_id) FROM near GROUP BY ALL HAVING count(*) > 1) GROUP BY part, event_id, cap),
 member AS (
  SELECT part, event_id, coalesce(cap, key) AS cap, observed_at, body, from_json(body, '{"state": "VARCHAR", "status": "JSON",
    "latency_ms": "JSON", "price": "VARCHAR", "fault": "VARCHAR", "wall": "BOOLEAN", "initialize_ms": "JSON", "tool": "VARCHAR",
    "tool_present": "BOOLEAN", "terms": {"protocols": ["VARCHAR"], "sha256": "VARCHAR",
      "offers": [{"network": "VARCHAR", "asset": "VARCHAR", "payable": "BOOLEAN"}]}}') AS s
  FROM read_parquet($files) JOIN bounds USING (part) ANTI JOIN copies USING (part, "offset")
  WHERE type = $type AND on_day(observed_at, $day) AND "offset" >= first AND "offset" < next
    AND event_id NOT IN (SELECT record_id FROM read_json(from_json($others, '["VARCHAR"]'), format = 'newline_delimited', columns = {record_id: 'VARCHAR'}))),
 parsed AS (
  SELECT *, fault_of(s.fault, s.wall) AS fault,
    asset_of(s.terms.offers) AS asset,
    coalesce(list_sort(list_distinct(list_transform(s.terms.offers, lambda o: o.network))), []) AS networks, coalesce(s.terms.protocols, []) AS protocols
  FROM member)
SELECT part::INTEGER AS part, encode(CASE
  WHEN NOT contains(body, '\') AND regexp_full_match(concat(coalesce(s.latency_ms, 'null'), ' ', coalesce(s.status, 'null'), ' ', coalesce(s.initialize_ms, 'null')),
      '((null|(0|[1-9][0-9]{0,8})(\.[0-9]{0,5}[1-9])?)( |$)){3}')
  THEN concat('{"amount":', coalesce('"' || s.price || '"', 'null'), ',"asset":', coalesce('"' || asset || '"', 'null'),
    ',"capability_id":"', cap, '","counts":', CASE WHEN is_counted(0, fault, FALSE) THEN 'true' ELSE 'false' END,
    ',"fault":', coalesce('"' || fault || '"', 'null'),
    CASE WHEN type_is_tool THEN concat(',"initialize_ms":', coalesce(s.initialize_ms, 'null')) END,
    ',"latency_ms":', coalesce(s.latency_ms, 'null'),
    ',"networks":[', CASE WHEN len(networks) > 0 THEN concat('"', array_to_string(networks, '","'), '"') END,
    '],"observed_at":"', strftime(observed_at, '%Y-%m-%dT%H:%M:%S.%gZ'),
    '","protocols":[', CASE WHEN len(protocols) > 0 THEN concat('"', array_to_string(protocols, '","'), '"') END,
    '],"record_id":"', event_id, '","state":', coalesce('"' || s.state || '"', 'null'), ',"status":', coalesce(s.status, 'null'),
    ',"terms_sha256":', coalesce('"' || s.terms.sha256 || '"', 'null'),
    CASE WHEN type_is_tool THEN concat(',"tool":', coalesce('"' || s.tool || '"', 'null'),
      ',"tool_present":', coalesce(s.tool_present::VARCHAR, 'null')) END, e'}\n')
  ELSE concat(e'\x1e', to_json({event_id: event_id, cap: cap, t: epoch_ms(observed_at), body: body}), e'\n') END) AS line
FROM (SELECT *, $type = 'mcp.probe' AS type_is_tool FROM parsed)
ORDER BY cap, event_id
