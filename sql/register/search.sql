-- name: asked
-- A question as its names and numbers are compared.
-- grain: one question
-- reads: $name, $number, $domain
-- writes: nothing
SELECT folded($name) AS folded, plain_name($name) AS key, number_key($number) AS number, nullif(host_of($domain), '') AS host;

-- name: by_lei
-- grain: the company of a LEI
-- reads: company; $lei
-- writes: nothing
SELECT number FROM company WHERE lei = $lei;

-- name: by_number
-- Register numbers are unique within one register only: those of all of them, unless one is named.
-- grain: one company; of more than $most the first by LEI
-- reads: register_number, company; $number, $authority, $country (null: any), $most
-- writes: nothing
SELECT r.number FROM register_number r JOIN company c USING (number)
WHERE r.key = $number AND ($authority::VARCHAR IS NULL OR r.authority = $authority)
  AND ($country::VARCHAR IS NULL OR $country IN (left(c.jurisdiction, 2), c.legal_country, c.hq_country))
ORDER BY c.status = 'ACTIVE' DESC, r.number LIMIT $most;

-- name: by_host
-- grain: one company
-- reads: domain; $host, $most
-- writes: nothing
SELECT number FROM domain WHERE host = $host ORDER BY number LIMIT $most;

-- name: by_key
-- Names that are equal as they are compared.
-- grain: one name
-- reads: name; $key, $country (null: any), $most
-- writes: nothing
SELECT number, key FROM name WHERE key = $key
  AND ($country::VARCHAR IS NULL OR $country IN (jurisdiction, legal_country, hq_country)) ORDER BY active DESC, number LIMIT $most;

-- name: word
-- grain: a word of the register
-- reads: vocabulary; $word
-- writes: nothing
SELECT id, names FROM vocabulary WHERE word = $word;

-- name: all_words
-- Names that hold up to three words, which are the rarest of a question; the shortest names come first, as what is nearest to it.
-- grain: one name
-- reads: posting, name; $a, $b, $c (the same again where there are fewer), $country (null: any), $most
-- writes: nothing
WITH held AS (
  SELECT name FROM posting WHERE word = $a INTERSECT SELECT name FROM posting WHERE word = $b
  INTERSECT SELECT name FROM posting WHERE word = $c)
SELECT n.number, n.key FROM name n JOIN held h ON h.name = n.id
WHERE $country::VARCHAR IS NULL OR $country IN (n.jurisdiction, n.legal_country, n.hq_country)
ORDER BY length(n.key), n.active DESC, n.id LIMIT $most;

-- name: near
-- Words written nearly like one: those that share the most of its threes of letters, by the edits between them.
-- grain: one word; alike = 1 minus edits by the longer length
-- reads: gram, vocabulary; $word, $least (of alike)
-- writes: nothing
WITH shared AS (
  SELECT g.word, count(*) AS threes FROM gram g JOIN (SELECT unnest(grams_of($word)) AS gram) w USING (gram)
  GROUP BY g.word HAVING count(*) >= greatest(2, len(grams_of($word)) // 3) ORDER BY threes DESC, g.word LIMIT 400),
 told AS (
  SELECT v.id, v.names, v.word,
    1 - damerau_levenshtein(v.word, $word) / greatest(length(v.word), length($word)) AS alike
  FROM vocabulary v JOIN shared s ON s.word = v.id)
SELECT id, names, alike FROM told WHERE alike >= $least ORDER BY alike DESC, names DESC, id LIMIT 12;

-- name: similar
-- Names by how many letters of the question they hold, in words written alike.
-- grain: one name
-- reads: posting, name; $near (JSON: [{place, id, weight}], place = which word of the question), $country (null: any), $most
-- writes: nothing
WITH near AS (
  SELECT unnest(from_json($near, '[{"place":"INTEGER","id":"INTEGER","weight":"DOUBLE"}]'), recursive := TRUE)),
 held AS (
  SELECT p.name, n.place, max(n.weight) AS weight FROM posting p JOIN near n ON p.word = n.id GROUP BY ALL),
 best AS (SELECT name, sum(weight) AS weight FROM held GROUP BY name ORDER BY weight DESC, name LIMIT 20 * $most)
SELECT n.number, n.key FROM name n JOIN best b ON b.name = n.id
WHERE $country::VARCHAR IS NULL OR $country IN (n.jurisdiction, n.legal_country, n.hq_country)
ORDER BY b.weight DESC, length(n.key), n.active DESC, n.id LIMIT $most;

-- name: standing
-- What the order of equals depends on.
-- grain: one company of $numbers (JSON array)
-- reads: company; $numbers, $folded
-- writes: nothing
SELECT number, lei, status = 'ACTIVE' AS active, registration = 'ISSUED' AS issued,
  $folded <> '' AND list_contains(list_transform(list_prepend(name, names), lambda x: folded(x)), $folded) AS exact_name
FROM company WHERE number IN (SELECT unnest(from_json($numbers, '["INTEGER"]')));

-- name: companies
-- All that is known of some companies.
-- grain: one company of $numbers (JSON array)
-- reads: company, domain; $numbers
-- writes: nothing
WITH wanted AS (SELECT unnest(from_json($numbers, '["INTEGER"]')) AS number)
SELECT c.* EXCLUDE (updated), strftime(c.updated, '%Y-%m-%dT%H:%M:%SZ') AS updated,
  (SELECT list(host ORDER BY host) FROM domain d WHERE d.number = c.number) AS domains
FROM company c WHERE c.number IN (SELECT number FROM wanted);
