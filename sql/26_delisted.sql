-- What was listed once and is not listed now: every source that named it names it no longer, or names another in its place.
-- grain: one capability
-- reads: listing
-- writes: nothing
WITH newest AS (
  SELECT cap, gone FROM listing
  QUALIFY row_number() OVER (PARTITION BY source, source_id ORDER BY t DESC, log_offset DESC, event_id DESC) = 1)
SELECT DISTINCT cap FROM listing ANTI JOIN (SELECT cap FROM newest WHERE NOT gone) USING (cap) ORDER BY cap
