-- Payee, domain and dispute of touched endpoints, and that they are to be graded and told anew.
-- A dispute is open until a correction of the same record, or of all before it, follows and is not taken back.
-- grain: site = one capability; dirty, stale = one capability
-- reads: temp touched, seen, endpoint, dispute, correction_in_force
-- writes: site, dirty, stale
DELETE FROM site WHERE cap IN (SELECT cap FROM touched);
INSERT INTO site
SELECT k.cap, s.pay_to, e.domain, coalesce(e.ours, FALSE), k.cap IN (
    SELECT d.cap FROM dispute d ANTI JOIN correction_in_force c ON c.cap = d.cap AND c.t >= d.t
      AND (c.record_id IS NULL OR c.record_id IS NOT DISTINCT FROM d.record_id))
FROM touched k LEFT JOIN seen s USING (cap) LEFT JOIN endpoint e USING (cap);
INSERT INTO dirty SELECT cap FROM touched ANTI JOIN dirty USING (cap);
INSERT INTO stale SELECT cap FROM touched ANTI JOIN stale USING (cap);
