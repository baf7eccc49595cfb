-- Shapes of cut bodies of a stretch of endpoints that are alike but for what the regular expression archive_varying finds:
-- with archive_blank in its place they have one text.
-- grain: one shape; form = the first of those that are alike
-- reads: temp archive_alike, shape; the variables archive_varying, archive_blank; endpoints $first to $last, inclusive
-- writes: temp archive_forms
CREATE OR REPLACE TEMP TABLE archive_forms AS
WITH here AS MATERIALIZED (
  SELECT id, regexp_replace(text, getvariable('archive_varying'), getvariable('archive_blank'), 'g') AS text FROM shape
  WHERE id IN (SELECT shape FROM archive_alike WHERE shape IS NOT NULL AND cap BETWEEN $first AND $last)),
 forms AS (SELECT text, min(id) AS form FROM here GROUP BY text)
SELECT id, form FROM here JOIN forms USING (text)
