-- The rows of the chunk as plain numbers, for the arithmetic of pipelines/3-grade/fold.ts.
-- grain: one observation
-- reads: grade_rows (a view); window_start, none, and the bits of packed.ts
-- writes: nothing; `facts` holds the time since the start of the window in ms, times packed_scale, and what the row says;
--   honest and schema_ok are 2 where they are unknown; a number that is missing is `none`
SELECT ep,
  ((epoch_ms(t) - epoch_ms(param('window_start'))) * param('packed_scale') + kind * param('packed_kind')
    + coalesce(live, FALSE)::INTEGER * param('packed_live') + coalesce(settled, FALSE)::INTEGER * param('packed_settled')
    + coalesce(delivered, FALSE)::INTEGER * param('packed_delivered') + coalesce(refunded, FALSE)::INTEGER * param('packed_refunded')
    + coalesce(honest::INTEGER, 2) * param('packed_honest') + coalesce(schema_ok::INTEGER, 2) * param('packed_schema')
    + coalesce(input IN ('example', 'known_answer'), FALSE)::INTEGER * param('packed_example')
    + CASE WHEN fault IS NULL THEN 0 WHEN fault = 'blocked' THEN param('packed_blocked') WHEN fault = 'bad_input' THEN param('packed_bad_input')
      WHEN fault = 'unconfirmed' THEN param('packed_unconfirmed') ELSE param('packed_fault') END)::DOUBLE AS facts,
  coalesce(latency_ms, param('none')) AS latency_ms, coalesce(price, param('none')) AS price,
  coalesce(w, 1.0) AS w, coalesce(delivery, 0.0) AS delivery, coalesce(outcome, param('none')) AS outcome
FROM grade_rows;
