-- A manifest was followed for one partition.
-- grain: one manifest and partition
-- reads: $arc_id, $part, $removed
-- writes: archived
INSERT INTO archived VALUES ($arc_id, $part, $removed)
