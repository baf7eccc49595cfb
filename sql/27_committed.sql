-- Commitments that the tree holds are on no list any more; `event` keeps their records.
-- grain: one commitment
-- reads: $known, a JSON array of hashes
-- writes: commitment_open
DELETE FROM commitment_open WHERE sha256 IN (SELECT unnest(from_json($known, '["VARCHAR"]')))
