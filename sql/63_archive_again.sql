-- The rows that a file should have held: of each record the first copy, as far as no other file holds it. Bodies are whole.
-- grain: one record of the log
-- reads: temp archive_chain, temp archive_others
-- writes: temp archive_firsts, temp archive_source
CREATE OR REPLACE TEMP TABLE archive_firsts AS
SELECT event_id, cap, part, observed_at, body, NULL::BIGINT AS shape, NULL::VARCHAR AS measured, NULL::BLOB AS sha FROM archive_chain WHERE event_id NOT IN (FROM archive_others)
QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY log_offset) = 1;
CREATE OR REPLACE TEMP VIEW archive_source AS FROM archive_firsts
