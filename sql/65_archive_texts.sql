-- Shapes of cut bodies of a stretch of endpoints, and the hash that most of each have. Texts that are alike but for what the
-- regular expression archive_varying finds stand here once, with archive_blank in its place.
-- grain: one shape; form = the first shape of those that are alike, whose row alone has their text
-- reads: temp archive_alike, temp archive_usual, shape; the variables archive_varying, archive_blank; endpoints $first to $last, inclusive
-- writes: nothing
WITH here AS MATERIALIZED (
  SELECT id, u.sha, regexp_replace(text, getvariable('archive_varying'), getvariable('archive_blank'), 'g') AS text FROM shape JOIN archive_usual u USING (id)
  WHERE id IN (SELECT shape FROM archive_alike WHERE shape IS NOT NULL AND cap BETWEEN $first AND $last)),
 forms AS (SELECT text, min(id) AS form FROM here GROUP BY text)
SELECT id::DOUBLE AS id, form::DOUBLE AS form, CASE WHEN id = form THEN text END AS text, lower(hex(sha)) AS sha FROM here JOIN forms USING (text)
