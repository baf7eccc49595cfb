-- What was said against the record or taken back, oldest first, as the tree's leaves carry it.
-- grain: one correction, dispute or reinstatement
-- reads: event
-- writes: nothing
SELECT type, cap, body, part, log_offset FROM event WHERE topic = 'corrections' ORDER BY observed_at, event_id
