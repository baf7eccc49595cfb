/**
 * Tests of `npm run test:slow`: tables of disasters, kills from outside, drawn histories of whole machines, the same
 * record told by several owners, what starts many processes, and the market's letters after all of its days. `npm test`
 * has all others, three days of the market among them.
 */
export const SLOW = [
  "test/deploy/{action,image,installed,units}.test.ts",
  "test/fixtures/market/world.test.ts",
  "test/flow/bad-input.test.ts",
  "test/flow/{kill,letters}.test.ts",
  "test/flow/drawn-letters.test.ts",
  "test/flow/{mainnet,operate-page,selling}.test.ts",
  "test/infra/rails/sender.test.ts",
  "test/infra/log/kill.test.ts",
  "test/infra/secrets.test.ts",
  "test/pipelines/2-ingest/{ingest,kill-and-race,large,seams,tidy}.test.ts",
  "test/pipelines/3-grade/equal.test.ts",
  "test/pipelines/4-publish/disasters/*.test.ts",
  "test/pipelines/5-archive/{archive,as-of,evidence,history,killed,published-calls,supersede}.test.ts",
  "test/pipelines/audit/{archives,command,recompute}.test.ts",
  "test/pipelines/corrections/{consequences,model}.test.ts",
  "test/pipelines/mirror/{command,heal,power,segment,segment-cards,table}.test.ts",
  "test/pipelines/roles/{archive,archive-faults,hold,identity,live,live-tables,payees,takeover}.test.ts",
  "test/pipelines/orders/{adversaries-long,histories-long,histories-real}.test.ts",
  "test/commands/{buy-killed,day-story,machine-status,npm-start,own,replica,upgrade}.test.ts",
  "test/serving/buy/{escrow-killed,truths}.test.ts",
  "test/serving/fuzz-long.test.ts",
  // The compiler, four times over a program that has installed the client.
  "test/serving/client/package.test.ts",
  "test/serving/work/{documents,extract,hostile-documents}.test.ts",
  "test/flow/buy.test.ts",
  // 50 processes, one after the other: three minutes of an idle machine, fifteen of a busy one.
  "test/flow/buying-killed.test.ts",
  "test/pipelines/6-notify/kill.test.ts",
  "test/pipelines/witness/kill.test.ts",
  "test/pipelines/monitor/{command,kill}.test.ts",
];
