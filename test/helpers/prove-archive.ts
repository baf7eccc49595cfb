import { decompress } from "zstd-napi";
import type { Jwks } from "../../infra/keys/jwk.ts";
import type { ArchiveLeaf, Leaf } from "../../pipelines/record/leaf.ts";
import { addDays } from "../../pipelines/record/time.ts";
import type { SampleOf } from "./prove-evidence.ts";
import { canonical, plainId, sha256hex, signatureFault } from "./signatures.ts";

const SUBJECTS = ["liveness_probes", "mcp_probes", "grades", "mcp_grades"];
const SUBJECT_OF: Record<string, string> = { "observations.free": "liveness_probes", "observations.mcp": "mcp_probes" };

/** Where the parts of the record lie that the archive is held against. */
export interface ArchiveOf {
  leaves: readonly Leaf[];
  /** Text of the entry at an index. */
  entries: readonly Buffer[];
  /** Keys that vouch at the index of a leaf. */
  jwksAt: (index: number) => Jwks | null;
  /** Lines of the evidence that are samples, with the leaf that names their file. */
  samples: readonly SampleOf[];
  /** Days of which a file of the evidence could not be read: what their probes should be is not known. */
  unread: ReadonlySet<string>;
  bytesOf: (key: string) => Promise<Buffer | null>;
}

/**
 * Everything that is wrong with the archive under these leaves: manifests signed and complete, files as their manifests
 * and leaves name them, lines canonical and in order, every subject of every day, each row in one standing file, and each
 * row what the evidence (or the tree, of a grade) tells of it. Written from docs/archive.md, not by the code under test.
 */
export async function archiveProblems(of: ArchiveOf): Promise<string[]> {
  const archive = of.leaves.filter((leaf): leaf is ArchiveLeaf => leaf.kind === "archive");
  const problems = standingProblems(archive);
  const replaced = new Set(archive.map(({ supersedes }) => supersedes));
  const rows = new Map<string, string[]>();
  for (const leaf of archive) {
    const { manifest, index } = leaf;
    const bad = (says: string) => problems.push(`leaf ${index} (${manifest.subject} of ${dayOf(leaf)}): ${says}`);
    manifestProblems(leaf, of.jwksAt(index), await of.bytesOf(`archive/${manifest.id}.json`), bad);
    const lines = linesOf(leaf, await of.bytesOf(keyOf(leaf)), bad);
    if (lines === null || replaced.has(manifest.id)) continue;
    rows.set(nameOf(leaf), [...(rows.get(nameOf(leaf)) ?? []), ...lines]);
  }
  problems.push(...rowProblems(archive, rows, of));
  return problems;
}

const dayOf = ({ manifest }: ArchiveLeaf): string => manifest.from.slice(0, 10);
const nameOf = (leaf: ArchiveLeaf): string => `${leaf.manifest.subject} ${dayOf(leaf)}`;
const keyOf = (leaf: ArchiveLeaf): string =>
  `archive/${leaf.manifest.subject}/${dayOf(leaf)}.${leaf.manifest.content_hash.slice(0, 16)}.ndjson.zst`;

/** A file once, replaced at most once and by a later one of the same subject and day; no subject of a day left out. */
function standingProblems(archive: readonly ArchiveLeaf[]): string[] {
  const problems: string[] = [];
  const standing = new Map<string, string>();
  const known = new Set<string>();
  for (const leaf of archive) {
    const { manifest, supersedes, index } = leaf;
    if (known.has(manifest.id)) problems.push(`leaf ${index}: ${manifest.id} again`);
    known.add(manifest.id);
    if (supersedes !== null && standing.get(supersedes) !== nameOf(leaf))
      problems.push(`leaf ${index}: ${supersedes} is no standing file of ${nameOf(leaf)}`);
    if (supersedes !== null) standing.delete(supersedes);
    standing.set(manifest.id, nameOf(leaf));
  }
  const days = archive.map(dayOf).sort();
  const there = new Set(standing.values());
  for (let day = days[0] ?? "9"; day <= days.at(-1)!; day = addDays(day, 1)) {
    for (const subject of SUBJECTS)
      if (!there.has(`${subject} ${day}`)) problems.push(`no archive of ${subject} ${day}`);
  }
  return problems;
}

function manifestProblems(
  leaf: ArchiveLeaf,
  jwks: Jwks | null,
  served: Buffer | null,
  bad: (says: string) => void,
): void {
  const { manifest } = leaf;
  const day = dayOf(leaf);
  if (!served) bad(`archive/${manifest.id}.json is missing`);
  else if (served.toString() !== canonical(manifest)) bad("another manifest is served");
  if (manifest.id !== plainId("arc", [manifest.subject, day, manifest.content_hash])) bad(`its id is ${manifest.id}`);
  if (manifest.from !== `${day}T00:00:00.000Z` || manifest.to !== `${addDays(day, 1)}T00:00:00.000Z`) bad("is no day");
  if (!manifest.file.endsWith(`/${keyOf(leaf)}`)) bad(`its file is ${manifest.file}`);
  if (manifest.reproduce !== `curl -fsS '${manifest.file}' | zstd -dc | sha256sum`) bad("another command");
  const fault = jwks ? signatureFault(jwks, manifest, { purpose: "cards", at: manifest.verified_at }) : "no keys yet";
  if (fault) bad(`signature: ${fault}`);
}

/** Lines of the file that a leaf names, null when it is another. */
function linesOf(leaf: ArchiveLeaf, packed: Buffer | null, bad: (says: string) => void): string[] | null {
  const { manifest } = leaf;
  if (!packed) bad(`${keyOf(leaf)} is missing`);
  else if (sha256hex(packed) !== leaf.sha256 || packed.length !== manifest.bytes) bad("the file is not what it names");
  else {
    const text = decompress(packed);
    if (sha256hex(text) !== manifest.content_hash || text.length !== leaf.unpacked_bytes) bad("unpacks otherwise");
    const lines = text.toString("utf8").split("\n");
    if (lines.pop() !== "" || lines.length !== manifest.rows) bad(`${lines.length} lines of ${manifest.rows}`);
    const order = lines.map(orderOf);
    if (order.some((place, i) => i > 0 && place <= order[i - 1]!)) bad("lines are not in order");
    return lines;
  }
  return null;
}

/** Places of the lines in their order: a probe by capability and record, a grade by its index in the tree. */
function orderOf(line: string): string {
  const { capability_id, record_id, index } = JSON.parse(line) as Record<string, unknown>;
  return index === undefined ? `${capability_id} ${record_id}` : String(index).padStart(16, "0");
}

/** Rows of the standing files against evidence and tree: nothing left out, nothing twice, nothing changed. */
function rowProblems(
  archive: readonly ArchiveLeaf[],
  rows: ReadonlyMap<string, readonly string[]>,
  { leaves, entries, samples, unread }: ArchiveOf,
): string[] {
  const problems: string[] = [];
  const wanted = new Map<string, Map<string, number>>();
  const want = (name: string, line: string, index: number): void => {
    const known = wanted.get(name) ?? new Map<string, number>();
    wanted.set(name, known.set(line, index));
  };
  for (const { line, leaf } of samples) {
    const subject = SUBJECT_OF[String(line.topic)];
    if (subject) want(`${subject} ${leaf.day}`, rowOf(line, subject === "mcp_probes"), leaf.index);
  }
  const tools = new Set<string>();
  for (const leaf of leaves) {
    if (leaf.kind === "listing" && leaf.tool !== null) tools.add(leaf.capability_id);
    if (leaf.kind !== "grade") continue;
    const subject = tools.has(leaf.card.capability_id) ? "mcp_grades" : "grades";
    want(`${subject} ${leaf.day}`, entries[leaf.index]!.toString(), leaf.index);
  }
  for (const [name, held] of rows) {
    if (unread.has(name.split(" ")[1]!)) continue;
    const bad = (what: string, lines: readonly string[]): void => {
      if (lines.length > 0) problems.push(`archive of ${name}: ${lines.length} rows ${what}: ${lines[0]}`);
    };
    const newest = archive.findLast((leaf) => nameOf(leaf) === name)!.index;
    const all = wanted.get(name) ?? new Map<string, number>();
    const there = new Set(held);
    // What came behind the newest file is not filed yet.
    bad(
      "in no file",
      [...all].flatMap(([line, index]) => (index < newest && !there.has(line) ? [line] : [])),
    );
    bad(
      "from nowhere",
      held.filter((line) => !all.has(line)),
    );
    if (there.size < held.length)
      bad(
        "twice",
        held.filter((line, i) => held.indexOf(line) !== i),
      );
  }
  return problems;
}

interface Terms {
  sha256: string;
  protocols: string[];
  offers: { network: string; asset: string | null; payable: boolean }[];
}

/** The line of a probe, from its sample in the evidence (records.md, Archive rows). */
function rowOf(line: SampleOf["line"], isTool: boolean): string {
  const terms = (line.terms ?? null) as Terms | null;
  const row: Record<string, unknown> = { record_id: line.obs_id, capability_id: line.capability_id };
  row.observed_at = line.t;
  row.fault = line.fault;
  row.counts = line.fault !== "ours";
  for (const name of ["state", "status", "latency_ms"]) row[name] = line[name] ?? null;
  row.amount = typeof line.price === "number" ? line.price.toFixed(6) : null;
  const signable = terms?.offers.find(({ payable }) => payable) ?? terms?.offers[0];
  row.asset = signable?.asset ?? null;
  const networks = (terms?.offers ?? []).map(({ network }) => Buffer.from(network).toString("hex"));
  row.networks = [...new Set(networks)].sort().map((hex) => Buffer.from(hex, "hex").toString());
  row.protocols = terms?.protocols ?? [];
  row.terms_sha256 = terms?.sha256 ?? null;
  if (isTool) for (const name of ["initialize_ms", "tool", "tool_present"]) row[name] = line[name] ?? null;
  return canonical(row);
}
