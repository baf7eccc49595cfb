import { gunzipSync } from "node:zlib";
import { decompress } from "zstd-napi";
import type { Jwks } from "../../infra/keys/jwk.ts";
import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { kindOfKey } from "../../pipelines/published/objects.ts";
import { type IndexLeaf, Leaf } from "../../pipelines/record/leaf.ts";
import { PlainIndex } from "./market-index.ts";
import { archiveProblems } from "./prove-archive.ts";
import { evidenceProblems } from "./prove-evidence.ts";
import { groupProblems } from "./prove-groups.ts";
import { canonical, openSignedNote, sha256, sha256hex, signatureFault } from "./signatures.ts";

export interface ProveOptions {
  trust: CheckpointTrust;
  /** Tokens (`tokenOf`) of everything that was put in: each must be published exactly once. */
  expected?: Iterable<string>;
  /** With `expected`: nothing else may be there, index and keys leaves aside. */
  nothingElse?: boolean;
  /** Checkpoints that were in force at some time: each must be a beginning of the newest one. */
  served?: Iterable<Uint8Array>;
  /** Nobody is writing and nobody died since the last recovery: objects beyond the checkpoint are faults too. */
  atRest?: boolean;
  /** Power went before somebody had synced his objects: those that only lie beyond the checkpoint may be torn. */
  torn?: boolean;
}

export interface Proven {
  checkpoint: { size: number; root: Buffer } | null;
  leaves: Leaf[];
  /** Keys of every object in the store. */
  keys: string[];
}

/** Everything that is wrong with a record, one line each. */
export class RecordBroken extends Error {
  /** @param leaves all of them, where they could be read: whoever looks further goes on with them. Null: they could not. */
  constructor(
    readonly problems: readonly string[],
    readonly leaves: readonly Leaf[] | null = null,
  ) {
    const shown = problems.slice(0, 40).map((problem) => `  - ${problem}`);
    super(`the record is broken in ${problems.length} places:\n${shown.join("\n")}`);
    this.name = "RecordBroken";
  }
}

/** What a leaf says, without its place: two leaves with one token are one thing published twice. */
export function tokenOf(leaf: Record<string, unknown> & { kind: string }): string {
  const known = leaf as unknown as Leaf;
  switch (known.kind) {
    case "grade":
      return `grade ${known.card.capability_id} ${known.card.tier} ${known.card.computed_at}`;
    case "listing": {
      const { kind: _, index: __, seq: ___, at: ____, ...facts } = known;
      return `listing ${known.capability_id} ${sha256hex(canonical(facts)).slice(0, 12)}`;
    }
    case "delisting":
      return `delisting ${known.capability_id}`;
    case "correction":
    case "dispute":
    case "reinstated":
      return `${known.kind} ${known.capability_id} ${nameOfCorrection(known.body)}`;
    case "schedule":
      return `schedule ${known.day} ${known.opens?.day ?? ""}`;
    case "keys":
      return `keys ${known.n}`;
    case "index":
      return `index ${known.tree_size}`;
    case "evidence":
      return `evidence ${known.day} ${known.freeze} ${known.part}`;
    case "archive":
      return `archive ${known.manifest.id}`;
    case "commitment":
      return `commitment ${known.sha256}`;
    case "receipt":
      return `receipt ${known.sha256}`;
    case "kin":
      return `kin ${known.computed_at} ${canonical([known.add, known.remove])}`;
  }
}

/** A correction or dispute by its own id, a reinstatement by the correction that it takes back. */
export function nameOfCorrection(body: Record<string, unknown>): string {
  return String(body.id ?? body.correction);
}

/**
 * The oracle of a public record: proves it again from nothing but its objects and the two keys: checkpoint, every tile and
 * bundle, segments, order of leaves, signatures, groups of cards, holds, key chain, index, evidence, archive, hints, and
 * nothing lost or doubled against what was put in. It shares no code with publisher, readers, mirror or auditor but the
 * table of public keys and the shapes of leaves. Works on the objects of a process that was just killed as well.
 * @throws RecordBroken with everything that is wrong.
 */
export async function proveRecord(store: Store, options: ProveOptions): Promise<Proven> {
  const prover = new Prover(store, options);
  await prover.prove();
  if (prover.problems.length) throw new RecordBroken(prover.problems, prover.isRead ? prover.leaves : null);
  return { checkpoint: prover.checkpoint, leaves: prover.leaves, keys: prover.keys };
}

/** RFC 6962, section 2.1. */
const hashOf = (prefix: number, ...parts: Uint8Array[]): Buffer => sha256(Buffer.of(prefix), ...parts);

function rootOf(hashes: readonly Buffer[]): Buffer {
  if (hashes.length === 0) return sha256();
  if (hashes.length === 1) return hashes[0]!;
  const k = 2 ** Math.ceil(Math.log2(hashes.length) - 1);
  return hashOf(1, rootOf(hashes.slice(0, k)), rootOf(hashes.slice(k)));
}

/** Entries of an unpacked bundle, each behind its length in two bytes (C2SP tlog-tiles). */
function entriesOf(bundle: Buffer): Buffer[] {
  const entries: Buffer[] = [];
  for (let at = 0; at < bundle.length; at += 2 + bundle.readUInt16BE(at)) {
    const end = at + 2 + bundle.readUInt16BE(at);
    if (end > bundle.length) throw new Error("cut inside an entry");
    entries.push(bundle.subarray(at + 2, end));
  }
  return entries;
}

class Prover {
  readonly problems: string[] = [];
  checkpoint: Proven["checkpoint"] = null;
  keys: string[] = [];
  leaves: Leaf[] = [];
  /** Every leaf up to the checkpoint is in `leaves`. */
  isRead = false;
  #entries: Buffer[] = [];
  #size = 0;
  /** Keys documents that hold, with the index of their leaf, ascending. */
  readonly #jwks: { from: number; jwks: Jwks }[] = [];

  constructor(
    private readonly store: Store,
    private readonly options: ProveOptions,
  ) {}

  async prove(): Promise<void> {
    await this.#try("listing", () => this.#list());
    await this.#try("checkpoint", () => this.#readCheckpoint());
    await this.#try("entries", () => this.#readEntries());
    // Without all entries every later check would only repeat what is wrong already.
    if (this.#entries.length !== this.#size) return;
    await this.#try("tiles", () => this.#checkTiles());
    await this.#try("checkpoints served", () => this.#checkServed());
    await this.#try("leaves", () => this.#readLeaves());
    this.isRead = this.leaves.length === this.#size;
    if (!this.isRead) return;
    await this.#try("keys and cards", () => this.#checkKeysAndCards());
    await this.#try("groups", () => void this.problems.push(...groupProblems(this.leaves)));
    await this.#try("nothing twice", () => this.#checkOnce());
    await this.#try("segments", () => this.#checkSegments());
    await this.#try("index", () => this.#checkIndex());
    await this.#try("evidence and archive", () => this.#checkFiles());
    await this.#try("hints", () => this.#checkHints());
  }

  /** What a check stumbles over is wrong with the record, too, and the other checks go on. */
  async #try(what: string, check: () => void | Promise<void>): Promise<void> {
    try {
      await check();
    } catch (error) {
      this.#bad(`${what}: ${(error as Error).message}`);
    }
  }

  #bad(problem: string): void {
    this.problems.push(problem);
  }

  async #bytes(key: string): Promise<Buffer | null> {
    const object = await this.store.get(key);
    return object && Buffer.from(object.bytes);
  }

  /** Bytes of an object that must be there, or null after saying that it is not. */
  async #needed(key: string): Promise<Buffer | null> {
    const bytes = await this.#bytes(key);
    if (!bytes) this.#bad(`${key} is missing`);
    return bytes;
  }

  async #list(): Promise<void> {
    for (let startAfter: string | undefined; ; ) {
      const page = await this.store.list("", startAfter ? { startAfter } : {});
      if (page.length === 0) break;
      this.keys.push(...page.map((object) => object.key));
      startAfter = page.at(-1)!.key;
    }
    for (const key of this.keys) if (!kindOfKey(key)) this.#bad(`${key} is not a public key`);
  }

  async #readCheckpoint(): Promise<void> {
    const bytes = await this.#bytes("checkpoint");
    this.checkpoint = bytes && openSignedNote(bytes, this.options.trust);
    this.#size = this.checkpoint?.size ?? 0;
  }

  /** All bundles that are there, the whole ones first: what two of them say of one entry must be the same. */
  async #readEntries(): Promise<void> {
    const bundles = this.keys.filter((key) => key.startsWith("tile/entries/")).map(placeOf);
    bundles.sort((a, b) => a.n - b.n || b.width - a.width);
    for (const { key, n, width } of bundles) {
      const first = n * 256;
      let entries: Buffer[];
      try {
        entries = entriesOf(gunzipSync((await this.#bytes(key))!));
      } catch (error) {
        if (!this.options.torn || first + width <= this.#size) this.#bad(`${key}: ${(error as Error).message}`);
        continue;
      }
      if (entries.length !== width) this.#bad(`${key} holds ${entries.length} entries`);
      if (first + width > this.#size) {
        if (this.options.atRest) this.#bad(`${key} lies beyond the checkpoint of ${this.#size}`);
      }
      for (const [i, entry] of entries.entries()) {
        const known = this.#entries[first + i];
        if (known && !known.equals(entry))
          this.#bad(`${key}: entry ${first + i} differs from the one in another bundle`);
        if (first + i < this.#size) this.#entries[first + i] ??= entry;
      }
    }
    for (let n = 0; n * 256 < this.#size; n++) {
      const width = Math.min(256, this.#size - n * 256);
      const there = bundles.some((one) => one.n === n && (one.width === width || one.width === 256));
      if (!there) this.#bad(`no bundle of entries ${n * 256} to ${n * 256 + width - 1}`);
    }
  }

  async #checkTiles(): Promise<void> {
    let hashes = this.#entries.map((entry) => hashOf(0, entry));
    if (this.checkpoint && !rootOf(hashes).equals(this.checkpoint.root)) {
      this.#bad(`the root over ${this.#size} entries is not the checkpoint's`);
    }
    const tiles = this.keys.filter((key) => /^tile\/\d/.test(key)).map(placeOf);
    for (let level = 0; hashes.length > 0; level++) {
      for (const { key, n, width } of tiles.filter((tile) => tile.level === level)) {
        const mine = hashes.slice(n * 256, n * 256 + width);
        if (mine.length < width) {
          if (this.options.atRest) this.#bad(`${key} lies beyond the checkpoint of ${this.#size}`);
        } else if (!Buffer.concat(mine).equals((await this.#bytes(key))!)) {
          this.#bad(`${key} is not what its entries hash to`);
        }
      }
      for (let n = 0; n * 256 < hashes.length; n++) {
        const width = Math.min(256, hashes.length - n * 256);
        const there = tiles.some((one) => one.level === level && one.n === n && [width, 256].includes(one.width));
        if (!there) this.#bad(`no tile ${n} of width ${width} on level ${level}`);
      }
      const above: Buffer[] = [];
      for (let n = 0; (n + 1) * 256 <= hashes.length; n++) above.push(rootOf(hashes.slice(n * 256, (n + 1) * 256)));
      hashes = above;
    }
  }

  #checkServed(): void {
    let hashes: Buffer[] | null = null;
    for (const bytes of this.options.served ?? []) {
      const { size, root } = openSignedNote(bytes, this.options.trust);
      if (size > this.#size) this.#bad(`a checkpoint of ${size} was served, the newest is of ${this.#size}`);
      hashes ??= this.#entries.map((entry) => hashOf(0, entry));
      if (!rootOf(hashes.slice(0, size)).equals(root))
        this.#bad(`the checkpoint of ${size} that was served is no prefix`);
    }
  }

  #readLeaves(): void {
    const seqs = new Map<string, number>();
    let at = "";
    for (const [index, entry] of this.#entries.entries()) {
      const text = entry.toString("utf8");
      const parsed = Leaf.safeParse(JSON.parse(text));
      if (!parsed.success) {
        this.#bad(`leaf ${index}: ${parsed.error.issues[0]!.path.join("/")} ${parsed.error.issues[0]!.message}`);
        continue;
      }
      const leaf = parsed.data;
      if (canonical(JSON.parse(text)) !== text) this.#bad(`leaf ${index} is not in RFC 8785 form`);
      if (leaf.index !== index) this.#bad(`leaf ${index} says that it is ${leaf.index}`);
      const seq = seqs.get(leaf.kind) ?? 0;
      if (leaf.seq !== seq) this.#bad(`leaf ${index}: seq of ${leaf.kind} is ${leaf.seq} instead of ${seq}`);
      if (leaf.at < at) this.#bad(`leaf ${index}: at goes back from ${at} to ${leaf.at}`);
      seqs.set(leaf.kind, seq + 1);
      at = leaf.at;
      this.leaves.push(leaf);
    }
  }

  async #checkKeysAndCards(): Promise<void> {
    let previous: string | null = null;
    let previousDate = "";
    for (const leaf of this.leaves) {
      if (leaf.kind === "grade") {
        const jwks = this.#jwksAt(leaf.index);
        const unsaid = jwks?.keys.find(({ purpose }) => purpose === "cards")?.kid ?? "";
        const at = leaf.card.computed_at ?? leaf.at;
        const fault = jwks ? signatureFault(jwks, leaf.card, { purpose: "cards", at, unsaid }) : "no keys yet";
        if (fault) this.#bad(`leaf ${leaf.index}: signature of its card: ${fault}`);
      }
      if (leaf.kind !== "keys") continue;
      const bytes = await this.#named(leaf);
      if (!bytes) continue;
      const document = JSON.parse(bytes.toString("utf8")) as Jwks & {
        n: number;
        previous: string;
        computed_at: string;
      };
      if (document.n !== leaf.n || document.previous !== previous) this.#bad(`${leaf.key} does not continue the chain`);
      if (document.computed_at < previousDate) this.#bad(`${leaf.key} is dated before the document before it`);
      const signers = this.#jwksAt(leaf.index) ?? document;
      const fault = signatureFault(signers, document, { purpose: "cards", at: document.computed_at });
      if (fault) this.#bad(`${leaf.key}: signature: ${fault}`);
      this.#jwks.push({ from: leaf.index, jwks: document });
      [previous, previousDate] = [leaf.sha256, document.computed_at];
    }
  }

  /** The newest keys document below a leaf. */
  #jwksAt(index: number): Jwks | null {
    return this.#jwks.findLast(({ from }) => from < index)?.jwks ?? null;
  }

  /** Bytes of the object that a leaf names, or null after saying what is wrong with it. */
  async #named(leaf: { index: number; key: string; sha256: string; bytes: number }): Promise<Buffer | null> {
    const bytes = await this.#needed(leaf.key);
    if (bytes && (sha256hex(bytes) !== leaf.sha256 || bytes.length !== leaf.bytes)) {
      this.#bad(`${leaf.key} is not what leaf ${leaf.index} names`);
      return null;
    }
    return bytes;
  }

  #checkOnce(): void {
    const counts = new Map<string, number>();
    for (const leaf of this.leaves) counts.set(tokenOf(leaf), (counts.get(tokenOf(leaf)) ?? 0) + 1);
    for (const [token, count] of counts) {
      // A listing may return to what it said before, and be delisted twice; two in a row are checked below.
      if (count > 1 && !/^(?:de)?listing /.test(token)) this.#bad(`published ${count} times: ${token}`);
    }
    const listed = new Map<string, string>();
    for (const leaf of this.leaves) {
      if (leaf.kind !== "listing" && leaf.kind !== "delisting") continue;
      if (listed.get(leaf.capability_id) === tokenOf(leaf)) this.#bad(`published twice in a row: ${tokenOf(leaf)}`);
      listed.set(leaf.capability_id, tokenOf(leaf));
    }
    const salts = new Map(
      this.leaves.flatMap((leaf) => (leaf.kind === "schedule" ? [[leaf.day, leaf.salt_hash]] : [])) as [
        string,
        string,
      ][],
    );
    for (const leaf of this.leaves) {
      if (leaf.kind !== "schedule" || !leaf.opens || !salts.has(leaf.opens.day)) continue;
      const got = sha256hex(Buffer.from(leaf.opens.salt, "hex"));
      if (got !== salts.get(leaf.opens.day)) this.#bad(`leaf ${leaf.index} does not open ${leaf.opens.day}`);
    }
    if (!this.options.expected) return;
    const expected = new Set(this.options.expected);
    for (const token of expected) if (!counts.has(token)) this.#bad(`lost: ${token}`);
    if (!this.options.nothingElse) return;
    for (const token of counts.keys()) {
      if (!expected.has(token) && !/^(?:keys|index) /.test(token)) this.#bad(`nobody put in: ${token}`);
    }
  }

  async #checkSegments(): Promise<void> {
    for (let n = 0; (n + 1) * 65_536 <= this.#size; n++) {
      const packed = await this.#needed(`segment/${n}.ndjson.zst`);
      if (!packed) continue;
      const lines = this.#entries.slice(n * 65_536, (n + 1) * 65_536).flatMap((entry) => [entry, Buffer.from("\n")]);
      if (!Buffer.concat(lines).equals(decompress(packed))) this.#bad(`segment ${n} is not its 65,536 leaves`);
    }
  }

  async #checkIndex(): Promise<void> {
    const index = new PlainIndex();
    const lists = new Map(
      this.leaves.flatMap((leaf) => (leaf.kind === "index" ? [[leaf.tree_size, leaf] as const] : [])),
    );
    for (let size = 0; size <= this.#size; size++) {
      const leaf = lists.get(size);
      if (leaf) await this.#checkOneIndex(leaf, index);
      if (size < this.#size) index.add(this.leaves[size]!);
    }
  }

  /** @param index of the leaves that the list knows */
  async #checkOneIndex(leaf: IndexLeaf, index: PlainIndex): Promise<void> {
    if (leaf.tree_size > leaf.index)
      this.#bad(`leaf ${leaf.index} indexes ${leaf.tree_size} leaves, itself among them`);
    const bytes = await this.#named(leaf);
    if (!bytes) return;
    const list = JSON.parse(bytes.toString("utf8")) as { shards: { sha256: string }[]; computed_at: string };
    const [want, got] = [index.shards, list.shards].map((all) => all.map((shard) => shard.sha256).join());
    if (want !== got) this.#bad(`${leaf.key} is not the index of the leaves below ${leaf.tree_size}`);
    for (const { sha256: name } of list.shards) {
      const packed = await this.#needed(`index/shard/${name}.ndjson.zst`);
      if (packed && sha256hex(decompress(packed)) !== name) this.#bad(`shard ${name} is not what its name says`);
    }
    const jwks = this.#jwksAt(leaf.tree_size);
    const fault = jwks ? signatureFault(jwks, list, { purpose: "cards", at: list.computed_at }) : "no keys";
    if (fault) this.#bad(`${leaf.key}: signature: ${fault}`);
  }

  async #checkFiles(): Promise<void> {
    const bytesOf = (key: string) => this.#bytes(key);
    const { problems, ...evidence } = await evidenceProblems(this.leaves, bytesOf);
    const archive = { leaves: this.leaves, entries: this.#entries, bytesOf, ...evidence };
    this.problems.push(...problems);
    this.problems.push(...(await archiveProblems({ ...archive, jwksAt: (index) => this.#jwksAt(index) })));
  }

  async #checkHints(): Promise<void> {
    for (const kind of ["index", "keys"] as const) {
      const newest = this.leaves.findLast((leaf) => leaf.kind === kind);
      const bytes = await this.#bytes(`hint/${kind}.json`);
      if (!bytes) {
        if (newest && this.options.atRest) this.#bad(`hint/${kind}.json is missing`);
        continue;
      }
      const hint = JSON.parse(bytes.toString("utf8")) as { key: string; leaf: number };
      const named = this.leaves[hint.leaf];
      if (named?.kind !== kind || named.key !== hint.key) this.#bad(`hint/${kind}.json names no leaf of that key`);
      if (this.options.atRest && hint.leaf !== newest?.index) this.#bad(`hint/${kind}.json is not the newest`);
    }
  }
}

interface Place {
  key: string;
  level: number;
  n: number;
  width: number;
}

/** `tile/<level or entries>/<n>[.p/<width>]` */
function placeOf(key: string): Place {
  const match = /^tile\/(\d+|entries)\/([x\d/]+?)(?:\.p\/(\d+))?$/.exec(key);
  if (!match) return { key, level: -2, n: -1, width: 0 };
  const level = match[1] === "entries" ? -1 : Number(match[1]);
  return { key, level, n: Number(match[2]!.replaceAll(/[x/]/g, "")), width: Number(match[3] ?? 256) };
}
