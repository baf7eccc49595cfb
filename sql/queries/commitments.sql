-- name: open
-- Commitments (hashes) to bought calls that were not published, from the hours before $before. They are sorted by hour
-- and hash, since the order of the log would reveal when in its hour each call was made.
-- grain: one commitment that was not found in the tree yet
-- reads: $before, commitment_open
-- writes: nothing
SELECT cap, sha256, t FROM commitment_open WHERE t < $before::TIMESTAMP ORDER BY date_trunc('hour', t), sha256;

-- name: published
-- Removes the commitments that were found in the public log from the list of open ones; `event` keeps their records.
-- grain: one commitment
-- reads: $known, a JSON array of hashes
-- writes: commitment_open
DELETE FROM commitment_open WHERE sha256 IN (FROM texts_of($known));
