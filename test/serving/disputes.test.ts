import { execFileSync } from "node:child_process";
import { generateKeyPairSync, sign } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { checkPayee, readDispute, type SignedDispute, statementOf } from "../../pipelines/corrections/dispute.ts";
import { fromBase58 } from "../../pipelines/record/base58.ts";
import { readRecord } from "../../pipelines/record/envelope.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { toBase58 } from "../helpers/base58.ts";
import { fc } from "../helpers/histories.ts";
import { capOf, cardOf, listingDraft, NOW, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { AppendOnly, servingOver, type TestServing } from "../helpers/serving.ts";

const KEY = `0x${"42".repeat(32)}` as const;
const PAYEE = privateKeyToAccount(KEY);
/** Another address that the newest 402 names. */
const SECOND = privateKeyToAccount(`0x${"44".repeat(32)}`);
const STRANGER = privateKeyToAccount(`0x${"43".repeat(32)}`);
const SUM = { url: "https://seller.example/sum" };
const CAP = capOf(SUM);
const UNPAID = { url: "https://seller.example/free" };
const SOL = { url: "https://sol.example/x" };
const SERVICE = "https://touchstone.test";
const RECORD = `rec_${"0".repeat(26)}`;

let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    [SUM, UNPAID, SOL].map((spec) => listingDraft(spec)),
    record.grades([cardOf(SUM)], "B."),
  );
  await record.live([
    { ...rowOf(SUM, { pay_to: PAYEE.address.toLowerCase() }), pay_tos: [PAYEE, SECOND].map(({ address }) => address) },
    rowOf(UNPAID, { pay_to: null }),
    rowOf(SOL, { pay_to: SOLANA.address }),
  ]);
});
afterAll(() => record.close());
beforeEach(async () => {
  serving = await servingOver(record, { limits: { disputes_per_hour: 60 } });
});

const pair = generateKeyPairSync("ed25519");
const rawKey = ({ publicKey }: typeof pair) => publicKey.export({ format: "der", type: "spki" }).subarray(-32);
const SOLANA = { address: toBase58(rawKey(pair)) };
function solanaDispute(over: Partial<Statement> = {}, by = pair): SignedDispute {
  const statement = { capability_id: capOf(SOL), record_id: null, says: "not so", at: NOW, service: SERVICE, ...over };
  const signature = toBase58(sign(null, Buffer.from(statementOf(statement)), by.privateKey));
  return { ...statement, pay_to: toBase58(rawKey(by)), signature };
}
async function postSolana(dispute: SignedDispute): Promise<[number, string | null, string | null]> {
  const response = await post(dispute, capOf(SOL));
  const { errors } = (await response.json()) as { errors?: { pointer: string }[] };
  return [response.status, errors?.[0]?.pointer ?? null, response.headers.get("www-authenticate")];
}

type Statement = Omit<SignedDispute, "pay_to" | "signature">;
async function signed(over: Partial<Statement> = {}, by = PAYEE): Promise<SignedDispute> {
  const statement = { capability_id: CAP, record_id: RECORD, says: "not so", at: NOW, service: SERVICE, ...over };
  return { ...statement, pay_to: by.address, signature: await by.signMessage({ message: statementOf(statement) }) };
}
const post = (body: unknown, cap = CAP) =>
  serving.get(`/v1/trust/${cap}/disputes`, {
    method: "POST",
    body: typeof body === "string" ? body : JSON.stringify(body),
  });

describe("POST /v1/trust/{id}/disputes", () => {
  test("a payee's dispute is a record of the log, read back, that anybody can verify", async () => {
    const dispute = await signed();
    const response = await post(dispute);
    expect([response.status, response.headers.get("location"), response.headers.get("cache-control")]).toEqual([
      ...[201, `/v1/trust/${CAP}`, "no-store"],
    ]);
    const receipt = (await response.json()) as { dispute: SignedDispute & { id: string }; event_id: string };
    const [appended] = serving.log.records;
    const read = readRecord({ ...appended!, offset: 0, appendedAt: new Date(0) });
    expect(read).toMatchObject({ ok: true, envelope: { type: "dispute", cap: CAP, event_id: receipt.event_id } });
    expect(read.ok && read.envelope.body).toEqual({ id: receipt.dispute.id, ...dispute, received_at: NOW });
    await expect(checkPayee(receipt.dispute, new Set([PAYEE.address.toLowerCase()]))).resolves.toBeUndefined();
  });

  test("the same again is a 409, also with the other form of its signature, and also twice at once", async () => {
    const dispute = await signed({ says: "twice" });
    const both = await Promise.all([post(dispute), post(dispute)]);
    expect(both.map((one) => one.status).sort()).toEqual([201, 409]);
    // Of every signature (r, s) there is a second, (r, n - s): it says nothing new.
    const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
    const { signature } = dispute;
    const s = (order - BigInt(`0x${signature.slice(66, 130)}`)).toString(16).padStart(64, "0");
    const other = `${signature.slice(0, 66)}${s}${signature.endsWith("1b") ? "1c" : "1b"}`;
    expect([401, 409]).toContain((await post({ ...dispute, signature: other })).status);
    expect(serving.log.records).toHaveLength(1);
  });

  test("each payee that the newest 402 names may sign, not only the one that we would pay", async () => {
    expect((await post(await signed({ says: "by the second" }, SECOND))).status).toBe(201);
  });

  const good = () => signed();
  const age = (ms: number) => new Date(Date.parse(NOW) - ms).toISOString();
  test.each<[string, () => Promise<unknown>, number, string | null]>([
    ["no JSON", async () => "{", 400, ""],
    ["no body", async () => "", 400, ""],
    ["null", async () => null, 400, "/"],
    ["a list", async () => [], 400, "/"],
    ["a missing member", async () => ({ ...(await good()), says: undefined }), 400, "/says"],
    ["empty words", () => signed({ says: "" }), 400, "/says"],
    ["too many words", () => signed({ says: "x".repeat(2001) }), 400, "/says"],
    ["another endpoint than the address", () => signed({ capability_id: capOf(UNPAID) }), 400, "/capability_id"],
    ["no record id", () => signed({ record_id: "rec_1" }), 400, "/record_id"],
    ["another service", () => signed({ service: "https://other.test" }), 400, "/service"],
    ["no time", () => signed({ at: "2026-02-31T00:00:00.000Z" }), 400, "/at"],
    ["too old", () => signed({ at: age(7 * 86_400_000 + 1) }), 400, "/at"],
    ["of the future", () => signed({ at: age(-300_001) }), 400, "/at"],
    ["a member more", async () => ({ ...(await good()), "ex/tra": 1 }), 400, "/ex~1tra"],
    ["a pay_to that is none", async () => ({ ...(await good()), pay_to: "0x12" }), 400, "/pay_to"],
    ["a signature that is none", async () => ({ ...(await good()), signature: "0x12" }), 400, "/signature"],
    ["a stranger's signature", () => signed({}, STRANGER), 401, "/pay_to"],
    [
      "a stranger in the payee's name",
      async () => ({ ...(await signed({}, STRANGER)), pay_to: PAYEE.address }),
      401,
      "/signature",
    ],
    ["other words than were signed", async () => ({ ...(await good()), says: "more" }), 401, "/signature"],
    [
      "no point of the curve",
      async () => ({ ...(await good()), signature: `0x${"ff".repeat(65)}` }),
      401,
      "/signature",
    ],
    ["too large", async () => " ".repeat(32_769), 413, null],
  ])("%s", async (_, make, status, pointer) => {
    const response = await post(await make());
    const problem = ProblemDocument.parse(await response.json());
    expect([response.status, problem.status, problem.errors?.[0]?.pointer ?? null]).toEqual([status, status, pointer]);
    if (status === 401) expect(response.headers.get("www-authenticate")).toBe("EIP-191");
    expect(serving.log.records).toHaveLength(0);
  });

  test("a Solana payee signs with its own key, and nobody else does in its name", async () => {
    const address = await postSolana(solanaDispute({ says: "not so on Solana" }));
    expect(address).toEqual([201, null, null]);
    const [appended] = serving.log.records;
    const { body } = JSON.parse(Buffer.from(appended!.value).toString()) as { body: SignedDispute };
    await expect(checkPayee(body, new Set([SOLANA.address]))).resolves.toBeUndefined();
    const good = solanaDispute();
    // The case of base58 is part of the address.
    const swapped = SOLANA.address.replace(/[a-km-z]/, (letter) => letter.toUpperCase());
    const other = solanaDispute({}, generateKeyPairSync("ed25519"));
    const evm = await signed({ capability_id: capOf(SOL) });
    expect(await postSolana({ ...good, says: "more" })).toEqual([401, "/signature", "Ed25519"]);
    expect(await postSolana(other)).toEqual([401, "/pay_to", "Ed25519"]);
    expect(await postSolana({ ...other, pay_to: SOLANA.address })).toEqual([401, "/signature", "Ed25519"]);
    expect(await postSolana({ ...good, signature: evm.signature })).toEqual([401, "/signature", "Ed25519"]);
    expect(await postSolana(evm)).toEqual([401, "/pay_to", "EIP-191"]);
    expect((await postSolana({ ...good, pay_to: swapped }))[0]).toBeGreaterThanOrEqual(400);
    expect(await postSolana({ ...good, pay_to: "1".repeat(31) })).toEqual([400, "/pay_to", null]);
    expect(await postSolana({ ...good, signature: "z".repeat(88) })).toEqual([400, "/signature", null]);
    // The system program: a key of small order would verify what nobody signed.
    expect((await postSolana({ ...good, pay_to: "1".repeat(32) }))[0]).toBe(401);
    await expect(checkPayee({ ...good, pay_to: "1".repeat(32) }, new Set(["1".repeat(32)]))).rejects.toThrow(
      "not 1111",
    );
    expect(serving.log.records).toHaveLength(1);
  });

  test("an unknown endpoint is a 404, a malformed id a 400, one whose 402 named nobody a 401", async () => {
    const unknown = capOf({ url: "https://nobody.example/x" });
    expect((await post(await signed({ capability_id: unknown }), unknown)).status).toBe(404);
    expect((await post(await signed(), "cap_1")).status).toBe(400);
    expect((await post(await signed({ capability_id: capOf(UNPAID) }), capOf(UNPAID))).status).toBe(401);
  });

  test("a log that is down, or that does not give the record back, is a 503; then it can be sent again", async () => {
    const dispute = await signed({ says: "again" });
    serving.log.down = true;
    const refused = await post(dispute);
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "5"]);
    serving.log.down = false;
    expect((await post(dispute)).status).toBe(201);
    class Forgetful extends AppendOnly {
      override async read() {
        return [];
      }
    }
    serving = await servingOver(record, { log: new Forgetful() });
    expect((await post(dispute)).status).toBe(503);
  });

  test("limits: of one client, and of one endpoint", async () => {
    for (let i = 0; i < 50; i++) expect((await post(await signed({ says: `no ${i}` }))).status).toBe(201);
    const many = await post(await signed({ says: "no 51" }));
    expect([many.status, ((await many.json()) as { type: string }).type]).toEqual([
      ...[429, "/docs/api#too-many-disputes"],
    ]);
    serving = await servingOver(record, { limits: { disputes_per_hour: 1 } });
    await post("{");
    const refused = await post("{");
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, "3600"]);
  });

  test("any bytes are answered by a problem, never by a record", async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.string(), fc.json(), fc.uint8Array().map(String)), async (body) => {
        const { status } = await post(body);
        expect([400, 429]).toContain(status);
      }),
      { numRuns: 50 },
    );
    expect(serving.log.records).toHaveLength(0);
  });
});

describe("what was said and has no leaf yet", () => {
  const at = "2026-11-21T11:59:00.000Z";
  const correction = {
    id: "cor_1",
    record_id: RECORD,
    grade_at: null,
    fault: "our_clock",
    says: "late",
    issued_at: at,
  };
  const dispute = { id: "dsp_1", record_id: RECORD, says: "no", pay_to: "0x", signature: "0x", received_at: NOW };
  const shown = async (said: unknown) => {
    await record.live([rowOf(SUM, { corrected: typeof said === "string" ? said : JSON.stringify(said) })]);
    const { get } = await servingOver(record);
    const trust = (await (await get(`/v1/trust/${CAP}`)).json()) as { corrections: object[]; disputes: object[] };
    const check = (await (await get(`/v1/check?url=${CAP}`)).json()) as { corrections: object[]; flags: string[] };
    expect(check.corrections).toEqual(trust.corrections);
    return { ...trust, flags: check.flags };
  };
  const published = {
    ...{ id: "cor_1", fault: "our_clock", says: "late", issuedAt: at, recordId: RECORD, gradeAt: null },
  };

  test("shows in check and trust", async () => {
    const { corrections, disputes, flags } = await shown([
      { kind: "correction", body: correction },
      { kind: "dispute", body: dispute },
    ]);
    expect([corrections, disputes, flags]).toEqual([[published], [dispute], ["disputed"]]);
  });

  test("a dispute that a later correction answers is no flag, until that is taken back", async () => {
    const answer = { kind: "correction", body: { ...correction, issued_at: "2026-11-21T12:00:01.000Z" } };
    const told = [{ kind: "dispute", body: dispute }, answer];
    expect((await shown(told)).flags).toEqual([]);
    const back = { kind: "reinstated", body: { correction: "cor_1", says: "right" } };
    expect((await shown([...told, back])).flags).toEqual(["disputed"]);
  });

  test("text that is of no version we know is as good as none", async () => {
    for (const text of ["", "{", "{}", '[{"kind":"other","body":{}}]']) {
      expect((await shown(text)).corrections).toEqual([]);
    }
  });

  test("is told once when its leaf comes", async () => {
    await record.publish([
      { kind: "correction", capability_id: CAP, body: correction },
      { kind: "dispute", capability_id: CAP, body: dispute },
    ]);
    const { corrections, disputes } = await shown([
      { kind: "correction", body: correction },
      { kind: "dispute", body: dispute },
    ]);
    expect([corrections, disputes]).toEqual([[published], [dispute]]);
  });
});

describe("the script for sellers", () => {
  test("makes what we take", async () => {
    const dir = mkdtempSync(join(tmpdir(), "dispute-"));
    try {
      const statement = {
        says: 'they said "no" – é\n',
        service: SERVICE,
        record_id: null,
        at: NOW,
        capability_id: CAP,
      };
      writeFileSync(join(dir, "statement.json"), JSON.stringify(statement));
      const script = resolve(import.meta.dirname, "../../docs/sign-a-dispute.mjs");
      const out = execFileSync(process.execPath, [script, join(dir, "statement.json")], {
        env: { PATH: process.env.PATH, PAYEE_KEY: KEY },
      });
      const dispute = readDispute(JSON.parse(out.toString()), SERVICE, new Date(NOW));
      await checkPayee(dispute, new Set([PAYEE.address.toLowerCase()]));
      // A Solana wallet: as wallets export it, and as its keygen writes it.
      const secret = Buffer.concat([
        pair.privateKey.export({ format: "der", type: "pkcs8" }).subarray(-32),
        rawKey(pair),
      ]);
      for (const key of [toBase58(secret), JSON.stringify([...secret])]) {
        const said = execFileSync(process.execPath, [script, join(dir, "statement.json")], {
          env: { PATH: process.env.PATH, PAYEE_KEY: key },
        });
        await checkPayee(readDispute(JSON.parse(said.toString()), SERVICE, new Date(NOW)), new Set([SOLANA.address]));
      }
      expect((await serving.get("/docs/corrections")).status).toBe(200);
      expect(await (await serving.get("/docs/sign-a-dispute.mjs")).text()).toContain("signMessage");
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  });
});

test("base58: what goes in comes out, and what is none of so many bytes is none", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), fc.nat(8), (bytes, zeros) => {
      const padded = Buffer.concat([Buffer.alloc(zeros), bytes]);
      expect(fromBase58(toBase58(padded), padded.length)).toEqual(Uint8Array.from(padded));
      expect(fromBase58(toBase58(padded), padded.length + 1)).toBeNull();
    }),
  );
  expect(toBase58(Buffer.from("Hello World!"))).toBe("2NEpo7TZRRrLZSi2U");
  for (const text of ["0", "O", "I", "l", "é", "1".repeat(1_000_000)]) expect(fromBase58(text, 1)).toBeNull();
});
