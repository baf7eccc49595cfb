-- One partition as the chain has it: how far it is loaded, and without the files that are no longer live.
-- grain: one partition
-- reads: the variables topic, part, next, live (JSON array of file names)
-- writes: loaded, positions
DELETE FROM loaded WHERE topic = getvariable('topic') AND part = getvariable('part')
  AND NOT list_contains(from_json(getvariable('live'), '["VARCHAR"]'), file);
INSERT OR REPLACE INTO positions
SELECT getvariable('topic'), getvariable('part'), greatest(getvariable('next')::BIGINT,
  (SELECT next FROM positions WHERE topic = getvariable('topic') AND part = getvariable('part')));
