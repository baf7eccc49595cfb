-- The rows of a file leave the lake, wherever its ids were found.
-- grain: one row of the file
-- reads: temp archive_here
-- writes: event
DELETE FROM event WHERE rowid IN (SELECT place FROM archive_here)
