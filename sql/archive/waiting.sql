-- Probes of days before $until that are in the lake, and so in no file yet.
-- grain: one (type, UTC day, partition)
-- reads: event, positions; $until (day)
-- writes: nothing
SELECT e.type, strftime(e.observed_at, '%Y-%m-%d') AS day, e.part::INTEGER AS part, count(*)::DOUBLE AS rows
FROM event e JOIN positions p USING (topic, part)
WHERE e.observed_at < $until::DATE AND is_probe(e.type) AND e.log_offset < p.next
GROUP BY ALL ORDER BY ALL
