-- The payee and domain table as the run that was just made left it.
-- grain: one endpoint that took money in its window
-- reads: thefts
-- writes: nothing
SELECT cap, pay_to, domain FROM thefts ORDER BY cap
