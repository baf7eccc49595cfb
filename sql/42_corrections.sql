-- What was said against the record or taken back, oldest first, as the tree's leaves carry it.
-- grain: one correction, dispute or reinstatement
-- reads: said
-- writes: nothing
SELECT type, cap, body, part, log_offset FROM said ORDER BY t, part, log_offset
