-- Which endpoints took money: the only fact that crosses endpoints.
-- grain: thefts one endpoint that took money and whose theft lies in the window
-- reads: every_sample, grade_due, grade_withdrawn, site; now, window_start, theft_before, block_ms
-- writes: thefts (kept between runs: a run replaces the rows of the endpoints it grades), grade_kin_due
CREATE TABLE IF NOT EXISTS thefts (cap VARCHAR, pay_to VARCHAR, domain VARCHAR, blocks INTEGER, last TIMESTAMP);

-- Settled, watched, nothing came, no refund, 24 h ago or more. Only our own calls: a rival could publish thefts.
CREATE OR REPLACE TEMP TABLE grade_thefts AS
SELECT cap, count(DISTINCT epoch_ms(t) // param('block_ms'))::INTEGER AS blocks, max(t) AS last
FROM every_sample s SEMI JOIN grade_due USING (cap) ANTI JOIN grade_withdrawn w ON w.row = s.row
WHERE kind = 1 AND settled AND NOT coalesce(delivered, FALSE) AND NOT coalesce(refunded, FALSE)
  AND (fault IS NULL OR fault IN ('blocked', 'bad_input'))
  AND t >= param('window_start') AND t < param('now') AND t <= param('theft_before')
GROUP BY cap;

-- Endpoints outside this run whose kin flags change by it: they are due as well.
CREATE OR REPLACE TEMP TABLE grade_kin_due AS
WITH before AS (SELECT cap FROM thefts SEMI JOIN grade_due USING (cap)),
  turned AS (SELECT cap FROM before FULL JOIN grade_thefts n USING (cap) WHERE before.cap IS NULL OR n.cap IS NULL),
  kin AS (SELECT pay_to, domain FROM site SEMI JOIN turned USING (cap))
SELECT cap FROM site ANTI JOIN grade_due USING (cap)
WHERE NOT ours AND (pay_to IN (SELECT pay_to FROM kin) OR domain IN (SELECT domain FROM kin));

DELETE FROM thefts WHERE last < param('window_start') OR cap IN (SELECT cap FROM grade_due);
INSERT INTO thefts SELECT cap, any_value(pay_to), any_value(domain), any_value(blocks), any_value(last)
FROM grade_thefts LEFT JOIN site USING (cap) GROUP BY cap;
DROP TABLE grade_thefts;
