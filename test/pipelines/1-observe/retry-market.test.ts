import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readLedger } from "../../../fixtures/market/ledger.ts";
import { startWorld, type World } from "../../../fixtures/market/world.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { planDay } from "../../helpers/plan-day.ts";
import { END, START, salt } from "./day.ts";
import { marketObserver } from "./market-observer.ts";
import { CAPS, DAY, FakeLog, LogMemory } from "./world.ts";

let dir: string;
let market: World;
let egress: Egress;
let log: FakeLog;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "retry-"));
  market = await startWorld({ dir, leaseSeconds: 3_600 });
  log = new FakeLog();
  const memory = new LogMemory(log);
  memory.retriesDue = true;
  egress = createEgress({ allowLoopback: true, userAgent: "touchstone-test" });
  const observer = marketObserver(market.info, { log, egress, clock: new FixedClock(START), memory, seed: 9 });
  await observer.intakeCatalogue(market.info.catalogue);
  for (const { url } of market.info.newcomers) await observer.intakeCatalogue(url);
  const plan = planDay({ day: DAY, salt, listed: await memory.listed(), caps: CAPS, now: START });
  // Two calls each: the second is not followed by another look.
  const lines = plan.lines.map((line) => {
    const paid = line.calls.filter(({ kind }) => kind === "paid").slice(0, 2);
    return { ...line, calls: paid.map((call) => ({ ...call, blind: false })) };
  });
  await observer.observeSpan({ ...plan, lines }, START, END);
  observer.stop();
});

afterAll(async () => {
  await egress?.close();
  await market?.stop();
  await rm(dir, { recursive: true, force: true });
});

const sellerOf = (name: string) => market.info.sellers.find((one) => one.name === name)!;

/** What the record says of retries at one seller, and the payment that was shown. */
function looksAt(name: string) {
  const { origin } = sellerOf(name);
  const intents = new Map(
    log.envelopes().flatMap(({ type, event_id, body }) => {
      const intent = body as BodyOf<"paid.intent">;
      return type === "paid.intent" && intent.url.startsWith(`${origin}/`) ? [[event_id, intent] as const] : [];
    }),
  );
  return log
    .bodies("paid.followup")
    .flatMap(({ of, kind, retried }) => (intents.has(of) ? [{ kind, retried, intent: intents.get(of)! }] : []));
}

test.each([
  ["slow", { outcome: "answered", status: 200, same_bytes: true }],
  ["honest-v2", { outcome: "asked_again", status: 402, same_bytes: null }],
  ["honest-v1", { outcome: "asked_again", status: 402, same_bytes: null }],
  ["mpp", { outcome: "asked_again", status: 402, same_bytes: null }],
  ["both", { outcome: "asked_again", status: 402, same_bytes: null }],
  ["mcp-paid", { outcome: "asked_again", status: 402, same_bytes: null }],
])("%s: the same payment shown once more, once, and nothing is charged for it", (name, retried) => {
  const looks = looksAt(name);
  expect(looks).toMatchObject([{ kind: "retried", retried }]);
  const { nonce } = looks[0]!.intent;
  const shown = readLedger(sellerOf(name).ledger).filter((line) => line.nonce === nonce);
  expect(shown.map(({ tx }) => tx !== undefined)).toEqual([true, false]);
});

test("a seller that took the money and gave nothing is looked at by what it was shown then", () => {
  const looks = looksAt("thief");
  expect(looks.length).toBeGreaterThan(0);
  expect(looks.every(({ kind, retried }) => kind === "shown_again" && retried?.outcome === "failed")).toBe(true);
});
