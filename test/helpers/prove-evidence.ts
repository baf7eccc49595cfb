import { decompress } from "zstd-napi";
import type { EvidenceLeaf, Leaf } from "../../pipelines/record/leaf.ts";
import { addDays } from "../../pipelines/record/time.ts";
import { canonical, sha256, sha256hex } from "./signatures.ts";

type Line = Record<string, unknown> & { capability_id: string; topic: string; position: number };

/** A sample of the evidence, and the leaf that names its file. */
export interface SampleOf {
  line: Line;
  leaf: EvidenceLeaf;
}

/**
 * Everything that is wrong with the evidence under these leaves: days in order and without a gap, closes whole, files as
 * their leaves name them, lines canonical, in order, in their place, and no sample twice. Not by the code under test.
 * @returns what is wrong, every sample, and the days of which a file could not be read
 */
export async function evidenceProblems(
  leaves: readonly Leaf[],
  bytesOf: (key: string) => Promise<Buffer | null>,
): Promise<{ problems: string[]; samples: SampleOf[]; unread: Set<string> }> {
  const problems: string[] = [];
  const evidence = leaves.filter((leaf): leaf is EvidenceLeaf => leaf.kind === "evidence");
  problems.push(...orderProblems(evidence), ...tableProblems(leaves));
  const samples = new Map<string, SampleOf>();
  const unread = new Set<string>();
  for (const leaf of evidence) {
    const bad = (says: string) => problems.push(`leaf ${leaf.index} (${leaf.key}): ${says}`);
    if (leaf.key === null) {
      if (leaf.holds !== "nothing" || leaf.rows !== 0 || leaf.parts !== 1) bad("names no file and is no empty day");
      continue;
    }
    const packed = await bytesOf(leaf.key);
    const isNamed = packed && sha256hex(packed) === leaf.sha256 && packed.length === leaf.bytes;
    if (isNamed) checkFile(leaf, decompress(packed), bad, samples);
    else {
      bad(packed ? "is not what its leaf names" : "missing");
      unread.add(leaf.day);
    }
  }
  return { problems, samples: [...samples.values()], unread };
}

/** Each leaf leads to the table that it names, and each card of a record with such leaves names one that stands before it. */
function tableProblems(leaves: readonly Leaf[]): string[] {
  const problems: string[] = [];
  const kin = leaves.filter((leaf) => leaf.kind === "kin");
  checkTables(kin, (says) => problems.push(`tables of related parties in the leaves: ${says}`));
  const named = new Set<string | null>([sha256hex("")]);
  for (const leaf of leaves) {
    if (leaf.kind === "kin") named.add(leaf.kin);
    if (kin.length > 0 && leaf.kind === "grade" && !named.has(leaf.inputs.kin))
      problems.push(`leaf ${leaf.index}: no leaf before it names table ${leaf.inputs.kin}`);
  }
  return problems;
}

function orderProblems(evidence: readonly EvidenceLeaf[]): string[] {
  const problems: string[] = [];
  const closes = new Map<string, number>();
  let [first, newest] = ["", ""];
  for (const [i, { index, day, freeze, part, parts, bucket }] of evidence.entries()) {
    const before = evidence[i - 1];
    const bad = (says: string) => problems.push(`leaf ${index}: evidence of ${day}: ${says}`);
    if (part > 1) {
      const neighbours = before?.index === index - 1 && before.day === day && before.freeze === freeze;
      if (!neighbours || before.part !== part - 1 || before.parts !== parts) bad(`part ${part} does not follow`);
      if (bucket !== null && before?.bucket !== null && bucket <= (before?.bucket ?? -1)) bad("buckets not ascending");
      continue;
    }
    if (before && before.part !== before.parts) bad("the close before it is not whole");
    if (freeze !== (closes.get(day) ?? 0)) bad(`freeze ${freeze} after ${closes.get(day) ?? 0}`);
    first ||= day;
    if (freeze === 0 && newest && day >= first && day !== addDays(newest, 1)) bad(`follows ${newest}`);
    closes.set(day, freeze + 1);
    if (day > newest) newest = day;
  }
  const last = evidence.at(-1);
  if (last && last.part !== last.parts) problems.push(`the last close, of ${last.day}, is not whole`);
  return problems;
}

function checkFile(
  leaf: EvidenceLeaf,
  text: Buffer,
  bad: (says: string) => void,
  samples: Map<string, SampleOf>,
): void {
  if (sha256hex(text) !== leaf.unpacked_sha256 || text.length !== leaf.unpacked_bytes) bad("unpacks to something else");
  const part = leaf.holds === "kin" ? "kin" : leaf.bucket;
  const key = `evidence/${leaf.day}/${part}.${leaf.unpacked_sha256!.slice(0, 16)}.ndjson.zst`;
  if (leaf.key !== key) bad(`should be called ${key}`);
  const lines = text.toString("utf8").split("\n");
  if (lines.pop() !== "" || lines.length !== leaf.rows || leaf.rows === 0) bad(`${lines.length} lines of ${leaf.rows}`);
  const values = lines.map((line) => JSON.parse(line) as Line);
  for (const [i, value] of values.entries()) if (canonical(value) !== lines[i]) bad(`line ${i} is not RFC 8785`);
  if (leaf.holds === "kin") checkTables(values, bad);
  else checkLines(leaf, values, bad, samples);
}

function checkLines(
  leaf: EvidenceLeaf,
  lines: readonly Line[],
  bad: (says: string) => void,
  samples: Map<string, SampleOf>,
): void {
  let last = "";
  for (const [i, line] of lines.entries()) {
    const id = String(line.obs_id ?? line.of);
    if (id < last) bad(`line ${i}: ${id} after ${last}`);
    last = id;
    const bucket = sha256(line.capability_id)[0]! >> 2;
    if (bucket !== leaf.bucket) bad(`line ${i} belongs to bucket ${bucket}`);
    if (line.position >= (leaf.positions[line.topic] ?? 0)) bad(`line ${i} lies beyond what the close had read`);
    if (String(line.t ?? line.observed_at).slice(0, 10) !== leaf.day) bad(`line ${i} is of another day`);
    if (line.obs_id === undefined) continue;
    if (samples.has(id)) bad(`sample ${id} stands in leaf ${samples.get(id)!.leaf.index} already`);
    samples.set(id, { line, leaf });
  }
}

function checkTables(lines: readonly Record<string, unknown>[], bad: (says: string) => void): void {
  const table = new Map<string, string>();
  for (const line of lines) {
    for (const cap of line.remove as string[]) table.delete(cap);
    for (const { cap, domain, pay_to } of line.add as Record<string, string>[]) {
      table.set(cap!, `${canonical({ cap, domain, pay_to })}\n`);
    }
    const text = [...table]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([, thief]) => thief)
      .join("");
    // A leaf whose change the next one goes on with names none.
    if (line.kind === "kin" && line.kin === null) continue;
    if (sha256hex(text) !== line.kin) bad(`does not lead to table ${String(line.kin)}`);
  }
}
