-- name: open
-- Hashes of issued receipts, sorted by hash, since the order of the log would reveal when each receipt was bought.
-- grain: one receipt that was not found in the tree yet; at most $most
-- reads: receipt_open; $most
-- writes: nothing
SELECT DISTINCT sha256 FROM receipt_open ORDER BY sha256 LIMIT $most;

-- name: published
-- Removes the receipts that were found in the public log from the list of open ones; `event` keeps their records.
-- grain: one receipt
-- reads: $known, a JSON array of hashes
-- writes: receipt_open
DELETE FROM receipt_open WHERE sha256 IN (FROM texts_of($known));
