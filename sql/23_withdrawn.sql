-- Which samples corrections withdraw now: new samples against what is in force, and anew wherever a correction came or went.
-- A correction without a record id withdraws every record of its capability observed before it was issued.
-- grain: one withdrawn sample
-- reads: temp stage, temp sampled, every_sample, correction_in_force
-- writes: withdrawal, withdrawn
CREATE OR REPLACE TEMP TABLE judged AS
SELECT DISTINCT cap FROM stage WHERE type IN ('correction', 'reinstated');
CREATE OR REPLACE TEMP TABLE withdrawal_new AS
WITH look AS (
  SELECT obs_id, cap, t FROM every_sample SEMI JOIN judged USING (cap)
  UNION ALL SELECT obs_id, cap, t FROM sampled ANTI JOIN judged USING (cap))
SELECT l.obs_id, l.cap, min(c.issued_at) AS issued_at
FROM look l JOIN correction_in_force c ON c.cap = l.cap AND (c.record_id = l.obs_id OR (c.record_id IS NULL AND l.t < c.issued_at))
GROUP BY l.obs_id, l.cap;
DELETE FROM withdrawn WHERE obs_id IN (
  SELECT obs_id FROM withdrawal SEMI JOIN judged USING (cap) UNION ALL SELECT obs_id FROM withdrawal_new);
DELETE FROM withdrawal WHERE cap IN (SELECT cap FROM judged) OR obs_id IN (SELECT obs_id FROM withdrawal_new);
INSERT INTO withdrawal SELECT * FROM withdrawal_new;
INSERT INTO withdrawn SELECT obs_id FROM withdrawal_new;
