-- Six-hour blocks: however often we looked, a block is one sample.
-- grain: grade_blocks one (endpoint, block); grade_paid one (endpoint, block) that holds a payment of ours
-- reads: grade_own; wall_one_in
-- writes: grade_blocks, grade_paid, grade_walls
CREATE OR REPLACE TEMP TABLE grade_blocks AS
SELECT ep, b, count(*) AS n, count(*) FILTER (answered) AS answered, count(*) FILTER (wall) AS walls,
  count(*) FILTER (honest) AS honest, count(honest) AS told, count(ms) FILTER (NOT paid) AS timed
FROM grade_own GROUP BY ep, b;

CREATE OR REPLACE TEMP TABLE grade_paid AS
SELECT ep, b, avg(w) AS w, r6(avg(delivery)) AS delivery, r6(avg(outcome)) AS outcome,
  count(*) FILTER (schema_ok) AS fits, count(schema_ok) AS checked, count(*) FILTER (honest) AS honest, count(honest) AS told,
  count(ms) AS timed
FROM grade_own WHERE paid GROUP BY ep, b;

-- The first floor(m/20) blocks with a wall are excused, in time order: in them only the other rows count.
CREATE OR REPLACE TEMP TABLE grade_walls AS
SELECT ep, b, row_number() OVER (PARTITION BY ep ORDER BY b) <= m // param('wall_one_in') AS excused
FROM grade_blocks JOIN (SELECT ep, count(*) AS m FROM grade_blocks GROUP BY ep) USING (ep) WHERE walls > 0;
