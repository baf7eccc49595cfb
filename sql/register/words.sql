-- name: names
-- Stores each normalised name of a company once, in the order of its text. The table is uncompressed and has an index,
-- for the reason given for `company` (register/rows).
-- grain: one name of one company; id = its place in that order; countries = of jurisdiction, legal address and headquarters
-- reads: company
-- writes: name
PRAGMA force_compression = 'uncompressed';
CREATE TABLE name AS
WITH given AS (SELECT number, name FROM company UNION ALL SELECT number, unnest(names) FROM company),
 plain AS (SELECT DISTINCT number, plain_name(name) AS key FROM given)
SELECT row_number() OVER (ORDER BY p.key, p.number)::INTEGER AS id, p.key, p.number,
  concat_ws(' ', left(c.jurisdiction, 2), nullif(c.legal_country, left(c.jurisdiction, 2)),
    nullif(nullif(c.hq_country, left(c.jurisdiction, 2)), c.legal_country)) AS countries
FROM plain p JOIN company c USING (number) WHERE p.key <> '' ORDER BY p.key, p.number;
CREATE INDEX name_id ON name (id);
CHECKPOINT;
PRAGMA force_compression = 'auto';

-- name: postings
-- Creates an inverted index from words to names. Words are numbered in the order of their text, so each table is
-- sorted by the column by which it is searched. A posting also has the length and the countries of its name, by which
-- names are chosen: fetching a hundred thousand names for these would take a quarter of a second.
-- grain: vocabulary: one word; names = how many names hold it. posting: one word of one name; letters = of the whole name
-- reads: name
-- writes: vocabulary, posting
CREATE OR REPLACE TEMP TABLE word_of AS
SELECT DISTINCT id AS name, unnest(words_of(key)) AS word, length(key)::INTEGER AS letters, countries FROM name;
PRAGMA force_compression = 'uncompressed';
CREATE TABLE vocabulary AS
SELECT row_number() OVER (ORDER BY word)::INTEGER AS id, word, count(*)::INTEGER AS names FROM word_of GROUP BY word ORDER BY word;
CREATE INDEX vocabulary_id ON vocabulary (id);
CHECKPOINT;
PRAGMA force_compression = 'auto';
CREATE TABLE posting AS
SELECT v.id AS word, w.name, w.letters, w.countries FROM word_of w JOIN vocabulary v USING (word) ORDER BY 1, 2;
DROP TABLE word_of;

-- name: grams
-- Creates an inverted index from trigrams to words, with which a misspelt word is found.
-- grain: one trigram of one word
-- reads: vocabulary
-- writes: gram
CREATE TABLE gram AS
SELECT gram, id AS word FROM (SELECT unnest(grams_of(word)) AS gram, id FROM vocabulary WHERE length(word) BETWEEN 4 AND 40) ORDER BY 1, 2;

-- name: numbers
-- Numbers of companies in business registers, sorted by number.
-- grain: one company with a number
-- reads: company
-- writes: register_number
CREATE TABLE register_number AS
SELECT number_key(register_number) AS key, authority, number FROM company WHERE number_key(register_number) IS NOT NULL ORDER BY 1, 3;
