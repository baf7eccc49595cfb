-- Which manifests this lake has followed, and what each took out of it; $topic has the partitions that must have.
-- grain: one manifest
-- reads: archived, positions; $topic
-- writes: nothing
SELECT arc_id, sum(removed)::DOUBLE AS removed,
  count(*) FILTER (part IN (SELECT part FROM positions WHERE topic = $topic)) = (SELECT count(*) FROM positions WHERE topic = $topic) AS whole
FROM archived GROUP BY arc_id
