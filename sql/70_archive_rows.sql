-- Probes of days before $until that may leave the lake and have not, counted partition by partition, with the digest of their
-- ids, which is that of the lines made of them (64_archive_ranges).
-- grain: one (type, UTC day, partition)
-- reads: event, positions; $until (day)
-- writes: nothing
SELECT e.type, strftime(e.observed_at, '%Y-%m-%d') AS day, e.part::INTEGER AS part, count(*)::DOUBLE AS rows,
  bit_xor(md5_number(e.event_id))::VARCHAR AS digest
FROM event e JOIN positions p USING (topic, part)
WHERE e.observed_at < $until::DATE AND e.type IN ('handshake', 'mcp.probe') AND e.log_offset < p.next
GROUP BY ALL ORDER BY ALL
