/**
 * Import of an invented golden copy with its parents, and lookups in it, by id and by name, one after the other.
 * Run: npx tsx test/bench/companies.bench.ts [rows] [--register=FILE of an import that was kept]
 */
import { mkdtemp, rm, stat } from "node:fs/promises";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../infra/clock.ts";
import { importRegister, registerPath } from "../../pipelines/register/import.ts";
import { Register } from "../../pipelines/register/register.ts";
import { type Question, search } from "../../pipelines/register/search.ts";
import { inventedRow, inventGoldenCopy, inventLevel2 } from "../helpers/golden-copy.ts";
import { peakGb, ratio, shown, timed } from "./ratio.ts";

const args = process.argv.slice(2);
const ROWS = Number(args.find((arg) => !arg.startsWith("--")) ?? 2_900_000);
const KEPT = args.find((arg) => arg.startsWith("--register="))?.slice(11);
const LOOKUPS = 60;

const wrongly = (name: string): string => {
  const longest = name.split(" ").reduce((a, b) => (b.length > a.length ? b : a));
  return name.replace(longest, `${longest.slice(0, 3)}q${longest.slice(4)}`);
};

const KINDS: Readonly<Record<string, (row: Record<string, string>) => Question>> = {
  "by LEI": (row) => ({ lei: row.LEI }),
  "by register number": (row) => ({
    register_number: row["Entity.RegistrationAuthority.RegistrationAuthorityEntityID"],
  }),
  "by name": (row) => ({ name: row["Entity.LegalName"] }),
  "by part of a name": (row) => ({ name: row["Entity.LegalName"]!.split(" ").slice(0, 2).join(" ") }),
  "by a name with a letter wrong": (row) => ({ name: wrongly(row["Entity.LegalName"]!) }),
  "by two of the commonest words": () => ({ name: "capital fund" }),
};

const at = (sorted: readonly number[], part: number): string =>
  sorted[Math.floor(part * (sorted.length - 1))]!.toFixed(1);

async function lookups(path: string, rows: number): Promise<void> {
  const register = new Register({ path, clock: systemClock });
  for (const [kind, questionOf] of Object.entries(KINDS)) {
    const [walls, cpus]: [number[], number[]] = [[], []];
    let matched = 0;
    for (let i = 0; i <= LOOKUPS; i++) {
      const question = questionOf(inventedRow(Math.floor((i * rows) / (LOOKUPS + 1))));
      const cost = await timed(async () => {
        const { matches } = await register.use((open) => search(open, question, 10));
        matched += Number(matches.length > 0);
      });
      // The first one reads what no question has read before.
      if (i === 0) continue;
      walls.push(cost.wall * 1_000);
      cpus.push(cost.cpu * 1_000);
    }
    const [wall, cpu] = [walls, cpus].map((times) => times.sort((a, b) => a - b)) as [number[], number[]];
    const figures = `${at(wall, 0.5)} / ${at(wall, 0.95)} ms wall, ${at(cpu, 0.5)} / ${at(cpu, 0.95)} ms CPU`;
    ratio(`companies, ${kind}: p50 / p95 (${matched} of ${LOOKUPS + 1} found)`, figures, "tens of ms");
  }
  register.close();
}

const dir = await mkdtemp(join(tmpdir(), "companies-bench-"));
try {
  let path = KEPT;
  if (path === undefined) {
    path = registerPath(dir);
    const source = join(dir, "golden-copy.csv");
    await inventGoldenCopy(source, ROWS);
    const bytes = (await stat(source)).size;
    console.log(`${ROWS.toLocaleString("en")} rows, ${(bytes / 1e9).toFixed(2)} GB; load ${loadavg()[0]!.toFixed(1)}`);
    const [relationships, exceptions] = [join(dir, "rr.csv"), join(dir, "repex.csv")];
    await inventLevel2(relationships, exceptions, ROWS);
    const cost = await timed(() =>
      importRegister({ source, relationships, exceptions, to: path!, clock: systemClock }),
    );
    const size = ((await stat(path)).size / 1e6).toFixed(0);
    ratio(
      "companies: import",
      `${shown(cost).trim()}, peak ${peakGb().toFixed(2)} GB, register ${size} MB`,
      "minutes, 2 GB",
    );
    await rm(source);
  }
  await lookups(path, ROWS);
} finally {
  await rm(dir, { recursive: true, force: true });
}
