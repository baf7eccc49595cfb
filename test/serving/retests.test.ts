import { execFileSync } from "node:child_process";
import { generateKeyPairSync, sign } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { isSignedBy } from "../../pipelines/corrections/dispute.ts";
import type { BodyOf } from "../../pipelines/record/bodies.ts";
import { readRecord } from "../../pipelines/record/envelope.ts";
import { createAskQueue } from "../../serving/answers/asks.ts";
import { retestStatement } from "../../serving/answers/retests.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { RetestAnswer } from "../../serving/schemas/listing.ts";
import { toBase58 } from "../helpers/base58.ts";
import { capOf, listingDraft, NOW, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { AppendOnly, ManualClock, servingOver, type TestServing } from "../helpers/serving.ts";

const KEY = `0x${"42".repeat(32)}` as const;
const PAYEE = privateKeyToAccount(KEY);
const STRANGER = privateKeyToAccount(`0x${"43".repeat(32)}`);
const SERVICE = "https://touchstone.test";
const SUM = { url: "https://seller.example/sum" };
const SOL = { url: "https://sol.example/x" };
const OWN = { url: "https://own.example/x" };
const FORMER = { url: "https://former.example/x" };
const TOOLS = [
  { url: "https://mcp.example/mcp", method: "POST" as const, tool: "add" },
  { url: "https://mcp.example/mcp", method: "POST" as const, tool: "sub" },
];
const pair = generateKeyPairSync("ed25519");
const SOLANA = toBase58(pair.publicKey.export({ format: "der", type: "spki" }).subarray(-32));

let record: PublicRecord;
let serving: TestServing;
let clock: ManualClock;
const line = { now: createAskQueue() };

beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(...[SUM, SOL, OWN, FORMER, ...TOOLS].map((spec) => [listingDraft(spec)]));
  const other = { pay_to: null, pay_tos: [STRANGER.address] };
  await record.live([
    rowOf(SUM, { pay_to: PAYEE.address.toLowerCase() }),
    rowOf(SOL, { pay_tos: [STRANGER.address, SOLANA] }),
    rowOf(OWN, { ...other, pay_tos_listed: [PAYEE.address] }),
    rowOf(FORMER, { ...other, pay_tos_before: [PAYEE.address] }),
    ...TOOLS.map((spec) => rowOf(spec, { pay_to: PAYEE.address })),
  ]);
});
afterAll(() => record.close());
beforeEach(async () => {
  clock = new ManualClock();
  line.now = createAskQueue();
  serving = await servingOver(record, { clock, askQueue: line.now, limits: { looks_per_hour: 100 } });
});

interface Request {
  url: string;
  at: string;
  method?: "GET" | "POST";
  service?: string;
}
const request = (over: Partial<Request> = {}): Request => ({ url: SUM.url, at: clock.now().toISOString(), ...over });
async function signed(over: Partial<Request> = {}, by = PAYEE) {
  const asked = request(over);
  const signature = await by.signMessage({ message: retestStatement(asked, asked.service ?? SERVICE) });
  return { ...asked, pay_to: by.address, signature };
}
const post = (body: unknown) => serving.get("/v1/listings/retest", { method: "POST", body: JSON.stringify(body) });
const problem = async (body: unknown) => {
  const response = await post(body);
  const { errors } = ProblemDocument.parse(await response.json());
  return [response.status, errors?.[0]?.pointer ?? null];
};
const bodyOf = ({ log }: TestServing, i = 0): BodyOf<"ask"> => {
  const read = readRecord({ ...log.records[i]!, offset: 0, appendedAt: new Date(0) });
  if (!read.ok) throw new Error(read.reason);
  expect(read.envelope.type).toBe("ask");
  return read.envelope.body as BodyOf<"ask">;
};

describe("a seller that proves its payTo", () => {
  test("is put in line for a free look, by a record of the log that anybody can verify", async () => {
    const response = await post(await signed());
    expect([response.status, response.headers.get("cache-control")]).toEqual([202, "no-store"]);
    const answer = RetestAnswer.parse(await response.json());
    expect(answer).toMatchObject({ capability_id: capOf(SUM), url: SUM.url, queued: true });
    expect(answer.next).toMatch(/^In line for a free handshake/);
    expect(answer.says).toContain("no letter");
    const { cap, retest, not_before } = bodyOf(serving);
    expect([cap, not_before]).toEqual([capOf(SUM), undefined]);
    expect(await isSignedBy(retest!.pay_to, retest!.statement, retest!.signature)).toBe(true);
    expect(JSON.parse(retest!.statement)).toEqual({ at: NOW, service: SERVICE, url: SUM.url });
    // A look a moment ago is what the seller wants to have replaced: without a proof it would wait for a day.
    expect(line.now.earliestProbe(capOf(SUM))).toBe(Date.parse(NOW));
    line.now.recordProbe(capOf(SUM), Date.parse(NOW) - 60_000);
    expect(line.now.earliestProbe(capOf(SUM))).toBe(Date.parse(NOW));
    line.now.recordProbe(capOf(SUM), Date.parse(NOW) + 1);
    expect(line.now.earliestProbe(capOf(SUM))).toBeNull();
  });

  test("though it was looked at just now", async () => {
    line.now.recordProbe(capOf(SUM), Date.parse(NOW) - 1_000);
    expect((await post(await signed())).status).toBe(202);
    expect(serving.log.records).toHaveLength(1);
    expect(line.now.earliestProbe(capOf(SUM))).toBe(Date.parse(NOW));
  });

  test("with a Solana wallet, for a payTo that only its own listing names, for one tool of a server", async () => {
    const asked = request({ url: SOL.url });
    const signature = toBase58(sign(null, Buffer.from(retestStatement(asked, SERVICE)), pair.privateKey));
    expect((await post({ ...asked, pay_to: SOLANA, signature })).status).toBe(202);
    expect((await post(await signed({ url: OWN.url, service: SERVICE }))).status).toBe(202);
    expect((await post(await signed({ url: `${TOOLS[1]!.url}#sub`, method: "POST" }))).status).toBe(202);
    expect(bodyOf(serving, 2)).toMatchObject({ cap: capOf(TOOLS[1]!), tool: "sub" });
    expect(await problem(await signed({ url: TOOLS[1]!.url, method: "POST" }))).toEqual([404, null]);
  });

  test("once a UTC day: again it stands where it stands, and after the look it waits for midnight", async () => {
    const asking = async () => post(await signed());
    expect((await asking()).status).toBe(202);
    clock.pass(1_000);
    expect((await asking()).status).toBe(202);
    expect(serving.log.records).toHaveLength(1);
    line.now.recordProbe(capOf(SUM), clock.now().getTime());
    const refused = await asking();
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, String(12 * 3600 - 1)]);
    clock.pass(12 * 3_600_000);
    expect((await asking()).status).toBe(202);
    expect(serving.log.records).toHaveLength(2);
  });

  test("asked for at two replicas at once it is one record, and one who follows the log knows of it", async () => {
    const other = await servingOver(record, { clock });
    await post(await signed());
    await other.get("/v1/listings/retest", { method: "POST", body: JSON.stringify(await signed()) });
    const [mine, theirs] = [serving.log.records[0]!, other.log.records[0]!];
    expect(mine.eventId).toBe(theirs.eventId);
    const follower = createAskQueue();
    follower.apply({ ...mine, offset: 0, appendedAt: new Date(0) });
    expect([follower.lastRetest(capOf(SUM)), follower.earliestProbe(capOf(SUM))]).toEqual([
      Date.parse(NOW),
      Date.parse(NOW),
    ]);
    follower.dropProbed(() => Date.parse(NOW) - 1);
    expect(follower.size).toBe(1);
    follower.dropProbed(() => Date.parse(NOW));
    expect(follower.size).toBe(0);
  });
});

describe("what is refused, and leaves no record", () => {
  const ago = (ms: number) => new Date(Date.parse(NOW) - ms).toISOString();
  test.each<[string, () => Promise<object>, number, string | null]>([
    ["a stranger's wallet", () => signed({}, STRANGER), 401, "/pay_to"],
    [
      "a stranger in its name",
      async () => ({ ...(await signed({}, STRANGER)), pay_to: PAYEE.address }),
      401,
      "/signature",
    ],
    ["an address of earlier 402s", () => signed({ url: FORMER.url }), 401, "/pay_to"],
    [
      "another url than was signed",
      async () => ({ ...(await signed({ url: OWN.url })), url: SUM.url }),
      401,
      "/signature",
    ],
    [
      "signed for another service",
      async () => {
        const asked = request();
        return {
          ...asked,
          pay_to: PAYEE.address,
          signature: await PAYEE.signMessage({ message: retestStatement(asked, "https://other.test") }),
        };
      },
      401,
      "/signature",
    ],
    ["sent to another service", () => signed({ service: "https://other.test" }), 400, "/service"],
    ["too old", () => signed({ at: ago(600_001) }), 400, "/at"],
    ["of the future", () => signed({ at: ago(-300_001) }), 400, "/at"],
    ["no time", () => signed({ at: "2026-02-31T00:00:00.000Z" }), 400, "/at"],
    ["not in the record", () => signed({ url: "https://unknown.example/x" }), 404, null],
    ["another verb than the record has", () => signed({ method: "POST" }), 404, null],
    ["half a character", async () => ({ ...(await signed()), url: `${SUM.url}#\ud800` }), 400, "/url"],
    ["no url", () => signed({ url: "ftp://seller.example/" }), 400, "/url"],
    ["a member more", async () => ({ ...(await signed()), colour: 1 }), 400, "/colour"],
    ["no signature", async () => ({ ...(await signed()), signature: "0x12" }), 400, "/signature"],
  ])("%s", async (_, body, status, pointer) => {
    expect(await problem(await body())).toEqual([status, pointer]);
    expect(serving.log.records).toHaveLength(0);
  });

  test("a log that takes nothing is a 503, and the request may come again", async () => {
    const log = new AppendOnly();
    log.down = true;
    serving = await servingOver(record, { clock, log });
    const response = await post(await signed());
    expect([response.status, response.headers.get("retry-after")]).toEqual([503, "60"]);
    log.down = false;
    expect((await post(await signed())).status).toBe(202);
  });
});

test("the script of the documentation signs it, with either wallet", async () => {
  const dir = mkdtempSync(join(tmpdir(), "retest-"));
  try {
    const secret = Buffer.concat([
      pair.privateKey.export({ format: "der", type: "pkcs8" }).subarray(-32),
      pair.publicKey.export({ format: "der", type: "spki" }).subarray(-32),
    ]);
    for (const [url, key] of [
      [SUM.url, KEY],
      [SOL.url, toBase58(secret)],
    ] as const) {
      writeFileSync(join(dir, "statement.json"), JSON.stringify({ url, service: SERVICE, method: "GET", at: NOW }));
      const script = resolve(import.meta.dirname, "../../docs/sign-a-dispute.mjs");
      const out = execFileSync(process.execPath, [script, join(dir, "statement.json")], {
        env: { PATH: process.env.PATH, PAYEE_KEY: key },
      });
      expect((await post(JSON.parse(out.toString()))).status).toBe(202);
    }
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
});
