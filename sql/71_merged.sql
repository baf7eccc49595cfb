-- An empty place for the lines of one subject and day, as the owners of the partitions made them.
-- grain: one line
-- reads: nothing
-- writes: temp archive_merged
CREATE OR REPLACE TEMP TABLE archive_merged (cap VARCHAR, event_id VARCHAR, line VARCHAR)
