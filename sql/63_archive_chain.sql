-- An empty place for the rows of one subject and day as the commit chain has them, and for those that other files hold.
-- grain: archive_chain = one record of the log, its copies too; archive_others = one row of another file
-- reads: nothing
-- writes: temp archive_chain, temp archive_others
CREATE OR REPLACE TEMP TABLE archive_chain (
  event_id VARCHAR, cap VARCHAR, part USMALLINT, observed_at TIMESTAMP, log_offset BIGINT, body VARCHAR);
CREATE OR REPLACE TEMP TABLE archive_others (event_id VARCHAR);
