-- What the letters of some endpoints stand on: a sha256 over the window's rows that no correction withdrew, by id.
-- grain: one endpoint
-- reads: grade_rows; eps (JSON array)
-- writes: grade_digest; the digest is NULL where a value is not printed the same way in SQL and in RFC 8785
-- RFC 8785 prints a number as ECMAScript does; so does the engine, between 1e-4 and 1e15, but for the ".0" of whole numbers.
-- Micro-units below that are printed by hand. What is left, and control characters in a text, come out as \u00: then the
-- digest is made outside.
CREATE OR REPLACE TEMP MACRO json_number(x) AS CASE WHEN x IS NULL THEN 'null' WHEN abs(x) >= 1e15 THEN '\u00'
  WHEN x = floor(x) THEN x::BIGINT::VARCHAR WHEN abs(x) >= 1e-4 THEN x::VARCHAR
  WHEN x::DECIMAL(18, 6)::DOUBLE = x THEN rtrim(x::DECIMAL(18, 6)::VARCHAR, '0') ELSE '\u00' END;
CREATE OR REPLACE TEMP MACRO json_boolean(x) AS CASE WHEN x THEN 'true' WHEN x IS NULL THEN 'null' ELSE 'false' END;
CREATE OR REPLACE TEMP MACRO json_text(x) AS coalesce(to_json(x)::VARCHAR, 'null');

-- Members in the order of RFC 8785: by their names. Nearly every id begins with rec_, and comparing what follows is a
-- third cheaper, since four letters decide most comparisons; where only some begin so, that order would be another one.
CREATE OR REPLACE TEMP TABLE grade_digest AS
WITH lines AS (
  SELECT ep, starts_with(obs_id, 'rec_') AS plain, CASE WHEN plain THEN obs_id[length('rec_') + 1:] ELSE obs_id END AS place,
    concat('{"delivered":', json_boolean(delivered), ',"delivery":', json_number(delivery), ',"fault":', json_text(fault),
    ',"honest":', json_boolean(honest), ',"kind":', kind, ',"latency_ms":', json_number(latency_ms), ',"live":', json_boolean(live),
    ',"obs_id":', json_text(obs_id), ',"outcome":', json_number(outcome), ',"payer":', json_text(payer), ',"price":', json_number(price),
    ',"refunded":', json_boolean(refunded), ',"schema_ok":', json_boolean(schema_ok), ',"settled":', json_boolean(settled),
    ',"t":"', strftime(t, '%Y-%m-%dT%H:%M:%S.%gZ'), '","w":', json_number(w), e'}\n') AS line
  FROM grade_rows SEMI JOIN (SELECT unnest(from_json(param('eps'), '["INTEGER"]')) AS ep) USING (ep)),
texts AS (
  SELECT ep, string_agg(line, '' ORDER BY place) AS text, bool_and(plain) = bool_or(plain) AS alike FROM lines GROUP BY ep)
SELECT ep, CASE WHEN alike AND NOT contains(text, '\u00') THEN sha256(text) END AS digest FROM texts;
