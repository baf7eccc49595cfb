-- What the bounds of a part need: weight, successes, blocks, bad blocks and how many bad runs they make.
-- grain: one (endpoint, part)
-- reads: grade_blocks, grade_paid, grade_walls; bad_below
-- writes: grade_parts
CREATE OR REPLACE TEMP TABLE grade_parts AS
WITH samples AS (
    SELECT 'liveness' AS part, ep, b, 1.0 AS w, r6(answered / nullif(n - CASE WHEN excused THEN walls ELSE 0 END, 0)) AS x
    FROM grade_blocks LEFT JOIN grade_walls USING (ep, b)
  UNION ALL SELECT 'honesty', ep, b, 1.0, r6(honest / nullif(told, 0)) FROM grade_blocks
  UNION ALL SELECT 'paid_honesty', ep, b, 1.0, r6(honest / nullif(told, 0)) FROM grade_paid
  UNION ALL SELECT 'delivery', ep, b, w, delivery FROM grade_paid
  UNION ALL SELECT 'outcome', ep, b, w, outcome FROM grade_paid
  UNION ALL SELECT 'schema_conformance', ep, b, w, r6(fits / nullif(checked, 0)) FROM grade_paid),
sums AS (
  SELECT ep, part, r6(sum(w)) AS w, r6(sum(w * x)) AS s, count(*)::INTEGER AS m, count_if(x < param('bad_below'))::INTEGER AS bad,
    list_sort(list(b * 2 + (x < param('bad_below'))::INTEGER)) AS course
  FROM samples WHERE x IS NOT NULL GROUP BY ep, part)
-- course holds the blocks in time order, odd where bad: a bad run starts where no bad block comes right before.
SELECT * EXCLUDE (course), CASE WHEN bad < 2 THEN bad
  ELSE len(list_filter(course, lambda v, i: v % 2 = 1 AND (i = 1 OR course[i - 1] % 2 = 0))) END::INTEGER AS starts
FROM sums;
