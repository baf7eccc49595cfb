import { createHmac, randomBytes } from "node:crypto";
import { canonicalText } from "../../infra/canonical.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { parseJson, Unproven } from "../published/errors.ts";
import { archiveFileOf, fetchFile, readFile } from "../published/files.ts";
import type { ArchiveFold, PublishedFold } from "../published/fold.ts";
import { verifySignature } from "../published/keys.ts";
import { MAX_BYTES } from "../published/limits.ts";
import type { Source } from "../published/source.ts";
import { archiveManifestKey, dayOfManifest, reproduceCommand } from "../record/archive.ts";
import type { EvidenceLine, SampleLine } from "../record/evidence.ts";
import { archiveId } from "../record/ids.ts";
import type { ArchiveLeaf, EvidenceLeaf, GradeLeaf, Leaf } from "../record/leaf.ts";
import { addDays } from "../record/time.ts";
import { ARCHIVE_SUBJECTS, type ArchiveSubject } from "../record/vocabulary.ts";
import { Check, type Finding } from "./findings.ts";

/** Topics of the event log whose samples become rows of the archive, and the subject of these rows. */
const SUBJECT_BY_TOPIC: Record<string, ArchiveSubject> = {
  "observations.free": "liveness_probes",
  "observations.mcp": "mcp_probes",
};

/** The rows that the archive must have for one subject (kind of row) and day, according to the evidence and the log. */
interface RequiredRows {
  items: Multiset;
  /** Index of the last leaf that requires a row. */
  lastIndex: number;
}

const subjectDayKey = (subject: ArchiveSubject, day: string): string => `${subject} ${day}`;

/**
 * Checks that the archive is complete and agrees with what was published before the rows were moved there. Each file
 * must match its leaf and manifest. Each subject must have a file for each day since the first closed day of the
 * evidence. A file may replace only an earlier one. The rows of the files that were not replaced must be those of the
 * samples in the evidence, and the grades must be those of the log's leaves.
 */
export class ArchiveAudit {
  readonly files = new Check("archive files");
  readonly days = new Check("archive, every subject and day");
  readonly rows = new Check("archive rows against evidence and log");
  readonly #leaves: { leaf: ArchiveLeaf; jwks: Jwks | null }[] = [];
  /** {@link subjectDayKey} -> rows that the archive must have. */
  readonly #required = new Map<string, RequiredRows>();
  /** {@link subjectDayKey} -> rows in the archive files that were not replaced. */
  readonly #filed = new Map<string, Multiset>();
  /** The {@link subjectDayKey} of each subject and day for which an archive or evidence file could not be read. */
  readonly #unreadSubjectDays = new Set<string>();
  /** True when leaves could not be read. */
  #hasHoles = false;
  /** Secret key of the sums by which rows are compared ({@link Multiset}). */
  readonly #key = randomBytes(32);

  /**
   * Adds the next leaf.
   * @param fold state of the archive after this leaf
   * @param jwks keys that are valid at the leaf's position
   */
  add(leaf: Leaf, bytes: Buffer, fold: ArchiveFold, jwks: Jwks | null): void {
    if (leaf.kind === "archive") this.#leaves.push({ leaf, jwks });
    if (leaf.kind === "grade") this.#addRequired(fold.subjectOf(leaf), leaf.day, leaf.index, bytes);
  }

  /** Adds a line of the evidence file that leaf `index` names. */
  addLine({ day, index }: Pick<EvidenceLeaf, "day" | "index">, line: EvidenceLine): void {
    const subject = "obs_id" in line && line.kind === 0 ? SUBJECT_BY_TOPIC[line.topic] : undefined;
    if (!subject) return;
    try {
      this.#addRequired(subject, day, index, observedRowText(line as SampleLine, subject === "mcp_probes"));
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      this.rows.addProblem({ key: `leaf ${index}`, expected: "probes of known types of members", got: error.message });
    }
  }

  /**
   * Records that an evidence file of this day could not be read, so that it is unknown which probes the archive must
   * have.
   */
  noteUnreadFile(day: string): void {
    for (const subject of Object.values(SUBJECT_BY_TOPIC)) this.#unreadSubjectDays.add(subjectDayKey(subject, day));
  }

  /**
   * Records that some leaves could not be read. They may name files and rows, so checks that need every leaf are not
   * run.
   */
  noteUnreadLeaves(): void {
    this.#hasHoles = true;
  }

  #addRequired(subject: ArchiveSubject, day: string, leafIndex: number, item: Buffer | string): void {
    const name = subjectDayKey(subject, day);
    const required = this.#required.get(name) ?? { items: new Multiset(this.#key), lastIndex: -1 };
    required.items.add(item);
    required.lastIndex = Math.max(required.lastIndex, leafIndex);
    this.#required.set(name, required);
  }

  /**
   * Reads and checks every archive file, then the days and the rows. Called after all leaves and evidence lines were
   * added.
   * @throws SourceDown, and faults of our own
   */
  async checkFiles(source: Source, fold: PublishedFold, onProgress: (text: string) => void): Promise<void> {
    const earlierLeaves = new Map<string, ArchiveLeaf>();
    const replacedIds = new Set<string>();
    for (const { leaf, jwks } of this.#leaves) {
      onProgress(`archive: ${leaf.manifest.subject} ${dayOfManifest(leaf.manifest)}`);
      await this.files.runStep(async () => {
        if (!this.#hasHoles) checkLeaf(leaf, earlierLeaves, replacedIds);
        await this.#readFile(source, leaf, fold.archive);
        await checkManifest(source, leaf);
        verifySignature(`manifest ${leaf.manifest.id}`, jwks, leaf.manifest, leaf.manifest.verified_at);
      });
      earlierLeaves.set(leaf.manifest.id, leaf);
      if (leaf.supersedes !== null) replacedIds.add(leaf.supersedes);
    }
    this.#checkDays(fold);
    this.#checkRows(fold.archive);
  }

  /** Checks the lines of an archive file, and adds them to the rows of its subject and day. @throws Unproven */
  async #readFile(source: Source, leaf: ArchiveLeaf, fold: ArchiveFold): Promise<void> {
    const { subject, id } = leaf.manifest;
    const day = dayOfManifest(leaf.manifest);
    const file = archiveFileOf(leaf);
    const items = new Multiset(this.#key);
    let wrongLine: string | null = null;
    let previousOrder = "";
    const name = subjectDayKey(subject, day);
    // The subject and day count as unread if this function throws.
    const wasUnread = this.#unreadSubjectDays.has(name);
    this.#unreadSubjectDays.add(name);
    await readFile(await fetchFile(source, file), file, (line) => {
      const parsedLine = lineOf(subject, day, line, fold);
      if (!parsedLine || parsedLine.order <= previousOrder) wrongLine ??= line.toString("utf8", 0, 120);
      else {
        items.add(parsedLine.item);
        previousOrder = parsedLine.order;
      }
    });
    if (wrongLine !== null) throw new Unproven(file.key, `lines of ${subject} of ${day}, ascending`, wrongLine);
    if (!wasUnread) this.#unreadSubjectDays.delete(name);
    if (fold.superseded.has(id)) return;
    const filedItems = this.#filed.get(name) ?? new Multiset(this.#key);
    filedItems.addAll(items);
    this.#filed.set(name, filedItems);
  }

  /**
   * Checks that each subject has a file for every day from the first day that was closed to the newest archived day.
   */
  #checkDays({ archive, evidence }: PublishedFold): void {
    const newest = this.#leaves
      .map(({ leaf }) => dayOfManifest(leaf.manifest))
      .sort()
      .at(-1);
    const firstDay = evidence.firstDay || newest;
    if (newest === undefined || firstDay! > newest) return;
    // The loop compares for equality, since a day after 9999-12-31 has another form and so another order.
    for (let day = firstDay!; ; day = addDays(day, 1)) {
      for (const subject of ARCHIVE_SUBJECTS) {
        if (archive.currentFilesOf(subject, day).length > 0) this.days.countOk();
        else if (this.#hasHoles) this.days.countNotRun("leaves are unread that may name it");
        else this.days.addProblem({ key: `archive of ${subject} of ${day}`, expected: "a file", got: "none" });
      }
      if (day === newest) return;
    }
  }

  /** Compares the rows in the archive files with the required rows, for each subject and day. */
  #checkRows(fold: ArchiveFold): void {
    for (const subject of ARCHIVE_SUBJECTS) {
      for (const name of new Set([...this.#filed.keys(), ...this.#unreadSubjectDays])) {
        const filedItems = this.#filed.get(name) ?? new Multiset(this.#key);
        if (!name.startsWith(`${subject} `)) continue;
        const day = name.slice(subject.length + 1);
        if (this.#hasHoles || this.#unreadSubjectDays.has(name)) {
          this.rows.countNotRun("what they are held against could not be read whole");
          continue;
        }
        const { items, lastIndex } = this.#required.get(name) ?? { items: new Multiset(this.#key), lastIndex: -1 };
        const newestFileIndex = Math.max(...fold.currentFilesOf(subject, day).map(({ index }) => index));
        if (items.equals(filedItems)) this.rows.countOk();
        else if (lastIndex > newestFileIndex)
          this.rows.countOpen(`what came late for ${subject} of ${day} is not filed yet`);
        else
          this.rows.addProblem({
            key: `archive of ${subject} of ${day}`,
            expected: `the ${items.count} rows of evidence and log`,
            got: `${filedItems.count} rows that are not those`,
          });
      }
    }
  }

  get findings(): Finding[] {
    return [this.files.finding, this.days.finding, this.rows.finding];
  }
}

/**
 * Returns the content of a line in comparable form, and its key for the order of the file; null when the line does
 * not belong in this file.
 */
function lineOf(
  subject: ArchiveSubject,
  day: string,
  line: Buffer,
  fold: ArchiveFold,
): { item: Buffer | string; order: string } | null {
  const value = parseJson(line) as Record<string, unknown> | undefined;
  if (subject === "liveness_probes" || subject === "mcp_probes") {
    if (!value || String(value.observed_at).slice(0, 10) !== day) return null;
    const item = archivedRowText(value, line);
    return item === null ? null : { item, order: `${value.capability_id} ${value.record_id}` };
  }
  const leaf = value as GradeLeaf | undefined;
  if (leaf?.kind !== "grade" || leaf.day !== day || fold.subjectOf(leaf) !== subject) return null;
  return { item: line, order: String(leaf.index).padStart(16, "0") };
}

/** Checks that the members of an archive leaf and its manifest agree, and which file it replaces. @throws Unproven */
function checkLeaf(
  leaf: ArchiveLeaf,
  earlierLeaves: ReadonlyMap<string, ArchiveLeaf>,
  replacedIds: ReadonlySet<string>,
): void {
  const { manifest, supersedes, index } = leaf;
  const day = dayOfManifest(manifest);
  const { key } = archiveFileOf(leaf);
  const requireEqual = (expected: string, got: string) => {
    if (expected !== got) throw new Unproven(`leaf ${index}`, expected, got);
  };
  requireEqual(archiveId(manifest.subject, day, manifest.content_hash), manifest.id);
  requireEqual(`${day}T00:00:00.000Z to ${addDays(day, 1)}T00:00:00.000Z`, `${manifest.from} to ${manifest.to}`);
  requireEqual(`/${key}`, manifest.file.slice(-key.length - 1));
  requireEqual(reproduceCommand(manifest.file), manifest.reproduce);
  if (earlierLeaves.has(manifest.id)) throw new Unproven(`leaf ${index}`, "a file once", `${manifest.id} again`);
  if (supersedes === null) return;
  const replacedManifest = earlierLeaves.get(supersedes)?.manifest;
  const isSameSubjectDay =
    replacedManifest && replacedManifest.subject === manifest.subject && replacedManifest.from === manifest.from;
  // A file may replace only an earlier one that no other file replaces, so no two files replace each other.
  if (!isSameSubjectDay || replacedIds.has(supersedes)) {
    throw new Unproven(`leaf ${index}`, `an earlier file of ${manifest.subject} of ${day}, standing`, supersedes);
  }
}

/** Checks that the manifest is published as the leaf contains it. @throws Unproven, MissingObject */
async function checkManifest(source: Source, { manifest }: ArchiveLeaf): Promise<void> {
  const key = archiveManifestKey(manifest.id);
  const bytes = await source.get(key, MAX_BYTES.keys);
  if (!bytes) throw new MissingObject(key);
  const [expected, got] = [canonicalText(manifest), Buffer.from(bytes).toString("utf8")];
  if (expected !== got) throw new Unproven(key, expected.slice(0, 200), got.slice(0, 200));
}

/** Those members of a sample's `terms` (the content of the 402 answer) from which a row of the archive is made. */
interface Terms {
  sha256?: string;
  protocols?: string[];
  offers?: { network: string; asset: string | null; payable: boolean }[];
}

/** The form of an amount of money in a line of the archive (records.md, Archive rows). */
const AMOUNT = /^\d{1,12}\.\d{6}$/;

/**
 * Returns the members of an archive's line as one text, for comparison. The amount is converted to a number, as it is
 * in the evidence.
 * @returns null when the amount does not have the form {@link AMOUNT}, or the line is not in RFC 8785 form. Different
 * JSON parsers could read different members from a line in another form, for example one that names a member twice
 */
function archivedRowText(parsedLine: Record<string, unknown>, line: Buffer): string | null {
  const { amount, ...row } = parsedLine;
  const isAmount = amount === null || (typeof amount === "string" && AMOUNT.test(amount));
  try {
    if (!isAmount || canonicalText(parsedLine) !== line.toString("utf8")) return null;
    return canonicalText({ ...row, amount: amount === null ? null : Number(amount.replace(".", "")) / 1e6 });
  } catch {
    return null;
  }
}

/**
 * Makes from the evidence line of a probe the text that {@link archivedRowText} returns for the probe's line in the
 * archive.
 * @throws TypeError when members have other types than a probe's, or a text has a lone surrogate
 */
function observedRowText(line: SampleLine, isTool: boolean): string {
  const { status, terms, initialize_ms, tool, tool_present } = line as SampleLine & Record<string, unknown>;
  const { sha256 = null, protocols = [], offers = [] } = (terms ?? {}) as Terms;
  const payableOffer = offers.find(({ payable }) => payable);
  const bytesByNetwork = new Map(offers.map(({ network }) => [network, Buffer.from(network)]));
  return canonicalText({
    ...{ record_id: line.obs_id, capability_id: line.capability_id, observed_at: line.t, state: line.state ?? null },
    ...{ counts: line.fault === null || line.fault === "blocked", fault: line.fault, status: status ?? null },
    ...{ latency_ms: line.latency_ms ?? null, amount: line.price ?? null },
    ...{ asset: payableOffer?.asset ?? offers[0]?.asset ?? null, protocols, terms_sha256: sha256 },
    networks: [...bytesByNetwork].sort(([, a], [, b]) => Buffer.compare(a, b)).map(([network]) => network),
    ...(isTool ? { initialize_ms: initialize_ms ?? null, tool: tool ?? null, tool_present: tool_present ?? null } : {}),
  });
}

const MODULUS = 1n << 256n;

/**
 * Compares multisets of items without keeping the items: counts them, and adds up their HMAC-SHA256 (RFC 2104) modulo
 * 2^256 under a key that is drawn for this audit. Equal multisets have equal count and sum, in any order. Different
 * ones of fewer than 2^53 items have an equal sum with a probability of at most 2^-203, if HMAC-SHA256 is a
 * pseudorandom function: take an item that they contain in different numbers; for any HMACs of the other items, at most
 * 2^53 of the 2^256 possible HMACs of this item make the sums equal. The publisher of the items does not know the key,
 * and so cannot search for items that add up to a given sum. Without a key, Wagner's generalised birthday algorithm
 * (CRYPTO 2002) finds such items for sums of 256 bits in about 2^32 steps.
 */
class Multiset {
  count = 0;
  #sum = 0n;

  /** @param key 32 random bytes, secret, and equal for all multisets that are compared */
  constructor(private readonly key: Uint8Array) {}

  add(item: Uint8Array | string): void {
    this.count++;
    const hash = createHmac("sha256", this.key).update(item).digest("hex");
    this.#sum = (this.#sum + BigInt(`0x${hash}`)) % MODULUS;
  }

  /** Adds all items of another multiset. */
  addAll(other: Multiset): void {
    this.count += other.count;
    this.#sum = (this.#sum + other.#sum) % MODULUS;
  }

  equals(other: Multiset): boolean {
    return this.count === other.count && this.#sum === other.#sum;
  }
}
