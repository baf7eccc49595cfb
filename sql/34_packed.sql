-- The rows of the chunk as plain numbers, for the arithmetic of pipelines/3-grade/fold.ts.
-- grain: one observation
-- reads: grade_said; window_start, none, said_scale and a bit for each thing said
-- writes: nothing; a missing number is `none`, a time is ms since the start of the window
SELECT ep,
  ((epoch_ms(t) - epoch_ms(param('window_start'))) * param('said_scale') + CASE WHEN counted THEN param('said_counted') ELSE 0 END
    + CASE WHEN own THEN param('said_own') ELSE 0 END + CASE WHEN unconfirmed THEN param('said_unconfirmed') ELSE 0 END
    + CASE WHEN paid THEN param('said_paid') ELSE 0 END + CASE WHEN wall THEN param('said_wall') ELSE 0 END
    + CASE WHEN answered THEN param('said_answered') ELSE 0 END
    + CASE WHEN honest THEN param('said_honest') WHEN NOT honest THEN param('said_dishonest') ELSE 0 END
    + CASE WHEN settled THEN param('said_settled') ELSE 0 END + CASE WHEN refunded THEN param('said_refunded') ELSE 0 END
    + CASE WHEN delivered THEN param('said_delivered') ELSE 0 END + CASE WHEN example THEN param('said_example') ELSE 0 END
    + CASE WHEN schema_ok THEN param('said_fits') WHEN NOT schema_ok THEN param('said_misfits') ELSE 0 END)::DOUBLE AS said,
  coalesce(ms, param('none')) AS ms, coalesce(price, param('none')) AS price,
  w, delivery, coalesce(outcome, param('none')) AS outcome
FROM grade_said;
