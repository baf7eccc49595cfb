-- name: dirty
-- Capabilities with new records since they were last graded.
-- grain: one capability
-- reads: dirty
-- writes: nothing
SELECT DISTINCT cap FROM dirty ORDER BY cap;

-- name: graded
-- Empties the list of dirty endpoints, since a run grades all of them in the same transaction.
-- grain: one capability
-- reads: nothing
-- writes: dirty
DELETE FROM dirty;

-- name: corrected
-- Endpoints with a correction, reinstatement or dispute; the publisher always evaluates their lines.
-- grain: one capability
-- reads: correction, reinstated, dispute
-- writes: nothing
SELECT cap FROM correction UNION SELECT cap FROM reinstated UNION SELECT cap FROM dispute;

-- name: stale
-- Capabilities with new records since the last call; the caller empties the table in the same transaction.
-- grain: one capability
-- reads: stale
-- writes: nothing
SELECT DISTINCT cap FROM stale;
