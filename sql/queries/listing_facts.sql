-- What is known of the endpoints with news, for their listing leaves; of all where $every is true.
-- Listed as in queries/listings: a (source, source id) is where its newest record put it, and the seller's own newest
-- one speaks. A third party's listing alone brings nothing into the market (is_in_market).
-- grain: one capability with a known address; `listed` is false where no source names it now, or the market does not hold it
-- reads: $every, dirty, endpoint, listing, seen, class_mapped
-- writes: nothing
WITH news AS (SELECT cap FROM endpoint WHERE $every::BOOLEAN OR cap IN (SELECT cap FROM dirty)),
 sources AS (SELECT DISTINCT source, source_id FROM listing SEMI JOIN news USING (cap)),
 wanted AS (          -- also where those sources pointed before: a listing that moved leaves the capability that it was of
  FROM news UNION SELECT cap FROM listing SEMI JOIN sources USING (source, source_id)),
 newest AS (
  SELECT * FROM listing SEMI JOIN sources USING (source, source_id)
  QUALIFY is_newest(row(source, source_id), t, log_offset, event_id)),
 live AS (
  SELECT cap, speaking_listing(seller_controlled, t, log_offset, event_id, claims) AS best,
    -- what a 402 declares is no row that somebody lists; its defects are its own
    max({own: seller_controlled, t: t, o: log_offset, id: event_id, defects: defects}) FILTER (source <> '402') AS listed
  FROM newest SEMI JOIN wanted USING (cap) WHERE NOT gone GROUP BY cap),
 -- the class that we gave it goes before the one that it names
 mapped AS (
  SELECT cap, class FROM class_mapped SEMI JOIN wanted USING (cap)
  QUALIFY is_newest(cap, t, log_offset, event_id))
SELECT e.cap, e.url, e.method, e.tool, live.cap IS NOT NULL AND is_in_market(live.best.own, s.terms_t) AS listed,
  coalesce(live.best.own, FALSE) AS own,
  coalesce(m.class, json_extract_string(live.best.claims, '$.class')) AS class, json_extract_string(live.best.claims, '$.description') AS description,
  listing_defects_of(live.listed, s.terms_t) AS listing_defects, s.terms_defects, s.differs
FROM endpoint e SEMI JOIN wanted USING (cap) LEFT JOIN live USING (cap) LEFT JOIN seen s USING (cap) LEFT JOIN mapped m USING (cap)
ORDER BY e.cap
