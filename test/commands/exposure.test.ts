import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { EXIT, exitCodeOf } from "../../commands/exit.ts";
import { dependenciesOf, exposureCommand } from "../../commands/exposure.ts";
import type { OptionsOf } from "../../commands/table.ts";
import { loadConfig } from "../../infra/config.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { ExposureReport } from "../../serving/schemas/exposure.ts";
import { runs } from "../helpers/programs.ts";
import { cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { servingOver } from "../helpers/serving.ts";

const PAYEE = `0x${"ab".repeat(20)}`;
const STRANGE = `0x${"11".repeat(20)}`;
const TAKER = `0x${"22".repeat(20)}`;
const THEFTS = JSON.stringify([{ pay_to: TAKER, days: [Date.parse("2026-11-18T07:00:00.000Z")] }]);
const GOOD = { url: "https://good.example/paid" };
const THIEF = { url: "https://thief.example/paid" };
const EURO = { url: "https://euro.example/paid" };

let dir: string;
let record: PublicRecord;
let service: Serving;
let written = "";
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "exposure-"));
  record = await PublicRecord.open();
  await record.publish(
    ...[GOOD, THIEF, EURO].map((spec) => [listingDraft(spec)]),
    record.grades([cardOf(GOOD, { band: "A" })], "A on OUTCOME_VERIFIED."),
  );
  await record.live([
    rowOf(GOOD, { pay_to: PAYEE, price: "0.010000" }),
    rowOf(THIEF, { pay_to: PAYEE, unserved: 1, unserved_since: 0, thefts: THEFTS, price: "0.250000" }),
    rowOf(EURO, { pay_to: PAYEE, asset: "\u001b[31mEURO", unit: null }),
  ]);
  const { app } = await servingOver(record, { limits: { exposures_per_minute: 1000 } });
  service = await serve({ app, port: 0, host: "127.0.0.1" });
  vi.spyOn(process.stdout, "write").mockImplementation((text) => {
    written += String(text);
    return true;
  });
});
afterAll(async () => {
  vi.restoreAllMocks();
  await service.close();
  await record.close();
  await rm(dir, { recursive: true });
});
afterEach(() => {
  written = "";
});

let n = 0;
const fileOf = async (content: unknown): Promise<string> => {
  const file = join(dir, `${n++}.json`);
  await writeFile(file, typeof content === "string" ? content : JSON.stringify(content));
  return file;
};
const run = async (content: unknown, options: OptionsOf<"exposure"> = {}): Promise<string> => {
  await exposureCommand(loadConfig(undefined, {}), await fileOf(content), { base: service.url, ...options });
  return written;
};
const fault = async (content: unknown, options: OptionsOf<"exposure"> = {}): Promise<[number, string]> => {
  const error = await run(content, options).then(
    () => new Error("nothing was wrong"),
    (one: Error) => one,
  );
  expect(written).toBe("");
  return [exitCodeOf(error), error.message];
};

const listening = async (listener: RequestListener): Promise<{ url: string; server: Server }> => {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
};

describe("touchstone exposure", () => {
  test("a table for people: each dependency, each payee, the sums apart", async () => {
    const text = await run([
      { url: GOOD.url, calls_per_month: 1000, pay_to: STRANGE },
      { url: THIEF.url, calls_per_month: 4 },
      { url: EURO.url, calls_per_month: 1 },
      "https://nobody.example/x",
    ]);
    const lines = text.split("\n");
    expect(lines[0]).toMatch(/^letter +standing +price +a month +pays to +dependency$/);
    expect(lines[1]).toMatch(
      /^A +lettered +0\.010000 +10\.000000 +0x1111\.\.1111 \(!\) +https:\/\/good\.example\/paid$/,
    );
    expect(lines[2]).toMatch(/^UNRATED +took_the_money +0\.250000 +1\.000000 +0xabab\.\.abab +https:\/\/thief/);
    expect(lines[4]).toMatch(/^UNRATED +not_in_record +- +- +- +https:\/\/nobody/);
    expect(text).toContain("a month, in dollars: 11.000000\n  where the record shows a failure: 1.000000\n");
    expect(text).toContain("in other assets, not in these sums: ?[31mEURO (1)\n");
    // What a stranger wrote never reaches the terminal as a command.
    expect(text).not.toContain("\u001b");
  });

  test("what an address or a domain did elsewhere is said of each line, and summed up", async () => {
    const text = await run([
      { url: "https://nobody.example/x", pay_to: TAKER },
      "https://new.thief.example/x",
      { url: GOOD.url, calls_per_month: 2, pay_to: TAKER },
    ]);
    expect(text).toMatch(/^UNRATED +not_in_record +- +- +0x2222\.\.2222 \(!\) \(took\) +https:\/\/nobody/m);
    expect(text).toMatch(/^A +lettered +0\.010000 +0\.020000 +0x2222\.\.2222 \(!\) \(took\) +https:\/\/good/m);
    expect(text).toContain(
      `(took) https://nobody.example/x: Do not pay yet: payments to ${TAKER} settled on the chain, brought nothing`,
    );
    expect(text).toContain(
      "(took) https://new.thief.example/x: Do not pay yet: payments to endpoints of thief.example ",
    );
    expect(text).toContain("to payees or domains that took money elsewhere, counted above as well: 0.020000\n");
  });

  test("the report itself for machines, as it was signed", async () => {
    const report = ExposureReport.parse(JSON.parse(await run({ dependencies: [GOOD.url] }, { json: true })));
    expect(report.lines).toMatchObject([{ asked: GOOD.url, band: "A" }]);
  });

  test("one url a line, with remarks and empty lines", async () => {
    expect(dependenciesOf("f", `# mine\n\n ${GOOD.url} \r\n${THIEF.url}`)).toEqual([GOOD.url, THIEF.url]);
    expect(await run(`# mine\n${GOOD.url}\n`)).toContain("lettered");
  });

  test("lines as the form takes them: calls, price and address count, and a word too many is refused", async () => {
    expect(dependenciesOf("f", `${GOOD.url} 1000 $0.01\r\n${THIEF.url} ${STRANGE}\n${EURO.url}`)).toEqual([
      { url: GOOD.url, calls_per_month: 1000, price: "0.01" },
      { url: THIEF.url, pay_to: STRANGE },
      EURO.url,
    ]);
    expect(await run(`${GOOD.url} 1000 $0.01 ${STRANGE}\n`)).toMatch(
      /^A +lettered +0\.010000 +10\.000000 +0x1111\.\.1111 \(!\) +https:\/\/good\.example\/paid$/m,
    );
    written = "";
    expect(await fault(`# mine\n${GOOD.url} 1000 2000\n`)).toEqual([
      EXIT.unreadable,
      expect.stringMatching(/: Line 2: a url, calls a month, a price and one address, and nothing else$/),
    ]);
  });

  test("held against keys that were saved before", async () => {
    const keys = await fileOf(record.jwks);
    expect(await run([GOOD.url], { keys })).toContain("lettered");
    written = "";
    const others = await PublicRecord.open();
    const [code, says] = await fault([GOOD.url], { keys: await fileOf(others.jwks) });
    expect([code, says]).toEqual([EXIT.tampered, "the signature of the report is not valid (unknown_key)"]);
    await others.close();
  });

  test.each<[string, unknown, RegExp]>([
    ["a file that breaks off", '["https://a', /is not JSON$/],
    ["an object without dependencies", { urls: [] }, /neither a list/],
    ["no dependency", "# none\n", /contains no dependency$/],
    ["201 of them", Array(201).fill(GOOD.url), /at most 200 are allowed$/],
    [
      "a bad item, with its pointer",
      [GOOD.url, { url: GOOD.url, calls_per_month: -1 }],
      /400: \/dependencies\/1\/calls/,
    ],
    ["a file past all bounds", `#${"x".repeat(1024 * 1024)}`, /larger than/],
  ])("%s cannot be read", async (_, content, says) => {
    const [code, message] = await fault(content);
    expect(code).toBe(EXIT.unreadable);
    expect(message).toMatch(says);
  });

  test("a report that was changed on its way, or is an older one of something else, is not shown", async () => {
    const signed = await run([THIEF.url], { json: true });
    written = "";
    let answer = signed.replace("took_the_money", "lettered");
    const { url, server } = await listening((request, response) => {
      response.end(request.url === "/v1/exposure" ? answer : JSON.stringify(record.jwks));
    });
    expect(await fault([THIEF.url], { base: url })).toEqual([
      EXIT.tampered,
      "the signature of the report is not valid (bad_signature)",
    ]);
    answer = signed;
    expect((await fault([GOOD.url], { base: url }))[1]).toMatch(/not about these dependencies/);
    answer = '{"lines": []}';
    expect(await fault([GOOD.url], { base: url })).toEqual([EXIT.tampered, "the answer is not an exposure report"]);
    answer = "<html>";
    expect(await fault([GOOD.url], { base: url })).toEqual([EXIT.tampered, "the answer is not JSON"]);
    answer = "x".repeat(8 * 1024 * 1024 + 1);
    expect((await fault([GOOD.url], { base: url }))[0]).toBe(EXIT.unreachable);
    server.close();
  });

  test("a service that does not answer, is busy, or leads elsewhere", async () => {
    let status = 429;
    const { url, server } = await listening((_, response) =>
      response.writeHead(status, { location: `${service.url}/v1/exposure` }).end(),
    );
    expect(await fault([GOOD.url], { base: url })).toEqual([EXIT.unreachable, `${url}/v1/exposure answered 429`]);
    status = 307;
    expect((await fault([GOOD.url], { base: url }))[0]).toBe(EXIT.unreachable);
    server.close();
    server.closeAllConnections();
    const [code, says] = await fault([GOOD.url], { base: url });
    expect([code, says.startsWith(`${url}/v1/exposure: `)]).toEqual([EXIT.unreachable, true]);
  });

  test("as a word of the command line, with its exit code", async () => {
    const root = resolve(import.meta.dirname, "../..");
    const file = await fileOf("nothing-that-is-a-url\n");
    const { code, stderr } = await new Promise<{ code: unknown; stderr: string }>((done) => {
      const words = [...runs("touchstone.ts"), "exposure", file, "--base", service.url];
      execFile(process.execPath, words, { cwd: root }, (error, _, stderr) => done({ code: error?.code, stderr }));
    });
    expect(stderr).toMatch(/answered 400: \/dependencies\/0 /);
    expect(code).toBe(EXIT.unreadable);
  });
});
