import { privateKeyToAccount } from "viem/accounts";
import { describe, expect, test } from "vitest";
import { importFile } from "../../../../commands/listings.ts";
import { FixedClock } from "../../../../infra/clock.ts";
import { createMetrics } from "../../../../infra/telemetry.ts";
import { Intake, listingStatement } from "../../../../pipelines/1-observe/listings/intake.ts";
import { Recorder } from "../../../../pipelines/1-observe/recorder.ts";
import { capId } from "../../../../pipelines/record/ids.ts";
import { answer, DAY, FakeEgress, FakeLog, FakeRail, SELLER } from "../world.ts";

const payee = privateKeyToAccount(`0x${"11".repeat(32)}`);
const other = privateKeyToAccount(`0x${"22".repeat(32)}`);
const row = { url: `${SELLER}/sum`, method: "GET", description: "adds", price: "$0.01" };
const sign = async (account: typeof payee, what: Record<string, unknown> = row) => ({
  pay_to: account.address,
  signature: await account.signMessage({ message: listingStatement(what) }),
});

/** Is one row of an operator's file, or of a catalogue, under its seller's control? The endpoint's 402s named `payTos`. */
const controlled = async (...args: Parameters<typeof written>): Promise<boolean> =>
  (await written(...args)).seller_controlled;

async function written(listed: unknown, payTos: string[] = [payee.address], catalogue = false) {
  const log = new FakeLog();
  const egress = new FakeEgress();
  const metrics = createMetrics();
  const recorder = new Recorder({ log, producer: "test", metrics });
  const asked: string[] = [];
  const payTosOf = async (cap: string) => {
    asked.push(cap);
    return new Set(payTos.map((one) => one.toLowerCase()));
  };
  const intake = new Intake({ egress, rail: new FakeRail(), recorder, metrics, payTosOf });
  const clock = new FixedClock(`${DAY}T00:00:00.000Z`);
  if (catalogue) {
    egress.sellers.set("https://c.example", () => answer(200, { items: [listed], pagination: { total: 1 } }));
    await intake.readCatalogue("https://c.example", clock, true);
  } else await importFile(intake, "signed.json", Buffer.from(JSON.stringify([listed])), clock);
  expect(asked.every((cap) => cap === capId("GET", `${SELLER}/sum`))).toBe(true);
  return log.bodies("listing")[0]!;
}

/** Takes in an operator's file; the endpoints' 402s named the payee. */
async function imported(file: unknown) {
  const log = new FakeLog();
  const metrics = createMetrics();
  const recorder = new Recorder({ log, producer: "test", metrics });
  const payTosOf = async () => new Set([payee.address.toLowerCase()]);
  const intake = new Intake({ egress: new FakeEgress(), rail: new FakeRail(), recorder, metrics, payTosOf });
  const clock = new FixedClock(`${DAY}T00:00:00.000Z`);
  const report = await importFile(intake, "signed.json", Buffer.from(JSON.stringify(file)), clock);
  return { report, listings: log.bodies("listing") };
}

describe("a row that the payee signed is the seller's own word", () => {
  test("when the endpoint's 402 asks to be paid there", async () => {
    expect(await controlled({ ...row, signed: await sign(payee) })).toBe(true);
  });

  test.each<[string, Record<string, unknown>, (row: unknown) => unknown]>([
    ["names its version", row, (listed) => ({ x402Version: 2, resources: [listed] })],
    ["refuses paid calls", row, (listed) => ({ paid_test_calls: false, resources: [listed] })],
    ["is a map by path", row, (listed) => ({ x402Version: 2, endpoints: { "/sum": listed } })],
    ["is one item", { ...row, accepts: [] }, (listed) => listed],
    ["is a group", row, (listed) => ({ x402Version: 2, services: [{ baseUrl: SELLER, endpoints: [listed] }] })],
    ["lists it alone, with two methods", { ...row, method: undefined, methods: ["GET", "POST"] }, (listed) => [listed]],
  ])("whatever else the file says: it %s", async (_name, what, wrap) => {
    const { method: _, ...bare } = what;
    const signedRow = JSON.parse(JSON.stringify(what.method === undefined ? bare : what)) as Record<string, unknown>;
    const read = await imported(wrap({ ...signedRow, signed: await sign(payee, signedRow) }));
    expect(read.listings.length).toBeGreaterThan(0);
    expect(new Set(read.listings.map(({ seller_controlled }) => seller_controlled))).toEqual(new Set([true]));
    expect(read.report.unverified).toBeUndefined();
  });

  test("and how many signatures do not count is told", async () => {
    const read = await imported({ x402Version: 2, resources: [{ ...row, signed: await sign(other) }, row] });
    expect(read.report.unverified).toBe(1);
  });

  test.each<[string, () => Promise<unknown>, string[]]>([
    ["no signature", async () => row, [payee.address]],
    ["no 402 of the endpoint was seen", async () => ({ ...row, signed: await sign(payee) }), []],
    ["its 402 asks to be paid elsewhere", async () => ({ ...row, signed: await sign(payee) }), [other.address]],
    [
      "signed by somebody else",
      async () => ({ ...row, signed: { ...(await sign(other)), pay_to: payee.address } }),
      [payee.address],
    ],
    [
      "another row was signed",
      async () => ({ ...row, signed: await sign(payee, { ...row, price: "$0.02" }) }),
      [payee.address],
    ],
    ["a member was added", async () => ({ ...row, example: {}, signed: await sign(payee) }), [payee.address]],
    [
      "no signature at all in it",
      async () => ({ ...row, signed: { pay_to: payee.address, signature: "0x00" } }),
      [payee.address],
    ],
    ["no text", async () => ({ ...row, signed: { pay_to: 7, signature: {} } }), [payee.address]],
  ])("not when: %s", async (_name, listed, payTos) => expect(await controlled(await listed(), payTos)).toBe(false));

  test("so its terms are held to what they leave out, as a stranger's copy of them is not", async () => {
    const terms = { ...row, x402Version: 2, accepts: [{ scheme: "exact", network: "eip155:8453", amount: "1" }] };
    const signed = { ...terms, signed: await sign(payee, terms) };
    expect((await written(terms)).defects).toEqual([]);
    expect((await written(signed)).defects.map(({ defect }) => defect)).toContain("bad_timeout");
  });

  test("and not from a catalogue, which could show an old one", async () => {
    expect(await controlled({ ...row, signed: await sign(payee) }, [payee.address], true)).toBe(false);
  });
});
