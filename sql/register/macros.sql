-- Macros that normalise names and numbers before these are compared. They are stored in the register file, so that
-- import and lookups use one definition.
-- grain: none
-- reads: nothing
-- writes: macros folded, without_form, without_han_form, plain_name, words_of, grams_of, number_key, lei_digits, lei_holds, host_of; temporary macros example_of
--   and refusals

-- Lower case without accents and without the points of abbreviations (S.p.A. becomes spa); every other sign becomes a
-- space. The pattern lists the signs to replace, not the letters to keep: the engine compiles it in every query, which
-- would take milliseconds for a pattern of all Unicode letters.
CREATE OR REPLACE MACRO folded(text) AS trim(regexp_replace(regexp_replace(regexp_replace(
  translate(replace(replace(replace(replace(replace(strip_accents(translate(lower(nfc_normalize(text)),
      'ａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ０１２３４５６７８９　', 'abcdefghijklmnopqrstuvwxyz0123456789 ')),
    'ß', 'ss'), 'æ', 'ae'), 'œ', 'oe'), 'þ', 'th'), '&', ' and '), 'øłđðı', 'olddi'),
  '[''’`´]', '', 'g'), '\b(\w)\.', '\1', 'g'),
  '[\x00-/:-@\[-`{-©«-±´¶-¸»¿×÷\x{2000}-\x{206F}\x{2190}-\x{2BFF}\x{3000}-\x{3004}\x{3008}-\x{3020}\x{30FB}\x{FF00}-\x{FF0F}\x{FF1A}-\x{FF20}]+',
  ' ', 'g'));

-- Removes legal forms from the end of a name, then from its beginning; docs/companies-lookup.md has the same list.
CREATE OR REPLACE MACRO without_form(text) AS regexp_replace(regexp_replace(text,
  '( (and co|gmbh|mbh|ag|kg|kgaa|ohg|ug|ug haftungsbeschrankt|ev|eg|se|inc|incorporated|corp|corporation|co|company|llc|l l c|llp|lp'
  '|limited partnership|ltd|limited|plc|public limited company|pty|pte|pvt|private|sa|s a|sas|sasu|sarl|eurl|sci|snc|sca|scs|spa|s p a'
  '|srl|s r l|srls|bv|b v|nv|n v|cv|vof|bvba|ab|as|a s|asa|aps|oy|oyj|ou|sl|s l|slu|sau|lda|ltda|sgps|eireli|sp zoo|sp z oo|sp z o o'
  '|sro|s r o|spol|doo|d o o|ad|dd|ood|eood|ead|kft|zrt|nyrt|bt|sdn|bhd|tbk|kk|k k|jsc|pjsc|ojsc|cjsc|fze|wll|aktiengesellschaft'
  '|aktiebolag|gesellschaft mit beschrankter haftung|societe anonyme|sociedad anonima|sociedad limitada|societa per azioni'
  '|societa a responsabilita limitata|spolka z ograniczona odpowiedzialnoscia|spolka z oo|spolka akcyjna'
  '|besloten vennootschap|naamloze vennootschap|anonim sirketi|limited sirketi|kabushiki kaisha))+$', ''),
  '^((ooo|oao|zao|pao|ooo|ооо|оао|зао|пао|ао|pt|uab|sia|as) )+', '');
CREATE OR REPLACE MACRO without_han_form(text) AS regexp_replace(regexp_replace(text, '^(?:株式会社|有限会社|合同会社) ?(.)', '\1'),
  '(.) ?(?:株式会社|有限会社|合同会社|股份有限公司|有限责任公司|有限公司)$', '\1');
-- without_form and without_han_form remove a form only beside another word or sign, so a name that is only a legal
-- form does not change.
CREATE OR REPLACE MACRO plain_name(text) AS without_han_form(without_form(folded(text)));

CREATE OR REPLACE MACRO words_of(plain) AS string_split(plain, ' ');
-- Trigrams of a word, its ends marked with an underscore: _al, all, lli, .., nz_.
CREATE OR REPLACE MACRO grams_of(word) AS
  list_distinct(list_transform(range(1, length(word) + 1), lambda i: substr('_' || word || '_', i, 3)));

-- Keeps only the letters and digits of a company's register number, in upper case and without leading zeros, since one
-- number is written in several ways.
CREATE OR REPLACE MACRO number_key(text) AS nullif(ltrim(upper(regexp_replace(text, '[^0-9A-Za-z]', '', 'g')), '0'), '');

-- Check digits of an LEI (ISO 17442): letters are replaced by 10 to 35, and the number must be 1 modulo 97. 18
-- characters and two digits give at most 38 digits, which a HUGEINT holds.
CREATE OR REPLACE MACRO lei_digits(lei) AS
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(
  replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(replace(lei,
  'A','10'),'B','11'),'C','12'),'D','13'),'E','14'),'F','15'),'G','16'),'H','17'),'I','18'),'J','19'),'K','20'),'L','21'),'M','22'),
  'N','23'),'O','24'),'P','25'),'Q','26'),'R','27'),'S','28'),'T','29'),'U','30'),'V','31'),'W','32'),'X','33'),'Y','34'),'Z','35');
CREATE OR REPLACE MACRO lei_holds(lei) AS lei_digits(lei)::HUGEINT % 97 = 1;

-- A host name without `www.`; empty if the text is no host name.
CREATE OR REPLACE MACRO host_of(text) AS
  regexp_extract(lower(trim(text)), '^(?:https?://)?(?:www\.)?((?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63})\.?(?:[:/].*)?$', 1);

-- The report on rows that an import does not store: `example_of` prints one row; `refusals` counts the rows of each
-- reason and returns the first five examples. Its parameters: refused_rows has place, example and reason of each
-- refused row, and reader_errors is the reject table of the engine's CSV reader.
CREATE OR REPLACE TEMP MACRO example_of(id, text) AS coalesce(left(id, 40), '') || ' ' || coalesce(left(text, 60), '');
CREATE OR REPLACE TEMP MACRO refusals(refused_rows, reader_errors) AS TABLE
SELECT reason, count(*) AS rows, list(example ORDER BY place)[1:5] AS examples FROM query_table(refused_rows) GROUP BY reason
UNION ALL
SELECT 'no_row', count(DISTINCT line), list('line ' || line || ': ' || lower(replace(error_type::VARCHAR, '_', ' ')) ORDER BY line)[1:5]
FROM (SELECT line, min(error_type) AS error_type FROM query_table(reader_errors) GROUP BY line) HAVING count(*) > 0;
