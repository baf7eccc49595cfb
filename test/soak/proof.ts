import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { readDemo } from "../helpers/demo-record.ts";
import { runs } from "../helpers/programs.ts";

const run = promisify(execFile);

export interface SoakProof {
  /** Planned calls that were made, by what the record holds of them. */
  probes: number;
  paid: number;
  cards: number;
  /** Acknowledged appends of all starts, and how many of them are not in the lake exactly once. */
  acknowledged: number;
  lost: number;
  /** Paid calls of honest sellers that failed and are counted against them. */
  blamed: number;
  /** Exit code of `touchstone audit` of the published folder, and of the mirror's. */
  audits: number[];
  problems: string[];
}

interface Stopped {
  dir: string;
  dataDir: string;
  baseUrl: string;
  acked: readonly string[];
  honestUrls: ReadonlySet<string>;
}

async function auditOf(source: string): Promise<number> {
  try {
    await run(process.execPath, [...runs("touchstone.ts"), "audit", source, "--json"], { maxBuffer: 1 << 28 });
    return 0;
  } catch (error) {
    const { code, stdout } = error as { code?: number; stdout?: string };
    process.stderr.write(`audit of ${source}: ${stdout?.slice(-3_000)}\n`);
    return code ?? 1;
  }
}

/**
 * Proves what a stopped service left: the whole record by the oracle of the kill tests, every acknowledged append, no honest
 * seller blamed for what was done to us, and `touchstone audit` of the published folder and of the mirror.
 */
export async function proveSoak({ dir, dataDir, baseUrl, acked, honestUrls }: Stopped): Promise<SoakProof> {
  const record = await readDemo(dataDir, baseUrl, 2);
  const ids = [...new Set(acked)];
  const lost = ids.filter((id) => record.lakeEvents.get(id) !== 1);
  const inLog = new Set(record.log.map(({ eventId }) => eventId));
  const whereIs = (id: string) => ({ id, inLog: inLog.has(id), inLake: record.lakeEvents.get(id) ?? 0 });
  const honest = new Set<string>();
  for (const { cap, body } of record.facts("listing")) {
    const url = (body as { claims?: { url?: string }; normalised_url?: string }).claims?.url ?? body.normalised_url;
    if (honestUrls.has(url)) honest.add(cap);
  }
  const results = record.facts("paid.result");
  const blamed = results.filter(
    ({ cap, body }) => honest.has(cap) && body.settled && !body.delivered && (body.fault ?? null) === null,
  );
  const wrong = record.cards.filter(({ verdict }) => verdict === "differs");
  const audits = [await auditOf(`${dataDir}/public`), await auditOf(`${dir}/mirror`)];
  const problems = [
    ...(lost.length > 0
      ? [
          `${lost.length} acknowledged appends are not in the lake once: ${JSON.stringify(lost.slice(0, 3).map(whereIs))}`,
        ]
      : []),
    ...(blamed.length > 0
      ? [`${blamed.length} failures are counted against honest sellers: ${JSON.stringify(blamed.slice(0, 2))}`]
      : []),
    ...(honest.size === 0 ? ["no honest seller of the crowd is listed: this run shows nothing"] : []),
    ...(wrong.length > 0 ? [`${wrong.length} cards do not follow from the evidence`] : []),
    ...(audits.some((code) => code !== 0) ? [`audits ended with ${audits.join(" and ")}`] : []),
  ];
  const probes = record.facts("handshake").length;
  const counted = { probes, paid: results.length, cards: record.cards.length };
  return { ...counted, acknowledged: ids.length, lost: lost.length, blamed: blamed.length, audits, problems };
}
