import { createHash } from "node:crypto";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compress } from "zstd-napi";
import { canonicalBytes, canonicalText, sha256hex } from "../../../infra/canonical.ts";
import { signObject } from "../../../infra/keys/signer.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import type { AuditReport } from "../../../pipelines/audit/audit.ts";
import type { Finding } from "../../../pipelines/audit/findings.ts";
import { evidenceKey } from "../../../pipelines/published/objects.ts";
import { DirectorySource } from "../../../pipelines/published/source.ts";
import {
  archiveFileKey,
  archiveManifestKey,
  dayOfManifest,
  reproduceCommand,
} from "../../../pipelines/record/archive.ts";
import { archiveId, bucketOf } from "../../../pipelines/record/ids.ts";
import type { ArchiveLeaf } from "../../../pipelines/record/leaf.ts";
import { archiveDay } from "../../helpers/archive-draft.ts";
import { proveRecord, RecordBroken } from "../../helpers/prove-record.ts";
import { capOf, PublicRecord } from "../../helpers/public-record.ts";
import { auditOf, notOk } from "../../helpers/published.ts";
import { handshake, listing } from "../2-ingest/records.ts";
import { SIGNERS, TRUST } from "../4-publish/world.ts";
import { ArchiveWorld } from "../5-archive/world.ts";
import { publishKeys, specOf } from "../mirror/testbed.ts";

const D1 = "2026-11-10";
const D2 = "2026-11-11";
const BOTH = "2027-03-02T00:00:00.000Z";

let world: ArchiveWorld;
/** Two days of probes and grades, and both of them archived. */
async function sound(): Promise<ArchiveWorld> {
  const made = await ArchiveWorld.open();
  await made.ingest.append(listing("a", `${D1}T00:00:00.000Z`, { seller_controlled: true }));
  for (const day of [D1, D2]) {
    const probes = ["a", "b"].map((name) => handshake(name, `${day}T02:10:00.000Z`, { planned: "asked" }));
    await made.ingest.append(...probes);
    await made.grade(`${day}T23:00:00.000Z`);
  }
  return made;
}
beforeAll(async () => {
  world = await sound();
  await world.archive(BOTH);
});
afterAll(() => world.close());

const brokenIn = (report: AuditReport): string[] =>
  notOk(report).flatMap(({ check, result }) => (result === "broken" ? [check] : []));

test("a sound archive is proven: its files, every subject and day, and its rows against evidence and log", async () => {
  const report = await world.audit();
  expect(notOk(report)).toEqual([]);
  const checked = Object.fromEntries(report.findings.map(({ check, checked }) => [check, checked]));
  expect(checked["archive files"]).toBe(8);
  expect(checked["archive, every subject and day"]).toBe(8);
  expect(checked["archive rows against evidence and log"]).toBe(8);
  expect((await world.filed()).map(({ manifest }) => [manifest.subject, manifest.rows])).toContainEqual(["grades", 2]);
});

/**
 * What a publisher could publish that wants to hide or change rows: leaves as given, with files, manifests and
 * signatures that fit.
 */
interface Lie {
  subject?: ArchiveLeaf["manifest"]["subject"];
  day?: string;
  text: string;
  supersedes?: string | null;
  manifest?: Record<string, unknown>;
  /** Not signed by us. */
  forged?: boolean;
  /** What the leaf says of the packed file, beside the manifest. */
  leaf?: Partial<Pick<ArchiveLeaf, "sha256" | "unpacked_bytes">>;
  /** What is served as the manifest and as the file: null for nothing. */
  served?: { manifest?: null | "another"; file?: null };
}

const idOf = (text: string, subject: ArchiveLeaf["manifest"]["subject"] = "liveness_probes"): string =>
  archiveId(subject, D1, sha256hex(text));

async function publishLies(of: Pick<ArchiveWorld, "publicStore" | "publisher">, lies: readonly Lie[]): Promise<void> {
  const filings = [];
  for (const lie of lies) {
    const { subject = "liveness_probes", day = D1, text, supersedes = null, manifest: over, forged, served = {} } = lie;
    const hash = createHash("sha256").update(text).digest("hex");
    const key = archiveFileKey(subject, day, hash);
    const packed = compress(Buffer.from(text));
    if (served.file !== null) await of.publicStore.create(key, packed);
    const [right] = await world.filed();
    const { signature: _, signing_key_id: __, canonicalization: ___, ...said } = right!.manifest;
    const file = `https://record.example/${key}`;
    const next = new Date(Date.parse(`${day}T00:00:00.000Z`) + 86_400_000).toISOString();
    const unsigned = {
      ...{ ...said, id: archiveId(subject, day, hash), subject, from: `${day}T00:00:00.000Z`, to: next },
      ...{ rows: text.split("\n").length - 1, content_hash: hash, bytes: packed.length, file },
      ...{ reproduce: `curl -fsS '${file}' | zstd -dc | sha256sum`, ...over },
    };
    const signed = signObject(forged ? SIGNERS.answers : SIGNERS.cards, unsigned);
    const shown = served.manifest === "another" ? { ...signed, rows: signed.rows + 1 } : signed;
    if (served.manifest !== null) await of.publicStore.create(archiveManifestKey(signed.id), canonicalBytes(shown));
    const positions = right!.positions;
    const named = { sha256: sha256hex(packed), unpacked_bytes: Buffer.byteLength(text), ...lie.leaf };
    const draft = {
      kind: "archive" as const,
      manifest: signed,
      ...named,
      supersedes,
      reason: supersedes && "a lie",
      positions,
    };
    const filesBefore = (await of.publisher.current()).archive.filesOf(subject, day).length;
    filings.push({ subject, day, filesBefore, drafts: [draft] });
    await of.publisher.publishFilings([filings.at(-1)!]);
  }
}

const textOf = async (leaf: ArchiveLeaf): Promise<string> =>
  (await world.linesOf(leaf)).map((line) => `${line}\n`).join("");

describe("a publisher who lies", () => {
  let files: ArchiveLeaf[];
  let probes: string;
  let texts: Map<string, string>;
  /** The same two days, nothing of them archived yet. */
  let other: ArchiveWorld;
  afterAll(() => other.close());
  beforeAll(async () => {
    other = await sound();
    await other.closeDays(BOTH);
    files = await world.filed();
    texts = new Map();
    for (const leaf of files) texts.set(`${leaf.manifest.subject} ${dayOfManifest(leaf.manifest)}`, await textOf(leaf));
    probes = texts.get(`liveness_probes ${D1}`)!;
  });

  /** The first day whole, but for what `change` does to its probes. */
  const firstDay = (change: (text: string) => string, more: Partial<Lie> = {}): Lie[] => [
    { text: change(probes), ...more },
    ...(["mcp_probes", "grades", "mcp_grades"] as const).map((subject) => ({
      subject,
      text: texts.get(`${subject} ${D1}`)!,
    })),
  ];
  const ROWS = "archive rows against evidence and log";
  const FILES = "archive files";
  const DAYS = "archive, every subject and day";
  /** The same rows with another word in them. */
  const misread = (state: string): string => probes.replaceAll('"state":"asked"', `"state":"${state}"`);
  const elsewhere = { file: "https://record.example/it", reproduce: reproduceCommand("https://record.example/it") };
  /** The first day, the files of two subjects under each other's name. */
  const swapped = (a: string, b: string): Lie[] =>
    firstDay((text) => text).map((lie) => {
      const subject = lie.subject ?? "liveness_probes";
      const other = subject === a ? b : subject === b ? a : subject;
      return { ...lie, text: texts.get(`${other} ${D1}`)! };
    });

  test.each<[string, () => Lie[], string[]]>([
    ["changes nothing", () => firstDay((text) => text), []],
    ["keeps a row back", () => firstDay((text) => `${text.split("\n")[0]}\n`), [ROWS]],
    [
      "files a row twice, in two files",
      () => [...firstDay((text) => text), { text: `${probes.split("\n")[0]}\n` }],
      [ROWS],
    ],
    ["says another latency", () => firstDay((text) => text.replace(/"latency_ms":\d+/, '"latency_ms":1')), [ROWS]],
    ["says another state", () => firstDay(() => misread("free")), [ROWS]],
    ["says another amount", () => firstDay((text) => text.replace(/"amount":"0\./, '"amount":"9.')), [ROWS]],
    ["puts another record in", () => firstDay((text) => text.replace(/rec_...(?=.{23}")/, "rec_000")), [ROWS]],
    [
      "turns the order round",
      () => firstDay((text) => `${text.trimEnd().split("\n").reverse().join("\n")}\n`),
      [FILES],
    ],
    ["files a row of another day", () => firstDay((text) => text.replaceAll(`"${D1}T`, `"${D2}T`)), [FILES]],
    ["keeps a subject back", () => firstDay((text) => text).slice(0, 3), [DAYS]],
    [
      "leaves a grade out",
      () =>
        firstDay((text) => text).map((lie) =>
          lie.subject === "grades" ? { ...lie, text: `${lie.text.split("\n")[0]}\n` } : lie,
        ),
      [ROWS],
    ],
    [
      "changes a grade",
      () =>
        firstDay((text) => text).map((lie) => ({ ...lie, text: lie.text.replace('"band":"UNRATED"', '"band":"A"') })),
      [ROWS],
    ],
    ["signs with another key", () => firstDay((text) => text, { forged: true }), [FILES]],
    ["says other rows", () => firstDay((text) => text, { manifest: { rows: 7 } }), [FILES]],
    ["gives it another id", () => firstDay((text) => text, { manifest: { id: `arc_${"0".repeat(26)}` } }), [FILES]],
    ["gives another command", () => firstDay((text) => text, { manifest: { reproduce: "true" } }), [FILES]],
    ["replaces what never was", () => firstDay((text) => text, { supersedes: `arc_${"1".repeat(26)}` }), [FILES]],
    [
      "replaces a file a second time",
      () => [
        ...firstDay((text) => text),
        ...["free", "wall"].map((state) => ({ text: misread(state), supersedes: idOf(probes) })),
      ],
      [FILES, ROWS],
    ],
    [
      "replaces a file of another subject",
      () => [...firstDay((text) => text), { text: misread("free"), supersedes: idOf("", "mcp_probes") }],
      [FILES, DAYS],
    ],
    ["files a file twice", () => [...firstDay((text) => text), { text: probes }], [FILES]],
    ["moves the end of the day", () => firstDay((text) => text, { manifest: { to: `${D2}T01:00:00.000Z` } }), [FILES]],
    ["says that it is served elsewhere", () => firstDay((text) => text, { manifest: elsewhere }), [FILES]],
    ["says another length, packed", () => firstDay((text) => text, { manifest: { bytes: 7 } }), [FILES]],
    ["says another length, unpacked", () => firstDay((text) => text, { leaf: { unpacked_bytes: 7 } }), [FILES]],
    [
      "says another hash of the packed file",
      () => firstDay((text) => text, { leaf: { sha256: "0".repeat(64) } }),
      [FILES],
    ],
    ["serves another manifest", () => firstDay((text) => text, { served: { manifest: "another" } }), [FILES]],
    ["serves no manifest", () => firstDay((text) => text, { served: { manifest: null } }), [FILES]],
    ["serves no file", () => firstDay((text) => text, { served: { file: null } }), [FILES]],
    ["files what is no JSON", () => firstDay(() => "no line\n"), [FILES]],
    ["files free probes as probes of tools", () => swapped("liveness_probes", "mcp_probes"), [ROWS]],
    ["files grades as those of tools", () => swapped("grades", "mcp_grades"), [FILES, ROWS]],
  ])("%s", async (_, lies, want) => {
    const dir = await mkdtemp(join(tmpdir(), "archive-lies-"));
    const stores: Store[] = [];
    try {
      for (const name of ["private", "public"]) {
        await cp(join(other.ingest.dir, name), join(dir, name), { recursive: true });
        stores.push(await openDirectoryStore(join(dir, name)));
      }
      const [privateStore, publicStore] = stores as [Store, Store];
      await publishLies(
        { publicStore, publisher: other.archiveParts({ privateStore, publicStore }).publisher },
        lies(),
      );
      expect(brokenIn(await auditOf(new DirectorySource(join(dir, "public"))))).toEqual(want);
      // The oracle of the other tests finds it, too.
      const proven = await proveRecord(publicStore, { trust: TRUST }).catch((error: unknown) => error);
      expect(proven instanceof RecordBroken).toBe(want.length > 0);
    } finally {
      for (const store of stores) await store.close();
      await rm(dir, { recursive: true, force: true });
    }
  });
});

describe("rows of a small record", () => {
  const cap = capOf(specOf("a0"));
  /** One row of the archive, and the line of the evidence that it was made from. */
  const archived = (n: number, more: object = {}) => ({
    ...{ record_id: `rec_${String(n).padStart(2, "0")}`, capability_id: cap, observed_at: `${D1}T01:00:00.000Z` },
    ...{ state: "asked", counts: true, fault: null, status: 402, latency_ms: 10, amount: null, asset: null },
    ...{ networks: [], protocols: [], terms_sha256: null, ...more },
  });
  const observed = (n: number) => ({
    ...{ obs_id: archived(n).record_id, capability_id: cap, topic: "observations.free", position: n, first: n },
    ...{ t: `${D1}T01:00:00.000Z`, kind: 0, state: "asked", fault: null, status: 402, latency_ms: 10 },
    ...{ live: true, honest: null, settled: null, delivered: null, refunded: null, delivery: null, outcome: null },
    ...{ schema_ok: null, response_sha256: null, payer: null, w: null, price: null, input: null, pay_to: null },
  });
  const textOf = (lines: readonly object[]) => lines.map((line) => `${canonicalText(line)}\n`).join("");

  /** Findings on rows that were filed, and on what was observed. */
  async function findingsOf(filed: string, evidence: string): Promise<{ files: Finding; rows: Finding }> {
    const record = await PublicRecord.open();
    try {
      await publishKeys(record);
      const [packed, unpacked_sha256] = [compress(Buffer.from(evidence)), sha256hex(evidence)];
      const [bucket, rows] = [bucketOf(cap), evidence.split("\n").length - 1];
      const key = evidenceKey(D1, bucket, unpacked_sha256);
      await record.store.create(key, packed);
      await record.publish([
        {
          ...{ kind: "evidence", day: D1, freeze: 0, part: 1, parts: 1, holds: "rows", bucket, below: null, key },
          ...{ rows, positions: { "observations.free": rows }, bytes: packed.length },
          ...{ sha256: sha256hex(packed), unpacked_sha256, unpacked_bytes: evidence.length },
        },
      ]);
      const files = archiveDay(record.keys.cards, D1, filed);
      for (const { key, packed, draft } of files) {
        await record.store.create(key, packed);
        await record.store.create(archiveManifestKey(draft.manifest.id), canonicalBytes(draft.manifest));
      }
      await record.publish(...files.map(({ draft }) => [draft]));
      const { findings } = await auditOf(new DirectorySource(join(record.dir, "public")));
      const findingOf = (name: string) => findings.find(({ check }) => check === name)!;
      return { files: findingOf("archive files"), rows: findingOf("archive rows against evidence and log") };
    } finally {
      await record.close();
    }
  }

  /** Found by Wagner's generalised birthday, with 9,000 variants of each of 16 rows, in a second. */
  const FOUND = [7879, 377, 5681, 7174, 61, 4625, 6839, 551, 1746, 7083, 6666, 1726, 8916, 6606, 8169, 931];
  const honest = FOUND.map((_, n) => archived(n));
  const evidence = textOf(FOUND.map((_, n) => observed(n)));
  const forged = FOUND.map((x, n) => archived(n, { state: "free", x }));

  test("rows that were observed are found right", async () => {
    const { files, rows } = await findingsOf(textOf(honest), evidence);
    expect([files, rows]).toMatchObject([
      { result: "ok", checked: 4 },
      { result: "ok", checked: 4 },
    ]);
  });

  test("rows of another state are found out, although 64 bits of the sum of their sha256 are those of the true ones", async () => {
    const sumOf = (rows: readonly object[]) =>
      rows.reduce((sum, row) => sum + BigInt(`0x${sha256hex(canonicalText(row))}`), 0n) & ((1n << 64n) - 1n);
    expect(sumOf(forged)).toBe(sumOf(honest));
    const { result, problems } = (await findingsOf(textOf(forged), evidence)).rows;
    expect([result, problems.map(({ key }) => key)]).toEqual(["broken", [`archive of liveness_probes of ${D1}`]]);
  });

  test.each<[string, string]>([
    ["a member twice, of which some readers take the first", '"state":"free","state":"asked"'],
    ["an amount that is the same number only without its dot", '"amount":"1000.0"'],
    ["a space", '"state": "asked"'],
  ])("a line with %s is none of the archive", async (_, text) => {
    const name = text.slice(0, text.indexOf(":"));
    const filed = canonicalText(archived(0, { amount: "0.010000" })).replace(new RegExp(`${name}:"[^"]*"`), text);
    const { files } = await findingsOf(`${filed}\n`, textOf([{ ...observed(0), price: 0.01 }]));
    expect(files.problems.map(({ expected }) => expected)).toEqual([`lines of liveness_probes of ${D1}, ascending`]);
  });

  test.each<[string, object, string]>([
    ["no text", {}, "\\ud800"],
    ["terms of other types", { terms: { offers: 5 } }, "rec_00"],
  ])("an observation with %s does not end the audit", async (_, more, id) => {
    const line = textOf([{ ...observed(0), ...more }]).replace("rec_00", id);
    const { rows } = await findingsOf(textOf([archived(0)]), line);
    expect([rows.result, rows.problems.length > 0]).toEqual(["broken", true]);
  });
});
