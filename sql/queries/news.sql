-- name: dirty
-- Capabilities with news since they were last graded.
-- grain: one capability
-- reads: dirty
-- writes: nothing
SELECT DISTINCT cap FROM dirty ORDER BY cap;

-- name: graded
-- A run looks at everything that was dirty: nothing is, once its transaction stands.
-- grain: one capability
-- reads: nothing
-- writes: dirty
DELETE FROM dirty;

-- name: corrected
-- Capabilities that a correction, a reinstatement or a dispute speaks of: their lines are always looked at by the publisher.
-- grain: one capability
-- reads: correction, reinstated, dispute
-- writes: nothing
SELECT cap FROM correction UNION SELECT cap FROM reinstated UNION SELECT cap FROM dispute;

-- name: stale
-- Endpoints with news since this was asked last; whoever asks empties the table in the same transaction.
-- grain: one capability
-- reads: stale
-- writes: nothing
SELECT DISTINCT cap FROM stale;
