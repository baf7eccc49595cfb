import { z } from "zod";
import { compress, decompress } from "zstd-napi";
import { forEachYielding } from "../../infra/concurrency.ts";
import { highestNumbered, numberedKey } from "../../infra/store/numbered.ts";
import type { Store } from "../../infra/store/store.ts";
import { RunHeader, RunLine } from "../record/card.ts";
import { TIERS } from "../record/vocabulary.ts";
import { BadPrivateObject } from "./generation.ts";
import type { Draft } from "./leaves.ts";

/**
 * A grade run (records.md): the changed cards (endpoints' grades) that a grader found, and the offsets up to which it
 * had read the event log.
 */
export interface Run {
  header: RunHeader;
  lines: readonly RunLine[];
  drafts?: RunDrafts;
}

const RunDraft = z.discriminatedUnion("kind", [
  z.looseObject({
    kind: z.enum(["correction", "dispute", "reinstated", "listing", "delisting", "commitment"]),
    capability_id: z.string(),
  }),
  z.looseObject({ kind: z.literal("receipt"), sha256: z.string() }),
]);

/**
 * Leaves (log entries) other than cards that a run carries. The grader that owns the partitions reads them from its
 * lake (local database), which the publisher does not have: corrections that the run had read, listings of endpoints
 * with new records, commitments, and receipts.
 */
export type RunDrafts = readonly (Draft & { kind: z.infer<typeof RunDraft>["kind"] })[];

/** A line with a draft of a leaf. It has the one member `draft`, which no line with cards has. */
const DraftLine = z.strictObject({ draft: RunDraft });

const formatDraftLine = (draft: unknown): string => `${JSON.stringify(DraftLine.parse({ draft }))}\n`;

export const runKey = (n: number): string => numberedKey("runs", n);

/**
 * Checks a line of a run: all its cards are of its endpoint, sorted from the deepest tier (depth of checking) on, and
 * exactly one is the headline, the main card.
 * @throws ZodError, or Error naming the endpoint
 */
export function checkLine(value: unknown): RunLine {
  const line = RunLine.parse(value);
  const tiers = line.cards.map(({ card }) => TIERS.indexOf(card.tier));
  if (!tiers.every((tier, i) => i === 0 || tier < tiers[i - 1]!))
    throw new Error(`${line.cap}: not deepest tier first`);
  if (line.cards.filter((card) => card.headline).length !== 1) throw new Error(`${line.cap}: not exactly one headline`);
  if (line.cards.some(({ card }) => card.capability_id !== line.cap)) throw new Error(`${line.cap}: a card of another`);
  return line;
}

/** A run is private and neither hashed nor signed, so the zstd frame carries a checksum. */
const ZSTD_OPTIONS = { compressionLevel: 3, checksumFlag: true } as const;

/** Number of lines that are checked before other work of the process gets its turn: a few milliseconds. */
const LINES_PER_TURN = 64;

/**
 * Largest number of lines with cards, and most drafts about other endpoints, that a grader writes into one run object.
 * A line with its listing has some 3 kB of text, so the text stays far below the 512 MB that a string of V8 can have.
 */
export const MAX_RUN_LINES = 8_192;

/** Lines of a run as in a run object, checked and compressed, and the ids of their endpoints. */
export interface PackedLines {
  caps: readonly string[];
  packed: Uint8Array;
}

const textOf = async (lines: readonly RunLine[]): Promise<Buffer> => {
  const body: string[] = [];
  await forEachYielding(lines, LINES_PER_TURN, (line) => body.push(`${JSON.stringify(checkLine(line))}\n`));
  return Buffer.from(body.join(""));
};

/**
 * Compresses some lines, so that those of a large run take a tenth of the memory.
 * @throws what {@link writeRun} throws
 */
export const packLines = async (lines: readonly RunLine[]): Promise<PackedLines> => ({
  caps: lines.map(({ cap }) => cap),
  packed: compress(await textOf(lines), ZSTD_OPTIONS),
});

/** Number of run numbers in a row that other writers may take first before a writer gives up. */
const MAX_RACES = 64;

/**
 * Writes a run under the next free number: a header line, lines with cards, lines with drafts of other leaves, as
 * NDJSON in one zstd frame.
 * @param header without the number `n`
 * @param lines as objects or already compressed
 * @param knownRun number of an existing run, from which the search for a free number begins
 * @throws when the run does not match its schema; nothing is written then
 */
export async function writeRun(
  store: Store,
  header: Omit<RunHeader, "n">,
  lines: readonly RunLine[] | PackedLines,
  knownRun = -1,
  drafts: RunDrafts = [],
): Promise<number> {
  const body = "packed" in lines ? decompress(lines.packed) : await textOf(lines);
  const draftLines: string[] = [];
  await forEachYielding(drafts, LINES_PER_TURN, (draft) => draftLines.push(formatDraftLine(draft)));
  let n = (await highestNumbered(store, "runs", knownRun)) + 1;
  for (let race = 0; race < MAX_RACES; race++, n++) {
    const headerLine = `${JSON.stringify(RunHeader.parse({ ...header, n }))}\n`;
    const text = Buffer.concat([Buffer.from(headerLine), body, Buffer.from(draftLines.join(""))]);
    const { result } = await store.create(runKey(n), compress(text, ZSTD_OPTIONS));
    if (result === "created") return n;
  }
  throw new Error(`no free number for a run after ${MAX_RACES} tries`);
}

/** Reads run n; null when there is none yet. @throws BadPrivateObject when the object is not a valid run */
export async function readRun(store: Store, n: number): Promise<Run | null> {
  const object = await store.get(runKey(n));
  if (!object) return null;
  try {
    const [headerLine, ...lineTexts] = decompress(object.bytes).toString("utf8").trimEnd().split("\n");
    const header = RunHeader.parse(JSON.parse(headerLine!));
    if (header.n !== n) throw new Error(`its header says ${header.n}`);
    const lines: RunLine[] = [];
    const drafts: RunDrafts[number][] = [];
    await forEachYielding(lineTexts, LINES_PER_TURN, (text) => {
      const value = JSON.parse(text) as object;
      if ("cap" in value) lines.push(checkLine(value));
      else drafts.push(DraftLine.parse(value).draft as unknown as RunDrafts[number]);
    });
    return { header, lines, drafts };
  } catch (error) {
    throw new BadPrivateObject(runKey(n), (error as Error).message.slice(0, 300));
  }
}
