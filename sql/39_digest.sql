-- What the letters of this chunk stand on: a sha256 over the window's rows that no correction withdrew.
-- grain: one endpoint
-- reads: grade_rows
-- writes: grade_digest; the digest is NULL where a value is not printed the same way in SQL and in RFC 8785
-- RFC 8785 prints a number as ECMAScript does; so does the engine, between 1e-4 and 1e15, but for the ".0" of whole numbers.
CREATE OR REPLACE TEMP MACRO json_number(x) AS CASE WHEN x IS NULL THEN 'null' WHEN x = floor(x) THEN x::BIGINT::VARCHAR
  WHEN abs(x) >= 1e-4 THEN x::VARCHAR ELSE rtrim(x::DECIMAL(18, 6)::VARCHAR, '0') END;
CREATE OR REPLACE TEMP MACRO number_is_plain(x) AS x IS NULL OR (abs(x) < 1e15 AND (x = 0 OR abs(x) >= 1e-4 OR x::DECIMAL(18, 6)::DOUBLE = x));
CREATE OR REPLACE TEMP MACRO text_is_plain(x) AS x IS NULL OR regexp_full_match(x, '[ !#-\[\]-~]*');
CREATE OR REPLACE TEMP MACRO json_boolean(x) AS coalesce(x::VARCHAR, 'null');
CREATE OR REPLACE TEMP MACRO json_text(x) AS coalesce('"' || x || '"', 'null');

-- Members in the order of RFC 8785: by their names.
CREATE OR REPLACE TEMP TABLE grade_digest AS
WITH lines AS (
  SELECT ep, obs_id, concat('{"delivered":', json_boolean(delivered), ',"delivery":', json_number(delivery), ',"fault":', json_text(fault),
    ',"honest":', json_boolean(honest), ',"kind":', kind, ',"latency_ms":', json_number(latency_ms), ',"live":', json_boolean(live),
    ',"obs_id":"', obs_id, '","outcome":', json_number(outcome), ',"payer":', json_text(payer), ',"price":', json_number(price),
    ',"refunded":', json_boolean(refunded), ',"schema_ok":', json_boolean(schema_ok), ',"settled":', json_boolean(settled),
    ',"t":"', strftime(t, '%Y-%m-%dT%H:%M:%S.%gZ'), '","w":', json_number(w), e'}\n') AS line,
    number_is_plain(delivery) AND number_is_plain(outcome) AND number_is_plain(latency_ms) AND number_is_plain(price)
      AND number_is_plain(w) AND text_is_plain(obs_id) AND text_is_plain(payer) AND text_is_plain(fault) AS plain
  FROM grade_rows)
SELECT ep, CASE WHEN bool_and(plain) THEN sha256(string_agg(line, '' ORDER BY obs_id)) END AS digest FROM lines GROUP BY ep;
