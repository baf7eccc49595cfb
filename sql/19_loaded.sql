-- How far one partition is loaded, and without the files that others replaced.
-- grain: one partition
-- reads: the variable `place`, a JSON object {topic, part, next, gone: file names}
-- writes: loaded, positions
CREATE OR REPLACE TEMP TABLE place AS
SELECT unnest(from_json(getvariable('place'), '{"topic": "VARCHAR", "part": "USMALLINT", "next": "BIGINT", "gone": ["VARCHAR"]}'));
DELETE FROM loaded USING place p WHERE loaded.topic = p.topic AND loaded.part = p.part AND list_contains(p.gone, loaded.file);
-- A segment that was replaced lies below what is loaded already: a position never goes back.
INSERT INTO positions SELECT topic, part, next FROM place
ON CONFLICT DO UPDATE SET next = greatest(positions.next, excluded.next);
