-- Which endpoints are due, in chunks of so many rows, and how many rows of the window each has.
-- grain: grade_withdrawn one row that a correction withdrew; grade_due one endpoint, ep counts it within its chunk from 0
-- reads: due_caps(cap), every_sample, withdrawn, site; now, window_start, chunk_rows
-- writes: grade_withdrawn, grade_due
CREATE OR REPLACE TEMP TABLE grade_withdrawn AS
SELECT s.row, cap FROM every_sample s SEMI JOIN withdrawn USING (obs_id) SEMI JOIN due_caps USING (cap)
WHERE s.t >= param('window_start') AND s.t < param('now');

CREATE OR REPLACE TEMP TABLE grade_due AS
WITH rows AS (
  SELECT cap, count(*) AS n, count_if(kind = 1) AS paid FROM every_sample SEMI JOIN due_caps USING (cap)
  WHERE t >= param('window_start') AND t < param('now') GROUP BY cap),
due AS (
  SELECT cap, coalesce(n, 0) AS n, coalesce(paid, 0) AS paid FROM (SELECT DISTINCT cap FROM due_caps)
  ANTI JOIN (SELECT cap FROM site WHERE ours) USING (cap) LEFT JOIN rows USING (cap)),
chunked AS (SELECT *, ((sum(n) OVER (ORDER BY cap) - n) // param('chunk_rows'))::INTEGER AS chunk FROM due)
SELECT cap, n::INTEGER AS n, paid::INTEGER AS paid, chunk,
  (row_number() OVER (PARTITION BY chunk ORDER BY cap) - 1)::UINTEGER AS ep FROM chunked;
