-- name: nobody_passed
-- Classes (kinds of questions whose right answers we know) and days on which at least $least payees were asked and
-- none passed, which suggests that the question is wrong. Control inputs, whose failures count as ours, are left out;
-- records that a correction withdrew are included.
-- grain: one class and UTC day
-- reads: $since, $until (UTC days, `until` exclusive), $least (payees), class_asked, samples
-- writes: nothing
SELECT a.class, strftime(a.t, '%Y-%m-%d') AS day, count(DISTINCT address_of(s.pay_to))::INTEGER AS payees
FROM class_asked a JOIN samples s ON s.obs_id = a.intent AND s.cap = a.cap AND s.kind = 1
WHERE NOT a.control AND a.t >= $since::DATE AND a.t < $until::DATE AND is_counted(s.kind, s.fault, s.settled)
GROUP BY a.class, strftime(a.t, '%Y-%m-%d')
HAVING NOT bool_or(is_passed(s.delivered, s.delivery, s.outcome)) AND count(DISTINCT address_of(s.pay_to)) >= $least::INTEGER
ORDER BY day, a.class;

-- name: calls_of
-- The calls with questions of one class and day that count for grading, without those that delivered nothing, since a
-- wrong question does not explain these. A call that was withdrawn for a wrong question and reinstated is left out
-- too, so that an operator's reinstatement stands.
-- grain: one paid call that no correction withdraws
-- reads: $class, $day, class_asked, samples, withdrawn, correction, paid_intent
-- writes: nothing
SELECT a.intent, a.cap, s.t, i.url
FROM class_asked a JOIN samples s ON s.obs_id = a.intent AND s.cap = a.cap AND s.kind = 1
  JOIN paid_intent i ON i.event_id = a.intent AND i.cap = a.cap ANTI JOIN withdrawn w ON w.obs_id = s.obs_id
  ANTI JOIN correction c ON c.cap = a.cap AND c.record_id = a.intent AND c.fault = 'wrong_checker'
WHERE NOT a.control AND a.class = $class AND on_day(a.t, $day) AND is_counted(s.kind, s.fault, s.settled)
  AND NOT is_unserved(s.settled, s.delivered, s.refunded)
ORDER BY s.t, a.intent;
