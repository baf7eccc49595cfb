-- The observations of one chunk of endpoints in the window, corrections taken out.
-- grain: one observation
-- reads: every_sample, grade_withdrawn, grade_due; now, window_start, block_ms, chunk
-- writes: grade_rows (a view, since writing the rows down would cost more than reading them again)
-- counted: everything but our own fault, a synthetic input that moved no money, and a published call not reproduced.
CREATE OR REPLACE TEMP VIEW grade_rows AS
SELECT c.ep, s.*, (epoch_ms(s.t) // param('block_ms'))::INTEGER AS b,
  s.fault IS NULL OR (s.kind < 2 AND (s.fault = 'blocked' OR (s.fault = 'bad_input' AND coalesce(s.settled, FALSE)))) AS counted
FROM every_sample s JOIN (SELECT cap, ep FROM grade_due WHERE chunk = param('chunk')) c USING (cap)
  ANTI JOIN grade_withdrawn w ON w.row = s.row
WHERE s.t >= param('window_start') AND s.t < param('now');
