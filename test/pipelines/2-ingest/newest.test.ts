import { describe, expect, test } from "vitest";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import type { NewRecord } from "../../../infra/log/log.ts";
import { volatileRows } from "../../../pipelines/2-ingest/volatile.ts";
import { fc } from "../../helpers/histories.ts";
import { at, capOf, handshake, intent, listing } from "./records.ts";
import { openTestWorld } from "./world.ts";

/**
 * What is shown of an endpoint's newest handshake and of the newest signed offers, in whatever order its records arrive:
 * planned handshakes have the time of their start, and a silent one is appended when its timeout is over.
 */
const COUNTS = { present: 1, unread: 0, valid: 1, authorised: 1 };
const NO_TERMS = { live: false, honest: null, latency_ms: null, price: null, pay_to: null, terms: null };
const KINDS = {
  asked: {},
  signed: { signed_offers: COUNTS },
  silent: { ...NO_TERMS, state: "silent", status: null },
  broken: { ...NO_TERMS, state: "status", status: 500 },
  malformed: { ...NO_TERMS, state: "malformed" },
  ours: { ...NO_TERMS, state: "silent", status: null, fault: "ours" },
  /** A paid call, whose first leg got a 402 too. */
  paid: null,
} as const;
type Kind = keyof typeof KINDS;
interface Step {
  kind: Kind;
  /** Minute at which it was observed; several records may have one. */
  minute: number;
}
interface Arrived extends Step {
  record: NewRecord & { eventId: string };
}

const timeOf = (minute: number): string => at(`07:0${minute}:00`);
function arrivedOf(name: string, { kind, minute }: Step, n: number): Arrived {
  const time = timeOf(minute);
  const over = KINDS[kind];
  if (over === null) return { kind, minute, record: intent(name, time, { attempt: n, slot: { block: n, minute } }) };
  return { kind, minute, record: handshake(name, time, over, `${name} ${n}`) };
}

/** The newest by time, then by id. */
const newestOf = (arrived: readonly Arrived[], wants: (kind: Kind) => boolean): Kind | null =>
  arrived
    .filter(({ kind }) => wants(kind))
    .reduce<Arrived | null>((best, one) => {
      const isNewer =
        !best || one.minute > best.minute || (one.minute === best.minute && one.record.eventId > best.record.eventId);
      return isNewer ? one : best;
    }, null)?.kind ?? null;

/** What readers have to see of an endpoint: null where the newest handshake got terms, or where none is signed. */
function expectedOf(arrived: readonly Arrived[]) {
  const last = newestOf(arrived, (kind) => kind !== "paid" && kind !== "ours");
  const terms = newestOf(arrived, (kind) => kind === "asked" || kind === "signed");
  const isShown = last !== null && last !== "asked" && last !== "signed";
  const shown = isShown ? { state: KINDS[last as "silent"].state as string } : { state: null };
  return { ...shown, offers: terms === "signed" ? COUNTS : null };
}

async function seenBy(lake: Lake): Promise<Map<string, ReturnType<typeof expectedOf>>> {
  const rows = await volatileRows(lake, new Map());
  return new Map(
    rows.map(({ capability_id, last_state, payments }) => {
      const { offers } = JSON.parse(payments ?? "{}") as { offers?: typeof COUNTS | null };
      return [capability_id, { state: last_state === "asked" ? null : last_state, offers: offers ?? null }];
    }),
  );
}

const drawnStep = fc.record<Step>({
  kind: fc.constantFrom(...(Object.keys(KINDS) as Kind[])),
  minute: fc.nat({ max: 3 }),
});
const drawnHistories = fc.array(fc.array(drawnStep, { minLength: 2, maxLength: 4 }), { minLength: 40, maxLength: 50 });

/** All endpoints stand in one world, so that a history costs a few passes. */
async function proveOrders(histories: readonly (readonly Step[])[]): Promise<void> {
  const endpoints = histories.map((steps, i) => ({
    cap: capOf(`e${i}`),
    listed: listing(`e${i}`, at("01:00:00")),
    arrived: steps.map((step, n) => arrivedOf(`e${i}`, step, n)),
  }));
  const expectAll = async (lake: Lake, count: number) =>
    expect(await seenBy(lake)).toEqual(
      new Map(endpoints.map(({ cap, arrived }) => [cap, expectedOf(arrived.slice(0, count))])),
    );
  const [single, grouped] = [await openTestWorld(), await openTestWorld()];
  try {
    for (const world of [single, grouped]) await world.append(...endpoints.map(({ listed }) => listed));
    for (let n = 0; n < 4; n++) {
      await single.append(...endpoints.flatMap(({ arrived }) => arrived.slice(n, n + 1).map(({ record }) => record)));
      await single.ingest.pass();
      await expectAll(single.lake, n + 1);
    }
    await single.ingest.rebuild();
    await expectAll(single.lake, 4);
    await grouped.append(...endpoints.flatMap(({ arrived }) => arrived.map(({ record }) => record)));
    await grouped.ingest.pass();
    await expectAll(grouped.lake, 4);
  } finally {
    await single.close();
    await grouped.close();
  }
}

describe("the newest handshake and the signed offers of an endpoint", () => {
  test.each<[string, Step[]]>(
    [
      [
        "a silent handshake that was appended after a newer 402",
        [
          ["asked", 1],
          ["silent", 0],
        ],
      ],
      [
        "a signed 402 that was appended after a newer one without",
        [
          ["asked", 1],
          ["signed", 0],
        ],
      ],
      [
        "a signed 402 that was appended after a newer paid call and a newer malformed 402",
        [
          ["paid", 2],
          ["malformed", 1],
          ["signed", 0],
        ],
      ],
      [
        "a silent handshake that was appended after a newer fault of ours",
        [
          ["ours", 1],
          ["silent", 0],
        ],
      ],
    ].map(([what, steps]) => [what as string, (steps as [Kind, number][]).map(([kind, minute]) => ({ kind, minute }))]),
  )("%s", (_what, steps) => proveOrders([steps]));

  test("drawn orders: one by one, in one group and loaded again, readers see the newest", () =>
    fc.assert(fc.asyncProperty(drawnHistories, proveOrders), { numRuns: 2, endOnFailure: true }));
});
