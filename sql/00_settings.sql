-- Settings of every connection: times are naive UTC, whatever the machine's zone is.
-- grain: none
-- reads: nothing
-- writes: settings
SET GLOBAL TimeZone = 'UTC';
