-- name: asked
-- Normalises the name, the number and the domain of a lookup in the same way as those in the register.
-- grain: one lookup
-- reads: $name, $number, $domain
-- writes: nothing
SELECT folded($name) AS folded, plain_name($name) AS key, number_key($number) AS number, nullif(host_of($domain), '') AS host;

-- name: by_lei
-- The company that has a LEI.
-- grain: the company of a LEI
-- reads: company; $lei
-- writes: nothing
SELECT number FROM company WHERE lei = $lei;

-- name: by_number
-- Companies with a number in a business register: in the register that is named, or in all of them. Several companies
-- may have one number, since it is unique only within its register.
-- grain: one company; of more than $most the first by LEI
-- reads: register_number, company; $number, $authority, $country (null: any), $most
-- writes: nothing
SELECT r.number FROM register_number r JOIN company c USING (number)
WHERE r.key = $number AND ($authority::VARCHAR IS NULL OR r.authority = $authority)
  AND ($country::VARCHAR IS NULL OR $country IN (left(c.jurisdiction, 2), c.legal_country, c.hq_country))
ORDER BY c.status = 'ACTIVE' DESC, r.number LIMIT $most;

-- name: by_host
-- Companies to which a domain belongs.
-- grain: one company
-- reads: domain; $host, $most
-- writes: nothing
SELECT number FROM domain WHERE host = $host ORDER BY number LIMIT $most;

-- name: by_key
-- Names of the register that equal the name of the lookup when both are normalised.
-- grain: one name
-- reads: name; $key, $country (null: any), $most
-- writes: nothing
SELECT number, key FROM name WHERE key = $key AND ($country::VARCHAR IS NULL OR contains(countries, $country)) ORDER BY number LIMIT $most;

-- name: word
-- The number that identifies a word of the register, and how many names contain the word.
-- grain: a word of the register
-- reads: vocabulary; $word
-- writes: nothing
SELECT id, names FROM vocabulary WHERE word = $word;

-- name: all_words
-- Names that contain the rarest words of the lookup, up to three. Shorter names come first, since they are nearest to
-- the lookup.
-- grain: one name
-- reads: posting; $a, $b, $c (repeated where there are fewer than three words), $country (null: any), $most
-- writes: nothing
SELECT name FROM posting
WHERE word = $a AND ($country::VARCHAR IS NULL OR contains(countries, $country))
  AND ($b = $a OR name IN (SELECT name FROM posting WHERE word = $b))
  AND ($c = $a OR name IN (SELECT name FROM posting WHERE word = $c))
ORDER BY letters, name LIMIT $most;

-- name: near
-- Words of the register that share the most trigrams with one word of the lookup. The trigrams are literals in the
-- statement, so that the engine reads only the blocks that can contain them.
-- grain: one word; the caller computes the edit distance
-- reads: gram; $least_shared, the list
-- writes: nothing
SELECT word FROM gram WHERE gram IN ({list}) GROUP BY word HAVING count(*) >= $least_shared ORDER BY count(*) DESC, word LIMIT 200;

-- name: words
-- The words of the register that have these numbers.
-- grain: one word of the list
-- reads: vocabulary
-- writes: nothing
SELECT id, word, names FROM vocabulary WHERE id IN ({list});

-- name: similar
-- Names that contain words of the lookup, also in similar spellings, sorted by the total weight of these words.
-- grain: one name
-- reads: posting; $near (JSON: [{place, id, weight}], place = which word of the question), the list of ids, $country
-- (null: any), $most
-- writes: nothing
WITH near AS (
  SELECT unnest(from_json($near, '[{"place":"INTEGER","id":"INTEGER","weight":"DOUBLE"}]'), recursive := TRUE)),
 held AS (
  SELECT p.name, n.place, max(n.weight) AS weight, any_value(p.letters) AS letters
  FROM (SELECT * FROM posting WHERE word IN ({list}) AND ($country::VARCHAR IS NULL OR contains(countries, $country))) p
  JOIN near n ON p.word = n.id GROUP BY ALL)
SELECT name FROM held GROUP BY name ORDER BY sum(weight) DESC, any_value(letters), name LIMIT $most;

-- name: names
-- The names of the register that have these numbers.
-- grain: one name of the list
-- reads: name
-- writes: nothing
SELECT number, key FROM name WHERE id IN ({list});

-- name: standing
-- Facts by which candidates of equal score are sorted. The numbers of the companies are literals in the statement,
-- since the engine does not use an index for joined values.
-- grain: one company of the list
-- reads: company; $folded
-- writes: nothing
SELECT number, status = 'ACTIVE' AS active, registration = 'ISSUED' AS issued,
  $folded <> '' AND list_contains(list_transform(list_prepend(name, names), lambda x: folded(x)), $folded) AS exact_name
FROM company WHERE number IN ({list});

-- name: companies
-- All columns of some companies.
-- grain: one company of the list
-- reads: company
-- writes: nothing
SELECT * EXCLUDE (updated), strftime(updated, '%Y-%m-%dT%H:%M:%SZ') AS updated FROM company WHERE number IN ({list});

-- name: hosts
-- Domains of companies.
-- grain: one host of a company of the list
-- reads: domain
-- writes: nothing
SELECT number, host FROM domain WHERE number IN ({list}) ORDER BY host;

-- name: named
-- Legal name of the company with this LEI.
-- grain: one company, or none
-- reads: company; $lei
-- writes: nothing
SELECT name FROM company WHERE lei = $lei LIMIT 1;

-- name: drawn
-- The first active company from a given place of the register on, from which a question with a known answer is made.
-- grain: one company, or none
-- reads: company; $share (0 to 1: how far down the register)
-- writes: nothing
SELECT lei, name FROM company
WHERE number >= 1 + floor($share::DOUBLE * (SELECT max(number) FROM company)) AND status = 'ACTIVE' ORDER BY number LIMIT 1;
