-- Which endpoints are due, in chunks, and which of them took money: the only fact that crosses endpoints.
-- grain: grade_due one endpoint; thefts one endpoint that took money and whose theft lies in the window
-- reads: due_caps(cap), samples, withdrawn, site; now, window_start, theft_before, block_ms, chunk_rows
-- writes: chunk_caps, grade_due, thefts (kept between runs: a run replaces the rows of the endpoints it grades), grade_kin_due
-- As many endpoints in a chunk as have the wanted number of rows on average: it bounds the memory of a run.
SET VARIABLE chunk_caps = (SELECT greatest(1, (param('chunk_rows') * caps / greatest(1, n))::INTEGER)
  FROM (SELECT count(DISTINCT cap) AS caps FROM due_caps), (SELECT count(*) AS n FROM samples SEMI JOIN due_caps USING (cap)));
CREATE OR REPLACE TEMP TABLE grade_due AS
SELECT cap, ((row_number() OVER (ORDER BY cap) - 1) // param('chunk_caps'))::INTEGER AS chunk
FROM (SELECT DISTINCT cap FROM due_caps) ANTI JOIN (SELECT cap FROM site WHERE ours) USING (cap);

CREATE TABLE IF NOT EXISTS thefts (cap VARCHAR, pay_to VARCHAR, domain VARCHAR, blocks INTEGER, last TIMESTAMP);

-- Settled, watched, nothing came, no refund, 24 h ago or more. Only our own calls: a rival could publish thefts.
CREATE OR REPLACE TEMP TABLE grade_thefts AS
SELECT cap, count(DISTINCT epoch_ms(t) // param('block_ms'))::INTEGER AS blocks, max(t) AS last
FROM samples SEMI JOIN grade_due USING (cap) ANTI JOIN withdrawn USING (obs_id)
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
