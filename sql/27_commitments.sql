-- Commitments to unpublished bought calls of hours before $before, by hour and hash: the order of the log would tell more.
-- grain: one commitment that the tree was not seen to hold yet
-- reads: $before, commitment_open
-- writes: nothing
SELECT cap, sha256, t FROM commitment_open WHERE t < $before::TIMESTAMP ORDER BY date_trunc('hour', t), sha256
