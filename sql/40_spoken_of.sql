-- Capabilities that a correction, a reinstatement or a dispute speaks of: their lines are always looked at by the publisher.
-- grain: one capability
-- reads: correction, reinstated, dispute
-- writes: nothing
SELECT cap FROM correction UNION SELECT cap FROM reinstated UNION SELECT cap FROM dispute
