-- Settings of every connection to the engine: times are UTC, whatever the time zone of the machine, and the contents
-- of files are not cached.
-- grain: none
-- reads: nothing
-- writes: settings
SET GLOBAL TimeZone = 'UTC';
-- Every file is read only once, so a cache would only take memory. Also, if a file is replaced by another of the same
-- name within the resolution of file times, the cache would return parts of the earlier file.
SET GLOBAL enable_external_file_cache = false;
-- A checkpoint rewrites partly filled blocks. By default one runs after each 16 MB of journal, several times in one
-- large load. Until a checkpoint, the rows of the journal are in memory, one MB for each MB of journal. A large load
-- takes the same CPU time with 64 MB as with 256. After a kill the journal is replayed, which takes seconds.
SET GLOBAL checkpoint_threshold = '64MB';
