-- What one source has said: its newest record by source id, and every record of one day, whose ids are used up.
-- grain: one record of the source
-- reads: listing; the parameters `source` and `day`
-- writes: nothing
SELECT source_id, cap, event_id, gone,
  row_number() OVER (PARTITION BY source_id ORDER BY t DESC, log_offset DESC, event_id DESC) = 1 AS newest
FROM listing WHERE source = $source
QUALIFY newest OR t::DATE = $day::DATE
