-- Settings of every connection: times are naive UTC in any time zone of the machine, and contents of files are not cached.
-- grain: none
-- reads: nothing
-- writes: settings
SET GLOBAL TimeZone = 'UTC';
-- Every file is read once, so a cache only takes memory. If a file name is used again within the resolution of file times, the
-- cache would also return pages of the earlier file.
SET GLOBAL enable_external_file_cache = false;
-- A checkpoint rewrites partly filled blocks, and by default runs after each 16 MB of journal, several times in one large load.
-- Until it runs, the journal's rows are in memory, one MB for each MB of journal. A large load takes the same CPU time with
-- 64 MB as with 256. After a kill the journal is replayed, which takes seconds.
SET GLOBAL checkpoint_threshold = '64MB';
