-- How a run asks for the numbers of the method, and how values are printed in RFC 8785.
-- grain: none
-- reads: session variables, set by pipelines/3-grade/grade.ts: every number comes from grading-params.json
-- writes: temporary macros
CREATE OR REPLACE TEMP MACRO param(name) AS getvariable(name);

-- RFC 8785 prints a number as ECMAScript does; so does the engine, between 1e-4 and 1e15, but for the ".0" of whole numbers.
-- Micro-units below that are printed by hand. What is left, and control characters in a text, come out as \u00.
CREATE OR REPLACE TEMP MACRO json_number(x) AS CASE WHEN x IS NULL THEN 'null' WHEN abs(x) >= 1e15 THEN '\u00'
  WHEN x = floor(x) THEN x::BIGINT::VARCHAR WHEN abs(x) >= 1e-4 THEN x::VARCHAR
  WHEN x::DECIMAL(18, 6)::DOUBLE = x THEN rtrim(x::DECIMAL(18, 6)::VARCHAR, '0') ELSE '\u00' END;
CREATE OR REPLACE TEMP MACRO json_boolean(x) AS CASE WHEN x THEN 'true' WHEN x IS NULL THEN 'null' ELSE 'false' END;
CREATE OR REPLACE TEMP MACRO json_text(x) AS coalesce(to_json(x)::VARCHAR, 'null');
-- The engine's own text of a time is made ten times as fast as a formatted one; it leaves out zeros at the end.
CREATE OR REPLACE TEMP MACRO json_time(t, text) AS CASE WHEN length(text) > length('2026-01-01 00:00:00.000')
  THEN strftime(t, '%Y-%m-%dT%H:%M:%S.%g') ELSE concat(replace(text, ' ', 'T'), right('.000', length('2026-01-01 00:00:00.000') - length(text))) END;
