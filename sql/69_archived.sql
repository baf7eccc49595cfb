-- Which manifests this lake has followed, with the rows that each took out of it.
-- grain: one manifest
-- reads: archived
-- writes: nothing
SELECT arc_id, removed::DOUBLE AS removed FROM archived
