-- Updates, from the facts of the records being loaded (seen_new, quoted_new, payee_new), the totals of handshakes and
-- paid calls, the newest 402 of each endpoint, and the payees that its 402s named.
-- grain: seen = one capability; quoted = one price of one capability; payee = one address of one capability
-- reads: temp seen_new, temp quoted_new, temp payee_new; $kept (addresses of one capability)
-- writes: seen, quoted, payee
-- Of two 402s, the later one by time, then by id, counts as newer, so that the order of loading does not matter.
CREATE OR REPLACE TEMP MACRO is_newer(n_t, n_id, t, id) AS coalesce(t IS NULL OR n_t > t OR n_t = t AND n_id > id, FALSE);
-- Counts and times change with each probe and are updated in place. The terms of a 402 contain lists, and an update of
-- lists writes the whole row again; so they are set only if they have changed, which is rare.
MERGE INTO seen USING seen_new AS n ON seen.cap = n.cap
WHEN MATCHED AND is_newer(n.terms_t, n.terms_id, seen.terms_t, seen.terms_id)
  AND (n.price_micro IS DISTINCT FROM seen.price_micro OR n.pay_to IS DISTINCT FROM seen.pay_to OR n.offers IS DISTINCT FROM seen.offers
    OR n.protocols IS DISTINCT FROM seen.protocols OR n.terms_defects IS DISTINCT FROM seen.terms_defects OR n.differs IS DISTINCT FROM seen.differs)
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
  terms_id = CASE WHEN is_newer(n.terms_t, n.terms_id, seen.terms_t, seen.terms_id) THEN n.terms_id ELSE seen.terms_id END,
  terms_t = greatest(seen.terms_t, n.terms_t), last_tried = greatest(seen.last_tried, n.last_tried)
WHEN NOT MATCHED THEN INSERT BY NAME;
INSERT INTO quoted SELECT cap, asked_micro FROM quoted_new ANTI JOIN quoted USING (cap, asked_micro);
MERGE INTO payee USING payee_new AS n ON payee.cap = n.cap AND payee.pay_to = n.pay_to
WHEN MATCHED AND n.t > payee.t THEN UPDATE SET t = n.t
WHEN NOT MATCHED THEN INSERT BY NAME;
-- A seller may name another address in each 402, so only the $kept addresses seen last are stored. The order of
-- loading does not matter, since a removed address is older than every address that stays.
DELETE FROM payee USING (
  SELECT cap, pay_to FROM payee
  SEMI JOIN (SELECT cap FROM payee SEMI JOIN payee_new USING (cap) GROUP BY cap HAVING count(*) > $kept) USING (cap)
  QUALIFY row_number() OVER (PARTITION BY cap ORDER BY t DESC, pay_to) > $kept) AS old
WHERE payee.cap = old.cap AND payee.pay_to = old.pay_to;
