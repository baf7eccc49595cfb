-- Totals of handshakes and paid calls, the newest 402 of each endpoint, and whom its 402s ever named.
-- grain: seen = one capability; quoted = one price of one capability; payee = one address of one capability
-- reads: temp seen_new, temp quoted_new, temp payee_new; $kept (addresses of one capability)
-- writes: seen, quoted, payee
-- Newer by time, then by id: whichever came first, the same 402 stays.
MERGE INTO seen USING seen_new AS n ON seen.cap = n.cap
WHEN MATCHED AND n.terms_t IS NOT NULL AND (seen.terms_t IS NULL OR {t: n.terms_t, id: n.terms_id} > {t: seen.terms_t, id: seen.terms_id})
THEN UPDATE SET
  probes = seen.probes + n.probes, answered = seen.answered + n.answered, asked = seen.asked + n.asked,
  paid_calls = seen.paid_calls + n.paid_calls,
  first_seen = least(seen.first_seen, n.first_seen), last_seen = greatest(seen.last_seen, n.last_seen),
  terms_t = n.terms_t, terms_id = n.terms_id, price_micro = n.price_micro, pay_to = n.pay_to, offers = n.offers,
  protocols = n.protocols, terms_defects = n.terms_defects, differs = n.differs,
  last_tried = greatest(seen.last_tried, n.last_tried)
WHEN MATCHED THEN UPDATE SET
  probes = seen.probes + n.probes, answered = seen.answered + n.answered, asked = seen.asked + n.asked,
  paid_calls = seen.paid_calls + n.paid_calls,
  first_seen = least(seen.first_seen, n.first_seen), last_seen = greatest(seen.last_seen, n.last_seen),
  last_tried = greatest(seen.last_tried, n.last_tried)
WHEN NOT MATCHED THEN INSERT BY NAME;
INSERT INTO quoted SELECT cap, asked_micro FROM quoted_new ANTI JOIN quoted USING (cap, asked_micro);
MERGE INTO payee USING payee_new AS n ON payee.cap = n.cap AND payee.pay_to = n.pay_to
WHEN MATCHED AND n.t > payee.t THEN UPDATE SET t = n.t
WHEN NOT MATCHED THEN INSERT BY NAME;
-- A seller may name another address in each 402: those seen last stay. What goes is older than all that stay, which
-- only grow newer, so the order of arrival does not matter.
DELETE FROM payee USING (
  SELECT cap, pay_to FROM payee
  SEMI JOIN (SELECT cap FROM payee SEMI JOIN payee_new USING (cap) GROUP BY cap HAVING count(*) > $kept) USING (cap)
  QUALIFY row_number() OVER (PARTITION BY cap ORDER BY t DESC, pay_to) > $kept) AS old
WHERE payee.cap = old.cap AND payee.pay_to = old.pay_to;
