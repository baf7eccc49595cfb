import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { annotationLine, disableCommands, escapeMarkdown } from "../../commands/annotations.ts";
import { EXIT, exitCodeOf } from "../../commands/exit.ts";
import { findingsOf, listingCommand } from "../../commands/listing.ts";
import type { OptionsOf } from "../../commands/table.ts";
import { loadConfig, workflowOf } from "../../infra/config.ts";
import { DEFECTS } from "../../pipelines/record/vocabulary.ts";
import { stockAdviceOf } from "../../serving/answers/stock-advice.ts";
import type { ListingAnswer } from "../../serving/schemas/listing.ts";
import { unescaped } from "../helpers/composite-action.ts";
import { type RealSeller, realSeller } from "../pipelines/1-observe/real-seller.ts";
import { answer, entry, FakeRail, type Handler, honest, terms402 } from "../pipelines/1-observe/world.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const config = loadConfig(undefined, {});
const dir = await mkdtemp(join(tmpdir(), "listing-"));
afterAll(() => rm(dir, { recursive: true, force: true }));

let written = "";
beforeEach(() => {
  written = "";
  vi.spyOn(process.stdout, "write").mockImplementation((text) => {
    written += String(text);
    return true;
  });
});
const sellers: RealSeller[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  for (const seller of sellers.splice(0)) await seller.close();
});

async function selling(handler: Handler): Promise<string> {
  const seller = await realSeller(handler);
  sellers.push(seller);
  return `http://127.0.0.1:${seller.port}/sum`;
}

/** A seller without a document, whose terms name the url that was asked. */
const bare =
  (...entries: Record<string, unknown>[]): Handler =>
  (asked) =>
    /\.json$|x402$/.test(asked.url) ? answer(404, {}) : terms402(entries, { resource: { url: asked.url } });

/** Looks, and says with which code the command would end. */
async function look(url: string, options: OptionsOf<"listing"> = {}, workflow = workflowOf({})): Promise<number> {
  return listingCommand(config, url, options, workflow).then(() => EXIT.ok, exitCodeOf);
}

const EVIL = "##[error]::error::\r\n::set-output name=x::y %0A";

describe("the code is that of the worst that is wrong", () => {
  test.each<[string, Handler, number, string]>([
    ["a right listing", bare(entry()), EXIT.ok, "nothing is wrong with it"],
    ["a price past the client's limit", bare(entry({ amount: "900000000" })), EXIT.flawed, "mild  stock_client"],
    ["a timeout out of all bounds", bare(entry({ maxTimeoutSeconds: 100_000 })), EXIT.unpayable, "grave bad_timeout"],
    ["the longest timeout that our client takes", bare(entry({ maxTimeoutSeconds: 600 })), EXIT.ok, "nothing is wrong"],
    ["a longer one", bare(entry({ maxTimeoutSeconds: 601 })), EXIT.unpayable, "grave validity: a payment would be"],
    [
      "more payees than our client asks about",
      bare(...[1, 2, 3, 4, 5].map((n) => entry({ payTo: `0x${String(n).repeat(40)}` }))),
      EXIT.unpayable,
      "grave too_many_payees: the offers name 5 addresses",
    ],
    ["an amount that is none", bare(entry({ amount: "0.01" })), EXIT.unpayable, "grave bad_amount"],
    ["terms that no client can sign", bare(entry({ extra: {} })), EXIT.unpayable, "grave stock_client"],
    [
      "a domain that is not the token's",
      bare(entry({ extra: { name: "USD Coin", version: "2" } })),
      EXIT.unpayable,
      "grave wrong_domain",
    ],
    ["no 402", () => answer(200, {}), EXIT.unpayable, "grave free"],
    ["terms in the wrong place", () => answer(402, {}), EXIT.unpayable, "grave malformed"],
  ])("%s", async (_, handler, code, says) => {
    expect([await look(await selling(handler)), written]).toEqual([code, expect.stringContaining(says)]);
    expect(written.split("\n")[0]).toMatch(/^GET http:\/\/127\.0\.0\.1:\d+\/sum: It /);
  });

  test("nobody there, and no address", async () => {
    expect(await look("http://127.0.0.1:9/sum")).toBe(EXIT.unreachable);
    expect(await look("ftp://seller.example/")).toBe(EXIT.usage);
    expect(await look("nothing")).toBe(EXIT.usage);
  });

  test("an address inside of the network is not called, whoever names it", async () => {
    expect(await look("http://192.168.1.7/sum")).toBe(EXIT.unreachable);
    expect(written).toContain("grave unfetchable");
  });

  test("the seller's own document is read as it stands now", async () => {
    const rail = new FakeRail();
    const url = await selling(honest(rail, { accepts: [entry({ payTo: `0x${"3".repeat(40)}` })] }));
    expect(await look(url, { json: true })).toBe(EXIT.unpayable);
    const { listing, findings } = JSON.parse(written) as ListingAnswer & { findings: { what: string }[] };
    expect([listing?.differs, findings.map(({ what }) => what)]).toEqual([
      expect.arrayContaining(["pay_to_differs"]),
      expect.arrayContaining(["pay_to_differs"]),
    ]);
  });

  test("asks with the method that is named, once and without a payment", async () => {
    const url = await selling(bare(entry()));
    expect(await look(url, { method: "POST" })).toBe(EXIT.ok);
    const legs = sellers[0]!.legs.filter(({ url: to }) => to === url);
    expect(legs.map(({ method, headers }) => [method, headers.some(([name]) => /payment/i.test(name))])).toEqual([
      ["POST", false],
    ]);
  });
});

describe("what the stock client refuses is told with what to change", () => {
  const { amount, ...unpriced } = entry();
  const v1Body = { x402Version: 1, accepts: [{ ...unpriced, network: "base-sepolia", maxAmountRequired: amount }] };
  const text = (terms: Record<string, unknown>) => JSON.stringify({ x402Version: 2, ...terms });
  const quiet =
    (handler: Handler): Handler =>
    (asked, n) =>
      /\.json$|x402$/.test(asked.url) ? answer(404, {}) : handler(asked, n);
  test.each<[string, Handler, RegExp]>([
    [
      "version 2 with the amount of version 1",
      bare({ ...unpriced, maxAmountRequired: amount }),
      /BigInt\n +Name the price of each entry by the member of its version: `amount`/,
    ],
    [
      "plain JSON in the header",
      quiet(() => answer(402, "{}", { "payment-required": text({ accepts: [entry()] }) })),
      /required header\n +Send in the PAYMENT-REQUIRED header the base64/,
    ],
    [
      "version 1 behind a byte order mark",
      quiet(() => answer(402, `\ufeff${JSON.stringify(v1Body)}`)),
      /required response\n +Send version 2 terms .* no byte order mark/,
    ],
    ["a price past its limit", bare(entry({ amount: "900000000" })), /spend.*\n +Nothing is broken: at this price/],
    ["no domain", bare(entry({ extra: {} })), /EIP-712.*\n +Add `extra.name`/],
  ])("%s", async (_, handler, expected) => {
    await look(await selling(handler), { json: true });
    const { findings } = JSON.parse(written) as { findings: { what: string; says: string; mend: string | null }[] };
    const found = findings.find(({ what }) => what === "stock_client");
    expect(`${found?.says}\n ${found?.mend}`).toMatch(expected);
  });

  test("whatever it says", () => {
    for (const verdict of ["refuses", "signs_without_spend_limits"] as const)
      expect(stockAdviceOf({ verdict, says: "?" })).toMatch(/^[A-Z].{20,}\.$/);
    for (const verdict of ["signs", "cannot_be_told"] as const)
      expect(stockAdviceOf({ verdict, says: "?" })).toBeNull();
  });
});

test("one finding is not findings", async () => {
  const dear = await selling(bare(entry({ amount: "900000000" })));
  await expect(listingCommand(config, dear, {}, workflowOf({}))).rejects.toThrow(/with 1 mild finding$/);
  expect(written).toMatch(/\n1 finding\n$/);
  const late = await selling(bare(entry({ maxTimeoutSeconds: 601 })));
  await expect(listingCommand(config, late, {}, workflowOf({}))).rejects.toThrow(/: 1 grave finding$/);
  const both = await selling(bare(entry({ maxTimeoutSeconds: 601, amount: "900000000" })));
  await look(both);
  expect(written).toMatch(/\n2 findings\n$/);
});

test("every defect has a severity, and every one that the client refuses is grave", () => {
  const blank = { state: "asked", offers: [], stock_client: { verdict: "signs" } } as unknown as ListingAnswer;
  const all = Object.keys(DEFECTS).map((name) => ({ defect: name, says: "x", mend: "y" }));
  const found = findingsOf({ ...blank, defects: all });
  expect(found).toHaveLength(all.length);
  const of = (severity: string) => found.filter((one) => one.severity === severity).map(({ what }) => what);
  expect(of("note")).toEqual(["paid_calls_refused"]);
  expect(of("grave")).toEqual(expect.arrayContaining(["pay_to_differs", "bad_pay_to", "price_differs"]));
  expect(of("mild")).toEqual(expect.arrayContaining(["testnet_only", "terms_in_body", "resource_scheme_differs"]));
  expect(found.map(({ severity }) => severity)).toEqual([
    ...of("grave").map(() => "grave"),
    ...of("mild").map(() => "mild"),
    "note",
  ]);
});

describe("for a workflow of GitHub", () => {
  test("errors and warnings are commands of the runner, with the file, and a summary in Markdown", async () => {
    const url = await selling(bare(entry({ amount: "0.01", maxTimeoutSeconds: "soon" })));
    const summary = join(dir, "summary");
    const workflow = workflowOf({ GITHUB_ACTIONS: "true", GITHUB_STEP_SUMMARY: summary });
    expect(await look(url, { file: "public/a,b:c.json" }, workflow)).toBe(EXIT.unpayable);
    const errors = written.split("\n").filter((line) => line.startsWith("::error "));
    const start = "::error file=public/a%2Cb%3Ac.json,title=";
    expect(errors.map((line) => line.replace(start, "").split(" ", 1)[0])).toEqual([
      ...["malformed", "no_payable_entry", "bad_amount", "bad_timeout"],
    ]);
    expect(errors[1]).toMatch(/ of http%3A\/\/127[^:]*::[^:]*%0A/);
    const text = await readFile(summary, "utf8");
    expect(text).toContain("### Listing");
    expect(text).toContain("| grave | bad\\_amount |");
  });

  test("outside of one nothing of it is printed, unless it is asked for", async () => {
    const url = await selling(bare(entry({ amount: "0.01" })));
    await look(url, { file: "x" });
    expect(written).not.toMatch(/^::/m);
    await look(url, { annotations: "github" });
    expect(written).toMatch(/^::error /m);
    written = "";
    await look(url, { annotations: "none" }, workflowOf({ GITHUB_ACTIONS: "true" }));
    expect(written).not.toMatch(/^::/m);
  });

  test("a summary that cannot be written is said, with the variable that names it", async () => {
    const workflow = workflowOf({ GITHUB_ACTIONS: "true", GITHUB_STEP_SUMMARY: join(dir, "none", "summary") });
    const url = await selling(bare(entry()));
    await expect(listingCommand(config, url, {}, workflow)).rejects.toThrow(/GITHUB_STEP_SUMMARY/);
  });

  test("a seller's text is never a command, a property or Markdown of its own", () => {
    const line = annotationLine({ level: "error", title: EVIL, message: EVIL, file: EVIL });
    expect(line).not.toMatch(/[\r\n]/);
    // What the runner reads: the properties end at the first `::` behind them, and each at a comma.
    const [, properties, message] = /^::error (.*?)::(.*)$/.exec(line)!;
    expect(unescaped(message!)).toBe(EVIL);
    expect(properties!.split(",").map((one) => unescaped(one.slice(one.indexOf("=") + 1)))).toEqual([EVIL, EVIL]);
    const quiet = disableCommands([EVIL, "::error::no"], "token");
    expect([quiet[0], quiet.at(-1)]).toEqual(["::stop-commands::token", "::token::"]);
    expect(quiet.join("\n")).not.toContain("##[");
    expect(escapeMarkdown("| <b>`x`\n# y [z](w)")).toBe("\\| \\<b\\>\\`x\\` \\# y \\[z\\]\\(w\\)");
  });
});

test("the command ends with the code, from a shell", async () => {
  const url = await selling(bare(entry({ amount: "0.01" })));
  const args = ["--import", "tsx", "touchstone.ts", "listing", url, "--annotations", "github"];
  const child = await new Promise<{ code: unknown; out: string; err: string }>((done) => {
    execFile(process.execPath, args, { cwd: ROOT }, (error, out, err) => done({ code: error?.code, out, err }));
  });
  expect(child).toMatchObject({
    code: EXIT.unpayable,
    err: expect.stringContaining("clients will not pay this endpoint"),
  });
  expect(child.out).toMatch(/^::error title=bad_amount/m);
});
