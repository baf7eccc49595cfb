/**
 * What our own paid operations take of a processor, their reader processes included: web/evidence, companies/lookup of one and
 * of 50 names, and briefs about the record. docs/paid-operations.md has the figures.
 * Run: npx tsx test/bench/work.bench.ts [companies in the register] [endpoints in the record] [--register=FILE of an import that was kept]
 */
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../infra/clock.ts";
import { importRegister, registerPath } from "../../pipelines/register/import.ts";
import { Register } from "../../pipelines/register/register.ts";
import { createService } from "../../serving/context.ts";
import { Problem } from "../../serving/http/problem.ts";
import { researchBrief } from "../../serving/work/brief/research-brief.ts";
import { companiesLookup } from "../../serving/work/companies.ts";
import { webEvidence } from "../../serving/work/web-evidence.ts";
import { inventedRow, inventGoldenCopy } from "../helpers/golden-copy.ts";
import { cardOf, type EndpointSpec, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { servingOver } from "../helpers/serving.ts";
import { page, worldOf } from "../serving/work/world.ts";
import { ratio } from "./ratio.ts";

const [rows = 200_000, endpoints = 1_000] = process.argv
  .slice(2)
  .filter((arg) => !arg.startsWith("--"))
  .map(Number);
const KEPT = process.argv.find((arg) => arg.startsWith("--register="))?.slice(11);
/** Ticks of /proc, a second. */
const TICKS = 100;

/** Seconds of a processor of this process and of its children that have ended. */
function cpu(): number {
  const fields = readFileSync("/proc/self/stat", "utf8").split(") ")[1]!.split(" ");
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS;
}

/** Mean processor time of a piece of work, ms. A reader's process counts once it has ended, so of the work before. */
async function mean(what: string, times: number, work: (i: number) => Promise<unknown>): Promise<void> {
  await work(0);
  const before = cpu();
  for (let i = 1; i <= times; i++) await work(i);
  ratio(`work: ${what}`, `${(((cpu() - before) / times) * 1_000).toFixed(0)} ms CPU, mean of ${times}`, "of 0.02 USD");
}

async function evidence(): Promise<void> {
  const line = "<p>The money comes back within thirty days, and not a day later than that.</p>\n";
  const html = (bytes: number): string =>
    `<!doctype html><html><body>${line.repeat(bytes / line.length)}</body></html>`;
  const plain = { "content-type": "application/octet-stream" };
  const world = await worldOf({
    "/12KB": page(html(12_000)),
    "/1MB": page(html(1_000_000)),
    "/5MB": page(Buffer.alloc(5_000_000, 7), plain),
  });
  for (const size of ["12KB", "1MB", "5MB"]) {
    const url = `${world.origin}/${size}`;
    await mean(`web/evidence of ${size}${size === "5MB" ? " of no text" : " of HTML"}`, 10, () =>
      webEvidence.run({ url }, world),
    );
  }
  await world.close();
}

/** What is not found is looked for all the same, and costs the processor as much. */
function unlessNothing(error: unknown): void {
  if (!(error instanceof Problem && error.code === "nothing_relevant")) throw error;
}

const wrongly = (name: string): string => {
  const longest = name.split(" ").reduce((a, b) => (b.length > a.length ? b : a));
  return name.replace(longest, `${longest.slice(0, 3)}q${longest.slice(4)}`);
};

async function companies(): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), "work-bench-"));
  const path = KEPT ?? registerPath(dir);
  if (!KEPT) {
    await inventGoldenCopy(join(dir, "rows.csv"), rows);
    await importRegister({ source: join(dir, "rows.csv"), to: path, clock: systemClock });
  }
  const register = new Register({ path, clock: systemClock });
  const nameOf = (i: number): string => inventedRow((i * 7_919) % rows)["Entity.LegalName"]!;
  const deps = { register, clock: systemClock };
  const fifty = (i: number, of: (name: string) => string) => [
    ...new Set(Array.from({ length: 50 }, (_, k) => of(nameOf(50 * i + k)))),
  ];
  await mean("companies/lookup of a name", 40, (i) => companiesLookup.run({ name: nameOf(i), certainty: 0.5 }, deps));
  await mean("companies/lookup of a name with a letter wrong", 40, (i) =>
    companiesLookup.run({ name: wrongly(nameOf(i)), certainty: 0.5 }, deps),
  );
  await mean("companies/lookup of 50 names", 4, (i) =>
    companiesLookup.run({ names: fifty(i, String), certainty: 0.5 }, deps),
  );
  await mean("companies/lookup of 50 names with a letter wrong each", 2, (i) =>
    companiesLookup.run({ names: fifty(i, wrongly), certainty: 0.5 }, deps).catch(unlessNothing),
  );
  // Twelve words that are looked for and many names that hold words like them.
  const common = "capital fund holdings global trust bank invest energy services international estate group";
  await mean("companies/lookup of the twelve commonest words", 10, (i) =>
    companiesLookup
      .run({ name: `${common.replace("capital", `capitl${i}`)}`, certainty: 0.5 }, deps)
      .catch(unlessNothing),
  );
  register.close();
  await rm(dir, { recursive: true, force: true });
}

const QUESTIONS = [
  "Which sellers are thieves?",
  "Which sellers fail?",
  "Which is the cheapest sha256 hash on base?",
  "How many endpoints have an A?",
  "What is the price of https://seller-7.example/v1?",
  "Which listings have defects?",
];

async function briefs(): Promise<void> {
  const record = await PublicRecord.open();
  const specs: EndpointSpec[] = Array.from({ length: endpoints }, (_, i) => ({
    ...{
      url: `https://seller-${i}.example/v1`,
      description: i % 3 ? "The weather at a place" : "SHA-256 hash of a text",
    },
    ...{ class: i % 3 ? "weather" : "encodings" },
    ...(i % 9 ? {} : { defects: [{ defect: "price_differs", says: "the 402 asks a price other than the listing's" }] }),
  }));
  const bands = ["A", "B", "C", "D", "F"] as const;
  await record.publish(
    specs.map((spec) => listingDraft(spec)),
    ...specs.map((spec, i) =>
      record.grades(
        [cardOf(spec, { band: bands[i % 5]!, ...(i % 50 ? {} : { flags: ["took_the_money"] }) })],
        "As its calls went.",
      ),
    ),
  );
  await record.live(
    specs.map((spec, i) => rowOf(spec, { price: `0.0${10 + (i % 90)}000`, unserved_since: i % 50 ? null : 0 })),
  );
  const serving = await servingOver(record);
  const world = await worldOf({});
  const { egress, register, extractor } = world;
  const deps = createService({ ...serving.deps, workshop: { egress, extractor, register } }).work!;
  for (const question of QUESTIONS) {
    await mean(`research/brief of the record: ${question}`, 10, () =>
      researchBrief.run({ question }, deps).catch(unlessNothing),
    );
  }
  await world.close();
  await record.close();
}

console.log(`${rows.toLocaleString("en")} companies, ${endpoints.toLocaleString("en")} endpoints`);
await evidence();
await companies();
await briefs();
process.exit(0);
