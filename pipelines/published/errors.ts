import { Failure } from "../../infra/errors.ts";
import type { Leaf } from "../record/leaf.ts";

/**
 * Errors that a mirror may find in its source, a class for each cause. `commands/exit.ts` gives each name an exit code.
 * Bytes of the tree that do not lead to the root are `Tampered` (infra/tree/tiles.ts), as everywhere in the record.
 */

/** The source shows fewer leaves than were proven before: it has an old copy, or its history was cut. */
export class Rollback extends Failure {
  constructor(had: number, got: number) {
    super("rollback", `rollback: the source shows ${got} leaves, ${had} were proven before`);
  }
}

/**
 * Two signed checkpoints that contradict each other: they prove that the holder of the log key signed two histories.
 */
export class Forked extends Failure {
  /** @param evidence file of both notes, in the mirror's state folder */
  constructor(
    says: string,
    readonly evidence: string,
  ) {
    super("fork", `fork: ${says}; both signed notes are in ${evidence} of the mirror's state folder`);
  }
}

/** The newest checkpoint is older than the operator accepts: the log has stopped, or its growth is hidden from us. */
export class Stale extends Failure {
  constructor(cosignedAt: Date, ageSeconds: number, maxAgeSeconds: number) {
    super(
      "stale",
      `stale: cosigned at ${cosignedAt.toISOString()}, ${ageSeconds} s ago; accepted are ${maxAgeSeconds} s`,
    );
  }
}

/** A hash, signature or position in the tree, or in an object that a leaf names, is wrong. */
export class Unproven extends Failure {
  constructor(
    /** Key of the object, or name of the member or leaf, that is wrong. */
    readonly key: string,
    readonly expected: string,
    readonly got: string,
  ) {
    super("tampered", `${key} does not hold: expected ${expected}, got ${got}`);
  }
}

/** A signature cannot be verified, since the keys document that is valid at its log position is broken or missing. */
export class KeysUnread extends Unproven {
  constructor(what: string) {
    super(what, "a signature", "its keys document could not be read");
    this.name = "KeysUnread";
  }
}

/** The source sent more bytes than the object may have; bytes past the limit were discarded. */
export class Oversized extends Failure {
  constructor(key: string, maxBytes: number) {
    super("tampered", `${key} has more than ${maxBytes} bytes`);
  }
}

/** The source gave no usable answer in any of the attempts. */
export class SourceDown extends Failure {
  constructor(source: string, key: string, why: string) {
    super("failed", `${source} does not give ${key}: ${why}`, { retriable: true });
  }
}

/** Another process works in this mirror's folder. */
export class MirrorBusy extends Failure {
  constructor() {
    super("busy", "another process keeps this mirror: stop it first, or copy into another folder", { retriable: true });
  }
}

/** Parses JSON. Returns undefined when the bytes are not JSON. */
export function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8"));
  } catch {
    return undefined;
  }
}

/**
 * Parses the proven bytes of the leaf at position `index`, without a schema. The log may have signed any bytes.
 * @throws Unproven for bytes that are not JSON with this index
 */
export function parseEntry(index: number, bytes: Uint8Array): Leaf {
  const leaf = parseJson(bytes) as Leaf | null | undefined;
  if (leaf?.index === index) return leaf;
  throw new Unproven(`leaf ${index}`, "JSON with its index", Buffer.from(bytes).toString("utf8", 0, 80));
}

/** Parses a leaf of the log with the schema of its kind. @throws Unproven */
export function parseLeaf<T>(
  schema: { safeParse(value: unknown): { data?: T; error?: Error } },
  leaf: Pick<Leaf, "index" | "kind">,
): T {
  const { data, error } = schema.safeParse(leaf);
  if (data) return data;
  throw new Unproven(`leaf ${leaf.index}`, `a leaf of kind ${leaf.kind}`, String(error?.message).slice(0, 200));
}
