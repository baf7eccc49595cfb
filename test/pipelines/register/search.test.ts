import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { importRegister, registerPath } from "../../../pipelines/register/import.ts";
import { Register } from "../../../pipelines/register/register.ts";
import { gramsOf, type Matches, type Question, search } from "../../../pipelines/register/search.ts";
import { HEADER, inventedRow, inventGoldenCopy } from "../../helpers/golden-copy.ts";

const SAMPLE = resolve(import.meta.dirname, "../../../fixtures/register");

let dir: string;
let register: Register;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "register-search-"));
  const [source, domains] = [join(SAMPLE, "golden-copy.csv"), join(SAMPLE, "domains.csv")];
  await importRegister({ source, domains, to: registerPath(dir), clock: systemClock });
  register = new Register({ path: registerPath(dir), clock: systemClock });
});

afterAll(async () => {
  register.close();
  await rm(dir, { recursive: true, force: true });
});

const ask = (question: Question, most = 10): Promise<Matches> => register.use((open) => search(open, question, most));
const first = async (question: Question): Promise<[string | undefined, string[] | undefined]> => {
  const [match] = (await ask(question)).matches;
  return [match?.company.name, match?.reasons];
};

describe("what is found, and why", () => {
  test.each<[Question, string, string[]]>([
    [{ lei: "529900D6BF99LW9R2E68" }, "SAP SE", ["lei"]],
    [{ register_number: "hrb-42243" }, "Bayerische Motoren Werke Aktiengesellschaft", ["register_number"]],
    [{ register_number: "617987" }, "HSBC HOLDINGS PLC", ["register_number"]],
    [{ domain: "https://shop.sap.com:8443/cart" }, "SAP SE", ["domain"]],
    [{ domain: "a.b.c.d.e.sap.com" }, "SAP SE", ["domain"]],
    [{ domain: "www.siemens.com" }, "Siemens Aktiengesellschaft", ["domain"]],
    [{ name: "Allianz SE" }, "Allianz SE", ["exact_name"]],
    [{ name: "ALLIANZ AG" }, "Allianz SE", ["same_name"]],
    [{ name: "Société Générale" }, "SOCIETE GENERALE", ["exact_name"]],
    [{ name: "BMW" }, "Bayerische Motoren Werke Aktiengesellschaft", ["same_name"]],
    [{ name: "日立製作所" }, "株式会社日立製作所", ["same_name"]],
    [{ name: "Hitachi" }, "株式会社日立製作所", ["same_name"]],
    [{ name: "santander" }, "BANCO SANTANDER, S.A.", ["all_words"]],
    [{ name: "argentaria bilbao" }, "BANCO BILBAO VIZCAYA ARGENTARIA, S.A.", ["all_words"]],
    [{ name: "Simeens" }, "Siemens Aktiengesellschaft", ["similar"]],
    [{ name: "Deutche Bnak" }, "DEUTSCHE BANK AKTIENGESELLSCHAFT", ["similar"]],
    [{ name: "Goldmann Sachs Group" }, "THE GOLDMAN SACHS GROUP, INC.", ["similar"]],
  ])("%j", async (question, name, reasons) => {
    expect(await first(question)).toEqual([name, reasons]);
  });

  test("exact ids come first, and a company that two of them mean has both reasons", async () => {
    const { matches } = await ask({
      lei: "W38RGI023J3WT1HWRP32",
      domain: "sap.com",
      name: "Siemens",
      register_number: "HRB 6684",
    });
    expect(matches.map(({ company, reasons }) => [company.name, reasons])).toEqual([
      ["Siemens Aktiengesellschaft", ["lei", "register_number", "same_name"]],
      ["SAP SE", ["domain"]],
    ]);
  });

  test("a country leaves the others out, and a register too", async () => {
    expect(await first({ name: "bank", country: "DE" })).toEqual(["DEUTSCHE BANK AKTIENGESELLSCHAFT", ["all_words"]]);
    expect((await ask({ name: "bank", country: "JP" })).matches).toEqual([]);
    expect((await ask({ register_number: "617987", country: "FR" })).matches).toEqual([]);
    expect((await ask({ register_number: "617987", register_authority: "RA000463" })).matches).toEqual([]);
  });

  test("nothing that is like it is no match", async () => {
    for (const name of ["Xyzzyplugh Qwertz", "GmbH", "!!!", "a", "'; DROP TABLE company; --", "\u0000", "😀"]) {
      expect(await ask({ name })).toEqual({ matches: [], more: false });
    }
    expect((await ask({ lei: "5493006W3QUS5LMH6R84", name: "" })).matches).toHaveLength(1);
  });

  test("no more than asked for, and it says that there are more", async () => {
    expect(await ask({ name: "bank" }, 1)).toMatchObject({ matches: { length: 1 }, more: true });
  });
});

test("threes of letters are those of the register", async () => {
  const words = ["allianz", "bmw", "日立製作所", "𐐀𐐁𐐂𐐃", "aaaaa", "o'neil"];
  const rows = await register.use((open) =>
    open.all<{ grams: string[] }>(
      `SELECT list_sort(grams_of(w)) AS grams FROM (SELECT unnest(from_json($words, '["VARCHAR"]')) AS w)`,
      { words: JSON.stringify(words) },
    ),
  );
  // Sorted as the engine sorts, by bytes.
  const sorted = (grams: string[]) => grams.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  expect(rows.map(({ grams }) => grams)).toEqual(words.map((word) => sorted(gramsOf(word))));
});

test("among thousands of invented companies each is found by its name, its number and one letter wrong", async () => {
  const folder = await mkdtemp(join(tmpdir(), "register-many-"));
  const source = join(folder, "rows.csv");
  await inventGoldenCopy(source, 1_500);
  await importRegister({ source, to: registerPath(folder), clock: systemClock });
  const many = new Register({ path: registerPath(folder), clock: systemClock });
  try {
    for (let i = 0; i < 1_500; i += 151) {
      const row = inventedRow(i);
      const name = row["Entity.LegalName"]!;
      const longest = name.split(" ").reduce((a, b) => (b.length > a.length ? b : a));
      const wrong = name.replace(longest, `${longest.slice(0, 3)}q${longest.slice(4)}`);
      const found = await many.use(async (open) =>
        Promise.all(
          [{ name }, { name: wrong }].map(async (question) =>
            (await search(open, question, 20)).matches.map(({ company }) => company.lei),
          ),
        ),
      );
      for (const leis of found) expect(leis).toContain(row.LEI);
      const [own] = await many.use(async (open) => (await search(open, { lei: row.LEI! }, 1)).matches);
      expect(own!.company).toMatchObject({
        ...{ legal_lines: [row["Entity.LegalAddress.FirstAddressLine"]], successors: [], expired: null },
      });
    }
  } finally {
    many.close();
    await rm(folder, { recursive: true, force: true });
  }
});

test("the header of an invented file is that of the sample", async () => {
  const { readFile } = await import("node:fs/promises");
  expect((await readFile(join(SAMPLE, "golden-copy.csv"), "utf8")).startsWith(HEADER)).toBe(true);
});
