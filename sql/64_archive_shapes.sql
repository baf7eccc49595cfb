-- Records whose bodies are whole, with what nearly always differs from one probe of an endpoint to the next cut out of the text: the measured times,
-- the slot and the hash of the terms, where the text has them in the order of RFC 8785. What is left is the same for hundreds
-- of records. What is far longer than these ever are is not cut. Nothing else is judged here: shape and cuts together are the text again, and whoever reads them looks (probe-lines.ts).
-- grain: one record of the log; a character that no JSON text holds stands in the shape where something was cut
-- reads: temp archive_source; the variable archive_tool: are these probes of MCP tools?
-- writes: temp archive_shaped
CREATE OR REPLACE TEMP VIEW archive_shaped AS
WITH found AS (
  SELECT cap, event_id, observed_at, body,
    CASE WHEN getvariable('archive_tool') THEN instr(body, ',"initialize_ms":') ELSE instr(body, ',"latency_ms":') END AS m,
    CASE WHEN getvariable('archive_tool') THEN 17 ELSE 14 END AS m_name,
    instr(body, ',"live":') AS m_end, instr(body, ',"slot":') AS s, instr(body, ',"state":') AS s_end,
    instr(body, ',"sha256":"') AS h
  FROM archive_source WHERE body IS NOT NULL),
 judged AS (SELECT *, m > 0 AND m_end BETWEEN m + 1 AND m + 127 AND s > m_end AND s_end BETWEEN s + 1 AND s + 127 AS is_cut FROM found)
SELECT cap, event_id, observed_at,
  CASE WHEN is_cut THEN substr(body, m + m_name, m_end - m - m_name) END AS measured,
  CASE WHEN is_cut THEN substr(body, s + 8, s_end - s - 8) END AS slot,
  CASE WHEN is_cut AND h > s_end THEN substr(body, h + 11, 64) END AS sha,
  CASE WHEN NOT is_cut THEN body
    WHEN h > s_end THEN concat(left(body, m + m_name - 1), e'\x1f', substr(body, m_end, s + 8 - m_end), e'\x1f',
      substr(body, s_end, h + 11 - s_end), e'\x1f', substr(body, h + 75))
    ELSE concat(left(body, m + m_name - 1), e'\x1f', substr(body, m_end, s + 8 - m_end), e'\x1f', substr(body, s_end)) END AS shape
FROM judged
