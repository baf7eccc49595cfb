import { readFileSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FixedClock, systemClock } from "../../../infra/clock.ts";
import { sql } from "../../../infra/lake/sql.ts";
import { importRegister, registerPath } from "../../../pipelines/register/import.ts";
import { Register } from "../../../pipelines/register/register.ts";
import { Problem, validate } from "../../../serving/http/problem.ts";
import { CompaniesAnswer } from "../../../serving/schemas/companies.ts";
import { companiesLookup } from "../../../serving/work/companies.ts";

const ROOT = resolve(import.meta.dirname, "../../..");
const clock = new FixedClock("2026-11-23T08:00:00Z");

let dir: string;
let register: Register;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "companies-"));
  register = new Register({ path: registerPath(dir), clock: systemClock, lookEvery_ms: 0 });
});
afterAll(async () => {
  register.close();
  await rm(dir, { recursive: true, force: true });
});

const ask = async (body: unknown): Promise<CompaniesAnswer> =>
  companiesLookup.run(validate(companiesLookup.body, body), { register, clock });
const problem = async (body: unknown): Promise<Problem> => {
  const failed = await ask(body).catch((error: unknown) => error);
  expect(failed).toBeInstanceOf(Problem);
  return failed as Problem;
};
const take = (domains?: string) =>
  importRegister({ source: join(ROOT, "fixtures/register/golden-copy.csv"), domains, to: registerPath(dir), clock });

const takeAll = (at = clock) =>
  importRegister({
    ...{ source: sample("golden-copy"), domains: sample("domains"), to: registerPath(dir), clock: at },
    ...{ relationships: sample("relationships"), exceptions: sample("exceptions") },
  });
const sample = (name: string): string => join(ROOT, `fixtures/register/${name}.csv`);

describe("in this order", () => {
  test("without a register nothing is answered and nothing is charged", async () => {
    expect(await problem({ name: "SAP" })).toMatchObject({
      ...{ code: "unavailable", message: "there is no register of companies here yet; nothing is charged" },
    });
  });

  test("a register that was just imported is answered from at once, one without domains says so", async () => {
    await take();
    const answer = await ask({ name: "sap" });
    expect(CompaniesAnswer.parse(answer)).toEqual(answer);
    expect(answer.matches![0]).toMatchObject({
      reasons: [{ reason: "same_name", says: "name equals after normalisation" }],
      score: 1,
      company: { lei: "529900D6BF99LW9R2E68", register: { authority: null, number: "HRB 719915" }, domains: [] },
    });
    expect(answer).toMatchObject({ more: false, answered_at: "2026-11-23T08:00:00.000Z", register: { companies: 54 } });
    const alone = await problem({ domain: "sap.com" });
    expect(alone).toMatchObject({ code: "unavailable", message: "this register holds no domains; nothing is charged" });
    expect((await ask({ domain: "sap.com", name: "sap" })).matches).toHaveLength(1);
  });

  test("and the next one, with domains, without a restart", async () => {
    await take(join(ROOT, "fixtures/register/domains.csv"));
    const answer = await ask({ domain: "www.asml.com", register_number: "17085815" });
    expect(answer.matches!.map(({ reasons }) => reasons.map(({ says }) => says))).toEqual([
      ["exact register number in NL", "exact domain"],
    ]);
    expect(answer.matches![0]!.company.domains).toEqual(["asml.com"]);
  });

  test("a LEI may be written small, a limit keeps to itself", async () => {
    expect((await ask({ lei: " 529900d6bf99lw9r2e68 " })).matches![0]!.reasons[0]!.says).toBe("exact LEI");
    expect(await ask({ name: "bank", limit: 1, certainty: 0.5 })).toMatchObject({ matches: { length: 1 }, more: true });
    expect((await ask({ name: "Simeens" })).matches![0]!.reasons[0]!.says).toBe("similar (0.86)");
  });
});

test("without a match as certain as was asked nothing is answered, so nothing is charged", async () => {
  expect(await problem({ name: "Nobody Ever Heard Of It" })).toMatchObject({
    ...{ code: "nothing_relevant", message: "no company matches at the certainty of 0.8; nothing is charged" },
  });
  expect((await problem({ name: "bank" })).message).toMatch(
    /^the best match has a score of 0\.\d{4}, below the certainty of 0.8/,
  );
  expect(await ask({ name: "Simeens", certainty: 0.85 })).toMatchObject({ certainty: 0.85, matches: { length: 1 } });
  expect((await problem({ name: "Simeens", certainty: 0.9 })).code).toBe("nothing_relevant");
  expect(await problem({ name: "SAP", certainty: 0.4 })).toMatchObject({ code: "bad_request" });
});

describe("parents", () => {
  test("are null in a register without files of level 2", async () => {
    await take();
    const { register: made, matches } = await ask({ lei: "7H6GLXDRUGQFU57RNE97" });
    expect(made).toMatchObject({ relationships: null, exceptions: null });
    expect(matches![0]!.company).toMatchObject({ parents: null, parents_not_reported: null });
  });

  test("are told by kind, LEI and name, and what is not reported with its reason in words", async () => {
    await takeAll();
    const page = readFileSync(join(ROOT, "docs/companies-lookup.md"), "utf8");
    const { parents, parents_not_reported } = JSON.parse(/```json\n(\{"parents"[\s\S]*?)\n```/.exec(page)![1]!);
    const answer = await ask({ lei: "7H6GLXDRUGQFU57RNE97" });
    expect(CompaniesAnswer.parse(answer)).toEqual(answer);
    expect(answer.register).toMatchObject({ relationships: 10, exceptions: 12 });
    expect(answer.matches![0]!.company).toMatchObject({ parents, parents_not_reported });
    const [apple] = (await ask({ name: "Apple" })).matches!;
    const says = "natural persons hold it, and no company that could consolidate it";
    expect(apple!.company).toMatchObject({
      headquarters: { lines: ["One Apple Park Way"] },
      parents: [],
      parents_not_reported: ["direct", "ultimate"].map((kind) => ({ kind, reasons: ["NATURAL_PERSONS"], says })),
    });
    const [suisse] = (await ask({ name: "credit suisse" })).matches!;
    expect(suisse!.company).toMatchObject({
      entity_status: "INACTIVE",
      ended: { at: "2024-05-31T00:00:00Z", reason: "CORPORATE_ACTION" },
      successors: { leis: ["BFM8T61CT2L1QCEMIK50"], names: ["UBS AG"] },
      ...{ parents: [], parents_not_reported: [] },
    });
  });
});

describe("many names", () => {
  beforeAll(() => takeAll());

  test("each has a result of its own, in the order asked, with what holds for all", async () => {
    const names = ["SAP", "トヨタ自動車", " credit  suisse ", "Simeens"];
    const answer = await ask({ names, limit: 1 });
    expect(CompaniesAnswer.parse(answer)).toEqual(answer);
    expect(answer).not.toHaveProperty("matches");
    expect(answer.results!.map(({ name, matches }) => [name, matches.map(({ company }) => company.lei)])).toEqual([
      ["SAP", ["529900D6BF99LW9R2E68"]],
      ["トヨタ自動車", ["5493006W3QUS5LMH6R84"]],
      ["credit  suisse", ["ANGGYXNX0JLX3X63JN86"]],
      ["Simeens", ["W38RGI023J3WT1HWRP32"]],
    ]);
    expect((await ask({ names: ["HSBC"], country: "GB", certainty: 0.5 })).results![0]!.matches).toHaveLength(2);
  });

  test("one without a match is named, and so nothing is charged for any", async () => {
    const told = await problem({ names: ["SAP", "Xyzzyplugh", "Simeens"], certainty: 0.9 });
    expect(told).toMatchObject({
      code: "nothing_relevant",
      message:
        "2 of 3 names have no match at the certainty of 0.9: /names/1, /names/2; nothing is charged, send the others",
    });
    expect(told.extra.errors).toEqual([
      { pointer: "/names/1", detail: "no company matches at the certainty of 0.9" },
      { pointer: "/names/2", detail: "the best match has a score of 0.8571, below the certainty of 0.9" },
    ]);
    // All that may be asked stand in the sentence, which is what is kept of a problem whole.
    const none = await problem({ names: Array.from({ length: 50 }, (_, i) => `Xyzzyplugh ${i}`) });
    expect(none.message).toContain("/names/49;");
    expect(none.message.length).toBeLessThan(2_000);
  });

  test("a register that is replaced between two names is no answer of one register", async () => {
    const one = new Register({ path: registerPath(dir), clock: systemClock, lookEvery_ms: 0 });
    let asked = 0;
    const replacing: Pick<Register, "use"> = {
      use: async (work) => {
        if (asked++ === 1) await takeAll(new FixedClock("2026-11-24T08:00:00Z"));
        return one.use(work);
      },
    };
    const failed = await companiesLookup
      .run({ names: ["SAP", "Nokia"] }, { register: replacing, clock })
      .catch((e) => e);
    one.close();
    expect(failed).toMatchObject({ code: "unavailable", message: expect.stringContaining("was replaced meanwhile") });
  });

  test("a body says how many prices it costs; one that cannot be taken says what is wrong before it is paid for", () => {
    const { countPrices } = companiesLookup;
    for (const one of [{}, { name: "x" }, null, [], "names"]) expect(countPrices(one)).toBe(1);
    expect(countPrices({ names: ["a", "b", "c"] })).toBe(3);
    expect(() => countPrices({ names: Array.from({ length: 51 }, (_, i) => `n${i}`) })).toThrow(Problem);
    const most = { names: Array.from({ length: 50 }, (_, i) => `${"\u0001".repeat(298)}${10 + i}`) };
    expect(JSON.stringify(most).length).toBeLessThan(companiesLookup.maxBodyBytes);
  });
});

test.each<[unknown, string]>([
  [{ names: [] }, "/names"],
  [{ names: "SAP" }, "/names"],
  [{ names: [" "] }, "/names/0"],
  [{ names: ["SAP", 5] }, "/names/1"],
  [{ names: ["SAP", "Nokia", "ＳＡＰ"] }, "/names/2"],
  [{ names: ["SAP", "x".repeat(301)] }, "/names/1"],
  [{ names: Array.from({ length: 51 }, (_, i) => `n${i}`) }, "/names"],
  [{ names: ["SAP"], name: "SAP" }, "/name"],
  [{ names: ["SAP"], lei: "529900D6BF99LW9R2E68" }, "/lei"],
  [{ names: ["SAP"], register_authority: "RA000585" }, "/register_authority"],
  [{ lei: "529900D6BF99LW9R2E69" }, "/lei"],
  [{ lei: "529900D6BF99" }, "/lei"],
  [{ lei: 5 }, "/lei"],
  [{}, "/"],
  [{ country: "DE" }, "/"],
  [{ name: " " }, "/name"],
  [{ name: "x".repeat(301) }, "/name"],
  [{ name: "x", country: "DEU" }, "/country"],
  [{ name: "x", limit: 21 }, "/limit"],
  [{ name: "x", limit: 0 }, "/limit"],
  [{ domain: "no host" }, "/domain"],
  [{ name: "x", register_authority: "RA000585" }, "/register_authority"],
  [{ register_number: "1", register_authority: "585" }, "/register_authority"],
  [{ name: "x", more: 1 }, "/more"],
  [[], "/"],
  [null, "/"],
])("%j is not valid at %s", async (body, pointer) => {
  const { code, extra } = await problem(body);
  expect(code).toBe("bad_request");
  expect(extra.errors!.map((error) => error.pointer)).toContain(pointer);
});

test("the page lists the legal forms that are left out, all of them", async () => {
  const page = await readFile(join(ROOT, "docs/companies-lookup.md"), "utf8");
  const text = sql("register/macros").replace(/'\s*\n\s*'/g, "");
  const [, ends] = text.match(/'\( \((.+?)\)\)\+\$'/)!;
  const [, starts] = text.match(/'\^\(\((.+?)\) \)\+'/)!;
  const [, han] = text.match(/'\(\.\) \?\(\?:(.+?)\)\$'/)!;
  const listed = (heading: string): string[] => {
    const line = page.split("\n").find((one) => one.startsWith(heading));
    return [...(line ?? "").matchAll(/`([^`]+)`/g)].map(([, form]) => form!);
  };
  expect(listed("At the end:")).toEqual([...ends!.split("|"), ...han!.split("|")]);
  expect(listed("In front:").slice(0, starts!.split("|").length)).toEqual(starts!.split("|"));
});
