-- name: printing
-- Defines macros that print values as RFC 8785 (canonical JSON) does.
-- grain: none
-- reads: nothing
-- writes: temporary macros
-- RFC 8785 prints a number as ECMAScript does; so does the engine between 1e-4 and 1e15, except for the ".0" of whole
-- numbers. Smaller multiples of 1e-6 are printed through DECIMAL. For any other number the macro prints the mark \u00,
-- after which digests.ts prints the line itself; escapes of control characters begin with \u00 too.
CREATE OR REPLACE TEMP MACRO json_number(x) AS CASE WHEN x IS NULL THEN 'null' WHEN abs(x) >= 1e15 THEN '\u00'
  WHEN x = floor(x) THEN x::BIGINT::VARCHAR WHEN abs(x) >= 1e-4 THEN x::VARCHAR
  WHEN x::DECIMAL(18, 6)::DOUBLE = x THEN rtrim(x::DECIMAL(18, 6)::VARCHAR, '0') ELSE '\u00' END;
CREATE OR REPLACE TEMP MACRO json_boolean(x) AS CASE WHEN x THEN 'true' WHEN x IS NULL THEN 'null' ELSE 'false' END;
CREATE OR REPLACE TEMP MACRO json_text(x) AS coalesce(to_json(x)::VARCHAR, 'null');
-- Casting a time to text is ten times as fast as strftime, but leaves out zeros at the end.
CREATE OR REPLACE TEMP MACRO json_time(t, text) AS CASE WHEN length(text) > length('2026-01-01 00:00:00.000')
  THEN strftime(t, '%Y-%m-%dT%H:%M:%S.%g') ELSE concat(replace(text, ' ', 'T'), right('.000', length('2026-01-01 00:00:00.000') - length(text))) END;

-- name: lines
-- The lines over which the digest of an endpoint's card (published grade) is computed: one for each row of the window
-- that no correction withdrew.
-- grain: one endpoint
-- reads: in_window (grade/due), grade_chunk, grade_withdrawn; $window_start, $now (unix ms), $eps (JSON array)
-- writes: nothing
-- Before each line are the row's id and a quotation mark, by which digests.ts sorts the lines. Properties are in the
-- order of RFC 8785, by name. If a line contains \u00 (see `printing`; also printed for an id with a quotation mark or
-- a newline), digests.ts prints the line itself.
WITH rows AS (
  SELECT c.ep, s.* FROM in_window($window_start, $now) s
    JOIN (SELECT cap, ep FROM grade_chunk SEMI JOIN (SELECT unnest(from_json($eps, '["UINTEGER"]')) AS ep) USING (ep)) c USING (cap)
    ANTI JOIN grade_withdrawn w ON w.row = s.row)
SELECT ep, encode(string_agg(concat(CASE WHEN contains(obs_id, '"') OR contains(obs_id, e'\n') THEN '\u00' ELSE obs_id END,
  '"{"delivered":', json_boolean(delivered), ',"delivery":', json_number(delivery), ',"fault":', json_text(fault),
  ',"honest":', json_boolean(honest), ',"kind":', kind, ',"latency_ms":', json_number(latency_ms), ',"live":', json_boolean(live),
  ',"obs_id":', json_text(obs_id), ',"outcome":', json_number(outcome), ',"payer":', json_text(payer), ',"price":', json_number(price),
  ',"refunded":', json_boolean(refunded), ',"schema_ok":', json_boolean(schema_ok), ',"settled":', json_boolean(settled),
  ',"t":"', json_time(t, t::VARCHAR), 'Z","w":', json_number(w), e'}\n'), '')) AS lines
FROM rows GROUP BY ep;
