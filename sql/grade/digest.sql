-- What the letters of some endpoints stand on: the lines of the window's rows that no correction withdrew.
-- grain: one endpoint
-- reads: every_sample, grade_due, grade_withdrawn; now, window_start, chunk; $eps (JSON array)
-- writes: nothing; before each line stands the row's id and a quotation mark, since digests.ts puts them in order of it
-- Members in the order of RFC 8785: by their names. Where \u00 stands (grade/macros, or an id that would hide where it
-- ends) the digest is made outside.
WITH rows AS (
  SELECT c.ep, s.* FROM every_sample s JOIN (
      SELECT cap, ep FROM grade_due SEMI JOIN (SELECT unnest(from_json($eps, '["UINTEGER"]')) AS ep) USING (ep)
      WHERE chunk = param('chunk')) c USING (cap)
    ANTI JOIN grade_withdrawn w ON w.row = s.row
  WHERE s.t >= param('window_start') AND s.t < param('now'))
SELECT ep, encode(string_agg(concat(CASE WHEN contains(obs_id, '"') OR contains(obs_id, e'\n') THEN '\u00' ELSE obs_id END,
  '"{"delivered":', json_boolean(delivered), ',"delivery":', json_number(delivery), ',"fault":', json_text(fault),
  ',"honest":', json_boolean(honest), ',"kind":', kind, ',"latency_ms":', json_number(latency_ms), ',"live":', json_boolean(live),
  ',"obs_id":', json_text(obs_id), ',"outcome":', json_number(outcome), ',"payer":', json_text(payer), ',"price":', json_number(price),
  ',"refunded":', json_boolean(refunded), ',"schema_ok":', json_boolean(schema_ok), ',"settled":', json_boolean(settled),
  ',"t":"', json_time(t, t::VARCHAR), 'Z","w":', json_number(w), e'}\n'), '')) AS lines
FROM rows GROUP BY ep;
