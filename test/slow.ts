/**
 * Tests of `npm run test:slow`: tables of disasters, kills from outside, drawn histories of whole machines, the same record
 * told by several owners, and what starts many processes. `npm test` has all others, the whole way of the market among them.
 */
export const SLOW = [
  "test/deploy/image.test.ts",
  "test/fixtures/market/world.test.ts",
  "test/flow/bad-input.test.ts",
  "test/flow/kill.test.ts",
  "test/flow/lots.test.ts",
  "test/infra/log/kill.test.ts",
  "test/infra/secrets.test.ts",
  "test/pipelines/2-ingest/ingest.test.ts",
  "test/pipelines/2-ingest/kill-and-race.test.ts",
  "test/pipelines/2-ingest/large.test.ts",
  "test/pipelines/3-grade/equal.test.ts",
  "test/pipelines/4-publish/disasters/*.test.ts",
  "test/pipelines/5-archive/as-of.test.ts",
  "test/pipelines/5-archive/disasters.test.ts",
  "test/pipelines/5-archive/history.test.ts",
  "test/pipelines/5-archive/killed.test.ts",
  "test/pipelines/5-archive/supersede.test.ts",
  "test/pipelines/6-notify/kill.test.ts",
  "test/pipelines/audit/recompute.test.ts",
  "test/pipelines/corrections/model.test.ts",
  "test/pipelines/mirror/power.test.ts",
  "test/pipelines/mirror/table.test.ts",
  "test/pipelines/roles/{archive,archive-faults,hold,identity,live}.test.ts",
  "test/commands/replica.test.ts",
];
