import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Lake, openLake } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import { countEdits, faultOfLei, scoreOf, similarityOf } from "../../../pipelines/register/score.ts";
import { checkDigitsOf } from "../../helpers/golden-copy.ts";

let dir: string;
let lake: Lake;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "register-score-"));
  lake = await openLake(join(dir, "macros.duckdb"), {
    memoryLimit: "256MB",
    threads: 1,
    init: [sql("register/macros")],
  });
});

afterAll(async () => {
  await lake.close();
  await rm(dir, { recursive: true, force: true });
});

const plain = async (name: string): Promise<string> =>
  (await lake.all<{ key: string }>("SELECT plain_name($name) AS key", { name }))[0]!.key;

describe("LEIs", () => {
  test("published ones hold, and no other digits do", () => {
    for (const lei of ["HWUPKR0MPOU8FGXBT394", "529900D6BF99LW9R2E68", "7LTWFZYICNSX8D621K86"]) {
      expect(faultOfLei(lei)).toBeNull();
      expect(faultOfLei(`${lei.slice(0, 18)}${lei.slice(18) === "10" ? "11" : "10"}`)).toContain("check digits");
    }
    expect(faultOfLei("529900D6BF99LW9R2E6")).toContain("18 letters");
    expect(faultOfLei("529900d6bf99lw9r2e68")).not.toBeNull();
  });

  test("one wrong character is always found, by the import as by a question", async () => {
    const base = fc.stringMatching(/^[0-9A-Z]{18}$/);
    const leis = fc.sample(base, { numRuns: 200, seed: 17 }).map((text) => `${text}${checkDigitsOf(text)}`);
    const wrong = leis.map((lei, i) => {
      const place = i % 18;
      return `${lei.slice(0, place)}${lei[place] === "A" ? "B" : "A"}${lei.slice(place + 1)}`;
    });
    expect(leis.map(faultOfLei)).toEqual(leis.map(() => null));
    expect(wrong.every((lei) => faultOfLei(lei) !== null)).toBe(true);
    const rows = await lake.all<{ lei: string; holds: boolean }>(
      `SELECT lei, lei_holds(lei) AS holds FROM (SELECT unnest(from_json($leis, '["VARCHAR"]')) AS lei)`,
      { leis: JSON.stringify([...leis, ...wrong]) },
    );
    expect(rows.map(({ holds }) => holds)).toEqual([...leis.map(() => true), ...wrong.map(() => false)]);
  });
});

describe("names as they are compared", () => {
  test.each([
    ["Société Générale S.A.", "societe generale"],
    ["ENI S.p.A.", "eni"],
    ["株式会社日立製作所", "日立製作所"],
    ["トヨタ自動車株式会社", "トヨタ自動車"],
    ["Ｔｏｙｏｔａ Co., Ltd.", "toyota"],
    ["GmbH", "gmbh"],
    ["株式会社", "株式会社"],
    ["J.P. Morgan Chase & Co.", "jp morgan chase"],
    ["ООО Ромашка", "ромашка"],
    ["McDonald's Corp", "mcdonalds"],
    ["Robert Bosch GmbH & Co. KG", "robert bosch"],
    ["A.P. Møller - Mærsk A/S", "ap moller maersk"],
    ["ORLEN Spółka z o.o.", "orlen"],
    ["Weiß & Straße AG", "weiss and strasse"],
  ])("%s is %s", async (name, key) => {
    expect(await plain(name)).toBe(key);
  });

  test("twice is the same as once, whatever was written", async () => {
    const names = fc.sample(fc.string({ unit: "grapheme", maxLength: 40 }), { numRuns: 300, seed: 17 });
    const rows = await lake.all<{ once: string; twice: string }>(
      `SELECT folded(name) AS once, folded(folded(name)) AS twice FROM (SELECT unnest(from_json($names, '["VARCHAR"]')) AS name)`,
      { names: JSON.stringify(names.map((name) => name.replace(/\p{Surrogate}/gu, "").replaceAll("\0", ""))) },
    );
    expect(rows.filter(({ once, twice }) => once !== twice)).toEqual([]);
  });
});

describe("score", () => {
  test("edits are those of the engine", async () => {
    const words = fc.sample(fc.tuple(fc.stringMatching(/^[a-d]{0,6}$/), fc.stringMatching(/^[a-d]{0,6}$/)), {
      numRuns: 300,
      seed: 17,
    });
    // The engine counts an edit between swapped letters as well (its own distance is unrestricted), so it is never more.
    const rows = await lake.all<{ d: bigint; l: bigint }>(
      `SELECT damerau_levenshtein(p[1], p[2]) AS d, levenshtein(p[1], p[2]) AS l
       FROM (SELECT unnest(from_json($words, '[["VARCHAR"]]')) AS p)`,
      { words: JSON.stringify(words) },
    );
    rows.forEach(({ d, l }, i) => {
      const ours = countEdits(...words[i]!);
      expect(ours).toBeGreaterThanOrEqual(Number(d));
      expect(ours).toBeLessThanOrEqual(Number(l));
    });
    expect(countEdits("simeens", "siemens")).toBe(1);
  });

  test("letters decide, word order does not", () => {
    expect(scoreOf("deutsche bank", "bank deutsche")).toEqual({ value: 1, hasAllWords: true });
    expect(scoreOf("bank", "deutsche bank")).toEqual({ value: 0.5, hasAllWords: true });
    expect(scoreOf("deutsche bank", "deutsche boerse").hasAllWords).toBe(false);
    expect(scoreOf("siemens", "simeens").value).toBeCloseTo(6 / 7);
    expect(scoreOf("abcdef", "uvwxyz")).toEqual({ value: 0, hasAllWords: false });
    expect(similarityOf("ab", "abcdefg")).toBe(0);
  });

  test("a name of very many words is scored too, and no word counts twice", () => {
    const long = Array.from({ length: 150 }, () => "a").join(" ");
    expect(scoreOf(long, long).value).toBeLessThanOrEqual(1);
    expect(scoreOf("bank bank", "bank").value).toBeCloseTo(8 / 12);
  });
});
