-- name: withdrawn
-- Recomputes which samples are withdrawn by a correction: for new samples, and for all samples of an endpoint with a
-- new correction or reinstatement.
-- grain: one withdrawn sample
-- reads: temp stage, temp sampled, every_sample, correction_in_force, withdrawal
-- writes: withdrawal, withdrawn, temp changed, temp withdrawal_new
CREATE OR REPLACE TEMP TABLE changed AS
SELECT DISTINCT cap FROM stage WHERE type IN ('correction', 'reinstated');
CREATE OR REPLACE TEMP TABLE withdrawal_new AS
WITH look AS (
  SELECT obs_id, cap, t FROM every_sample SEMI JOIN changed USING (cap)
  UNION ALL SELECT obs_id, cap, t FROM sampled ANTI JOIN changed USING (cap))
SELECT l.obs_id, l.cap, min(c.issued_at) AS issued_at
FROM look l JOIN correction_in_force c ON c.cap = l.cap AND is_withdrawn_by(c.record_id, c.issued_at, l.obs_id, l.t)
GROUP BY l.obs_id, l.cap;
DELETE FROM withdrawn WHERE obs_id IN (
  SELECT obs_id FROM withdrawal SEMI JOIN changed USING (cap) UNION ALL SELECT obs_id FROM withdrawal_new);
DELETE FROM withdrawal WHERE cap IN (SELECT cap FROM changed) OR obs_id IN (SELECT obs_id FROM withdrawal_new);
INSERT INTO withdrawal SELECT * FROM withdrawal_new;
INSERT INTO withdrawn SELECT obs_id FROM withdrawal_new;

-- name: site
-- Updates payee, domain and dispute of touched endpoints (those with new records), and marks these to be graded
-- (dirty) and to be published again (stale). A dispute is open until it is followed by a correction of the disputed
-- record, or of all records before, that is not taken back.
-- grain: site = one capability; dirty, stale = one capability
-- reads: temp touched, seen, endpoint, dispute, correction_in_force
-- writes: site, dirty, stale
MERGE INTO site USING (
  SELECT k.cap, s.pay_to, e.domain, coalesce(e.ours, FALSE) AS ours, k.cap IN (
    SELECT d.cap FROM dispute d ANTI JOIN correction_in_force c ON c.cap = d.cap AND c.t >= d.t
      AND (c.record_id IS NULL OR c.record_id IS NOT DISTINCT FROM d.record_id)) AS disputed
  FROM touched k LEFT JOIN seen s USING (cap) LEFT JOIN endpoint e USING (cap)) AS n ON site.cap = n.cap
WHEN MATCHED AND (n.pay_to IS DISTINCT FROM site.pay_to OR n.domain IS DISTINCT FROM site.domain OR n.ours <> site.ours OR n.disputed <> site.disputed)
THEN UPDATE SET pay_to = n.pay_to, domain = n.domain, ours = n.ours, disputed = n.disputed
WHEN NOT MATCHED THEN INSERT BY NAME;
INSERT INTO dirty SELECT cap FROM touched ANTI JOIN dirty USING (cap);
INSERT INTO stale SELECT cap FROM touched ANTI JOIN stale USING (cap);
