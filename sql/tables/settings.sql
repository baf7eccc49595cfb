-- Settings of every connection: times are naive UTC, whatever the machine's zone is, and files are read as they are now.
-- grain: none
-- reads: nothing
-- writes: settings
SET GLOBAL TimeZone = 'UTC';
-- Every file is read once, so what the engine keeps of it only takes memory; and a name used again within the clock's
-- resolution would be answered with pages of the file before it.
SET GLOBAL enable_external_file_cache = false;
-- A checkpoint writes anew what was written in part, and by itself comes after each 16 MB of journal: several in one
-- large pass. Until it comes the rows of the journal are in memory, a MB for each of its own. A large pass takes the
-- same CPU with 64 MB as with 256. After a kill the journal is read again: seconds.
SET GLOBAL checkpoint_threshold = '64MB';
