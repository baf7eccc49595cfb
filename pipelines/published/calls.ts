import { MissingObject } from "../../infra/tree/tiles.ts";
import { BadFrame, streamFrame } from "../../infra/zstd.ts";
import { Unproven } from "./errors.ts";
import { MAX, packedBound } from "./limits.ts";
import { TextFacts } from "./lines.ts";
import { callKey } from "./objects.ts";
import { parseJson } from "./parse.ts";
import type { Source } from "./source.ts";

/** Bytes of a bought call that its buyer published, as a line of the evidence names them: unpacked hash and length. */
export interface NamedCall {
  sha256: string;
  bytes: number;
}

const SHA256 = /^[0-9a-f]{64}$/;
/** In RFC 8785 text every line of a published call has it, so that no other line has to be parsed. */
const MARK = Buffer.from('"kind":2');

/** The objects under `call/` that a line of an evidence file names: of a published call its request, and its answer if one came. */
export function callsOf(line: Buffer): NamedCall[] {
  if (!line.includes(MARK)) return [];
  const row = parseJson(line) as Record<string, unknown> | null | undefined;
  if (row?.kind !== 2) return [];
  return (["request", "response"] as const).flatMap((part): NamedCall[] => {
    const [sha256, bytes] = [row[`${part}_sha256`], row[`${part}_bytes`]];
    const named = typeof sha256 === "string" && SHA256.test(sha256) && Number.isSafeInteger(bytes);
    return named ? [{ sha256, bytes: bytes as number }] : [];
  });
}

/** Packed bytes of a call, by the hash and length of what they unpack to. @throws MissingObject, Unproven, Oversized, SourceDown */
export async function fetchCall(source: Pick<Source, "get">, call: NamedCall): Promise<Uint8Array> {
  const key = callKey(call.sha256);
  if (!(call.bytes >= 0 && call.bytes <= MAX.named)) {
    throw new Unproven(key, `at most ${MAX.named} bytes`, String(call.bytes));
  }
  const packed = await source.get(key, packedBound(call.bytes));
  if (!packed) throw new MissingObject(key);
  await refuseOtherCall(packed, call);
  return packed;
}

/** @throws Unproven unless these bytes unpack to what the line names */
export async function refuseOtherCall(packed: Uint8Array, { sha256, bytes }: NamedCall): Promise<void> {
  const want = `${bytes} bytes of ${sha256}`;
  const facts = new TextFacts(0);
  try {
    await streamFrame(packed, bytes, (chunk) => facts.add(chunk));
  } catch (error) {
    if (!(error instanceof BadFrame)) throw error;
    throw new Unproven(callKey(sha256), want, error.message);
  }
  const got = facts.end();
  if (got.sha256 !== sha256 || got.size !== bytes) {
    throw new Unproven(callKey(sha256), want, `${got.size} bytes of ${got.sha256}`);
  }
}
