-- name: dirty
-- Capabilities with new records since they were last graded.
-- grain: one capability
-- reads: dirty
-- writes: nothing
SELECT DISTINCT cap FROM dirty ORDER BY cap;

-- name: graded
-- Empties `dirty` (endpoints with new records), since the grade run grades all of them in the same transaction.
-- grain: one capability
-- reads: nothing
-- writes: dirty
DELETE FROM dirty;

-- name: corrected
-- Endpoints with a correction, reinstatement or dispute. Their results of a grade run are always passed to the
-- publisher, even if they are unchanged.
-- grain: one capability
-- reads: correction, reinstated, dispute
-- writes: nothing
SELECT cap FROM correction UNION SELECT cap FROM reinstated UNION SELECT cap FROM dispute;

-- name: stale
-- Capabilities with new records since the volatile tables were last made. The caller empties `stale` in the same
-- transaction.
-- grain: one capability
-- reads: stale
-- writes: nothing
SELECT DISTINCT cap FROM stale;
