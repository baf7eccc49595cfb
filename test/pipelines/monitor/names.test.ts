import { createHmac } from "node:crypto";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { exitCodeOf } from "../../../commands/exit.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import { parseNames, readNewLeaves } from "../../../pipelines/monitor/names.ts";
import type { WatchedName } from "../../../pipelines/monitor/state.ts";
import { Webhook } from "../../../pipelines/monitor/webhook.ts";
import { capOf, cardOf, listingDraft, PAYEE, PublicRecord } from "../../helpers/public-record.ts";
import { fill, folder, keys, listening, MonitorBed, SELLER, STRANGER, sellerCard, sellerListing } from "./testbed.ts";

/** What a seller's alarm tells of its own endpoints, and that it is told until it was taken. */
const CAP = capOf(SELLER);
const OTHER_PAYEE = "0x2222222222222222222222222222222222222222";
const names = (given: Partial<Record<"cap" | "payTo" | "domain", string[]>>): WatchedName[] =>
  parseNames({ cap: [], payTo: [], domain: [], ...given });
const BY_PAYEE = names({ payTo: [PAYEE.toUpperCase().replace("0X", "0x")] });

let record: PublicRecord;
let bed: MonitorBed;
beforeEach(async () => {
  record = await PublicRecord.open();
  bed = await MonitorBed.open();
  await fill(record, "others", 5);
});
afterEach(async () => {
  await bed.close();
  await record.close();
});

const round = (watch: readonly WatchedName[], more = {}) =>
  bed.round({ sources: [folder(record)], keys: keys(record), names: watch, ...more });
const toldNow = (): unknown[] => bed.told.splice(0).map(({ change, says }) => [change, says]);

test("a new name tells what it stands for, and after that what changes, leaf by leaf", async () => {
  await record.publish([sellerListing()], sellerCard(record, "B"));
  const first = await round(BY_PAYEE);
  expect([first.noticesPrinted, first.foundNames]).toEqual([
    0,
    [
      expect.objectContaining({
        ...{ capability_id: CAP, url: SELLER.url, listed: true, names: [`pay-to ${PAYEE}`] },
        card: expect.objectContaining({ band: "B" }),
      }),
    ],
  ]);
  expect((await round(BY_PAYEE)).foundNames).toEqual([]);
  // Cards of others, and figures alone, are no change.
  await record.publish(
    [listingDraft(STRANGER)],
    record.grades([cardOf(STRANGER)], "B."),
    sellerCard(record, "B", [], 7),
  );
  expect([(await round(BY_PAYEE)).noticesPrinted, bed.told]).toEqual([0, []]);
  await record.publish(
    sellerCard(record, "F", ["took_the_money"], 8),
    [{ kind: "dispute", capability_id: CAP, body: { says: "it was our own fault" } } as never],
    [{ kind: "correction", capability_id: CAP, body: { says: "we misread the terms" } } as never],
    sellerCard(record, "B", [], 9),
    [sellerListing(OTHER_PAYEE, "0.030000")],
    [{ kind: "delisting", capability_id: CAP } as never],
    [sellerListing()],
  );
  expect((await round(BY_PAYEE)).noticesPrinted).toBe(7);
  expect(bed.told[0]).toMatchObject({ type: "monitor.changed", capability_id: CAP, url: SELLER.url, leaf: 10 });
  expect(toldNow()).toEqual([
    ["band", "B (OUTCOME_VERIFIED) -> F (OUTCOME_VERIFIED); now took_the_money"],
    ["dispute", "dispute: it was our own fault"],
    ["correction", "correction: we misread the terms"],
    ["corrected", "F (OUTCOME_VERIFIED) -> B (OUTCOME_VERIFIED); no longer took_the_money"],
    ["listing", "its listing changed: offers"],
    ["delisted", "no longer listed"],
    ["listed", `listed: GET ${SELLER.url}`],
  ]);
});

test("an endpoint that names the payee later is told from then on", async () => {
  await record.publish([sellerListing(OTHER_PAYEE)]);
  expect((await round(BY_PAYEE)).foundNames).toEqual([]);
  await record.publish([sellerListing()]);
  expect((await round(BY_PAYEE)).noticesPrinted).toBe(1);
  await record.publish(sellerCard(record, "B"));
  await round(BY_PAYEE);
  expect(toldNow()).toEqual([
    ["listed", `listed: GET ${SELLER.url}`],
    ["first", "no letter -> B (OUTCOME_VERIFIED)"],
  ]);
});

test("by domain, with the hosts below it and the table of those that took money; not by a name that only ends so", async () => {
  const watch = names({ domain: ["SELLER.example"] });
  await record.publish([sellerListing()], [listingDraft({ url: "https://notseller.example/x" })]);
  expect((await round(watch)).foundNames.map(({ url }) => url)).toEqual([SELLER.url]);
  const thief = { cap: capOf(STRANGER), domain: "seller.example", pay_to: null };
  const kin = (add: object[], remove: string[]) =>
    [{ kind: "kin", computed_at: "2026-11-21T06:00:00.000Z", kin: "ab".repeat(32), add, remove }] as never;
  await record.publish(kin([thief], []));
  await round(watch);
  await record.publish(kin([], [thief.cap]));
  await round(watch);
  expect(bed.told.map(({ change, capability_id }) => [change, capability_id])).toEqual([
    ["took_the_money", thief.cap],
    ["cleared", thief.cap],
  ]);
});

test("a name that is added later begins from the first leaf, and the others go on where they were", async () => {
  await record.publish([sellerListing()], sellerCard(record, "B"));
  await round(BY_PAYEE);
  await record.publish(sellerCard(record, "C", [], 8), [listingDraft(STRANGER)]);
  const both = [...BY_PAYEE, ...names({ cap: [capOf(STRANGER)] })];
  const next = await round(both);
  expect([next.noticesPrinted, next.foundNames.map(({ url }) => url)]).toEqual([1, [STRANGER.url]]);
  // Left out for a while: it goes on from where it was.
  await record.publish(sellerCard(record, "F", [], 9));
  expect((await round(both.slice(1))).noticesPrinted).toBe(0);
  expect((await round(both)).noticesPrinted).toBe(1);
});

test("a new name takes over the endpoints that another name watched before it", async () => {
  await record.publish([sellerListing()], sellerCard(record, "B"));
  await round(names({ cap: [CAP] }));
  const byDomain = names({ domain: ["seller.example"] });
  const [found] = (await round(byDomain)).foundNames;
  expect(found).toMatchObject({ capability_id: CAP, card: { band: "B" }, names: ["domain seller.example"] });
  await record.publish(
    [{ kind: "dispute", capability_id: CAP, body: { says: "it was our own fault" } } as never],
    [{ kind: "delisting", capability_id: CAP } as never],
  );
  await round(byDomain);
  expect(toldNow()).toEqual([
    ["dispute", "dispute: it was our own fault"],
    ["delisted", "no longer listed"],
  ]);
});

test.each([
  ["waits for its webhook", true],
  ["is left out until later", false],
])("a new name loses no notice of an endpoint that an earlier name watches, which %s", async (_, isGiven) => {
  await record.publish([sellerListing()], sellerCard(record, "B"));
  const byCap = names({ cap: [CAP] });
  const byDomain = names({ domain: ["seller.example"] });
  await round(byCap);
  // Published for both names, but only the first is to be told: the second was not given before.
  await record.publish(sellerCard(record, "F", [], 8), [listingDraft({ url: "https://www.seller.example/new" })]);
  const waiting = vi.spyOn(bed.state, "countWaitingNotices").mockReturnValue(isGiven ? 10_000 : 0);
  await round(isGiven ? [...byCap, ...byDomain] : byDomain);
  waiting.mockRestore();
  await round([...byCap, ...byDomain]);
  expect(bed.told.map(({ change, leaf, names }) => [change, leaf, names])).toEqual([
    ["band", 7, [`cap ${CAP}`, "domain seller.example"]],
  ]);
});

const BY_OTHER_PAYEE = names({ payTo: [OTHER_PAYEE] });
const bothPayees = [`pay-to ${PAYEE}`, `pay-to ${OTHER_PAYEE}`];
test.each([
  ["a name that is read with it at other times", [...BY_PAYEE, ...BY_OTHER_PAYEE], [bothPayees[1]]],
  ["a new name", BY_PAYEE, bothPayees],
])(
  "changes of an endpoint whose name is left out are told in order when a listing brings it to %s",
  async (_, before, by) => {
    await record.publish([sellerListing()], sellerCard(record, "B"));
    await round(before);
    await record.publish(sellerCard(record, "F", [], 8), [sellerListing(OTHER_PAYEE)], sellerCard(record, "C", [], 9));
    await round(BY_OTHER_PAYEE);
    await round([...BY_PAYEE, ...BY_OTHER_PAYEE]);
    expect(bed.told.map(({ leaf, says, names }) => [leaf, says, names])).toEqual([
      [7, "B (OUTCOME_VERIFIED) -> F (OUTCOME_VERIFIED)", by],
      [8, "its listing changed: offers", by],
      [9, "F (OUTCOME_VERIFIED) -> C (OUTCOME_VERIFIED)", by],
    ]);
  },
);

test("a round that ends before it has read those changes again leaves them to the next one", async () => {
  const at = "2026-11-21T12:00:00.000Z";
  const others = Array.from({ length: 8_200 }, () => ({ kind: "unheard of" }));
  const dispute = { kind: "dispute", capability_id: CAP, body: { says: "ours" } };
  let leaves: object[] = [sellerListing()];
  let isCut = false;
  const readFor = (watch: readonly WatchedName[]) =>
    readNewLeaves(
      {
        ...{ state: bed.state, log: "log.example", post: false, size: leaves.length },
        async *leaves(from: number) {
          for (const [i, leaf] of leaves.slice(from).entries())
            yield { index: from + i, bytes: Buffer.alloc(0), leaf: { ...leaf, index: from + i, seq: 0, at } as never };
          if (isCut) throw new Error("cut off");
        },
      },
      watch,
    );
  await readFor([...BY_PAYEE, ...BY_OTHER_PAYEE]);
  leaves = [...leaves, dispute, sellerListing(OTHER_PAYEE), ...others];
  isCut = true;
  await expect(readFor(BY_OTHER_PAYEE)).rejects.toThrow("cut off");
  isCut = false;
  await readFor(BY_OTHER_PAYEE);
  const told = bed.state.listNotices(10).map(({ body }) => JSON.parse(body) as { leaf: number; change: string });
  expect(told.map(({ leaf, change }) => [leaf, change])).toEqual([
    [1, "dispute"],
    [2, "listing"],
  ]);
});

test("a domain without a port is every port of its host; with one, that port alone", async () => {
  const urls = [
    "https://api.seller.example/x",
    "https://api.seller.example:8443/x",
    "https://api.seller.example:9000/x",
  ];
  await record.publish(...urls.map((url) => [listingDraft({ url })]));
  const foundBy = async (domain: string) =>
    (await round(names({ domain: [domain] }))).foundNames.map(({ url }) => url).sort();
  expect(await foundBy("seller.example")).toEqual(urls);
  expect(await foundBy("api.seller.example:8443")).toEqual([urls[1]]);
});

test("leaves that are not of their form are passed over, and memory holds what the names concern alone", async () => {
  const at = "2026-11-21T12:00:00.000Z";
  const leaves = [
    { kind: "grade", headline: true, card: null },
    { kind: "grade", headline: true, card: { capability_id: CAP } },
    { kind: "listing", url: 7, offers: "none" },
    { kind: "kin", add: "all" },
    { kind: "correction", capability_id: CAP, body: null },
    { kind: "unheard of" },
    ...Array.from({ length: 300 }, (_, i) => listingDraft({ url: `https://more${i}.example/x` })),
    sellerListing(),
  ].map((leaf, index) => ({ index, bytes: Buffer.alloc(0), leaf: { ...leaf, index, seq: 0, at } as never }));
  const read = {
    ...{ state: bed.state, log: "log.example", post: false, size: leaves.length },
    async *leaves(from: number) {
      yield* leaves.slice(from);
    },
  };
  expect((await readNewLeaves(read, BY_PAYEE)).map(({ url }) => url)).toEqual([SELLER.url]);
  expect(bed.state.listWatched().length).toBe(1);
});

const bad: [string, Partial<Record<"cap" | "payTo" | "domain", string[]>>][] = [
  ["--cap", { cap: ["cap_1"] }],
  ["--pay-to", { payTo: ["0x1 1"] }],
  ["--domain", { domain: ["https://seller.example/x"] }],
];
test.each(bad)("%s that is none is refused by name", (option, given) => {
  expect(() => names(given)).toThrow(option);
});

test("a webhook that is down gets every notice once it answers, in order, signed; stdout is told at once", async () => {
  await record.publish([sellerListing()], sellerCard(record, "B"));
  const got: { id: string; body: string; signature: string; timestamp: string }[] = [];
  let status = 500;
  const hook = await listening((_, body, headers) => {
    if (status === 200) {
      const [id, timestamp, signature] = ["id", "timestamp", "signature"].map((one) =>
        String(headers[`webhook-${one}`]),
      );
      got.push({ id: id!, body, timestamp: timestamp!, signature: signature! });
    }
    return { status };
  });
  const key = Buffer.alloc(32, 5).toString("base64");
  const egress = createEgress({ allowLoopback: true, extraPorts: [Number(new URL(hook.url).port)], userAgent: "test" });
  const clock = new FixedClock("2026-11-21T12:00:00.000Z");
  // Each round is a process of its own, as in cron.
  const webhook = () => new Webhook(`${hook.url}/notices`, { egress, clock, secret: `whsec_${key}` });
  await round(BY_PAYEE, { webhook: webhook() });
  await record.publish(sellerCard(record, "F", [], 8), sellerCard(record, "B", [], 9));
  const down = await round(BY_PAYEE, { webhook: webhook() });
  expect([down.noticesPrinted, down.faults.map(exitCodeOf), bed.state.countWaitingNotices()]).toEqual([2, [27], 2]);
  status = 200;
  const up = await round(BY_PAYEE, { webhook: webhook() });
  expect([up.noticesPrinted, up.faults, bed.state.countWaitingNotices()]).toEqual([0, [], 0]);
  expect(got.map(({ body }) => (JSON.parse(body) as { change: string; leaf: number }).leaf)).toEqual([7, 8]);
  const [{ id, timestamp, body, signature }] = got as [(typeof got)[number]];
  const mac = createHmac("sha256", Buffer.from(key, "base64")).update(`${id}.${timestamp}.${body}`).digest("base64");
  expect(signature).toBe(`v1,${mac}`);
  await egress.close();
  await hook.close();
  // Without the option nothing waits for it.
  const guarded = createEgress({ allowLoopback: false, userAgent: "test" });
  expect(() => new Webhook("http://169.254.169.254/x", { egress: guarded, clock, secret: null })).toThrow("--webhook");
  await guarded.close();
});
