import { writeFile } from "node:fs/promises";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { ArchiveUnproven } from "./errors.ts";
import { Packing } from "./pack.ts";
import type { MadeFile } from "./subjects.ts";
import { removeFiles, workPath } from "./work-files.ts";

/** Rows whose lines come out of the engine as one text: some megabytes. */
const ROWS_A_PIECE = 8_192n;

interface Place {
  cap: string;
  id: string;
}

interface Piece {
  text: Uint8Array;
  rows: number;
  digest: string;
  first: Place;
  last: Place;
}

/** Rows of `archive_lines` by their place in the table: $first to $next, exclusive. */
interface Range {
  first: bigint;
  next: bigint;
}

/**
 * Files of the lines in `archive_lines`, each packed and hashed while the engine makes the next piece of it; no text is
 * written to a disk. Rows and digest of a file are those that its lines tell.
 * @param base place of the first line @param rows lines of the table
 * @throws ArchiveUnproven when they are not in their order, or a row is there twice
 */
export async function packLines(
  tx: Statements,
  lake: Pick<Lake, "workDir">,
  { base, rows }: { base: bigint; rows: number },
  rowsAFile: number,
): Promise<MadeFile[]> {
  const files: MadeFile[] = [];
  let before: Place | null = null;
  try {
    for (let first = 0; first < rows; first += rowsAFile) {
      const range = { first: base + BigInt(first), next: base + BigInt(Math.min(rows, first + rowsAFile)) };
      const { file, last } = await packRange(tx, lake, range, before);
      files.push(file);
      before = last;
    }
  } catch (error) {
    await removeFiles(files);
    throw error;
  }
  await tx.run("DROP TABLE archive_lines");
  return files;
}

async function packRange(
  tx: Statements,
  lake: Pick<Lake, "workDir">,
  range: Range,
  before: Place | null,
): Promise<{ file: MadeFile; last: Place | null }> {
  const [whole] = await tx.all<{ bytes: number; twice: number }>(sql("65_archive_file"), { ...range });
  const [path, ids] = [workPath(lake), workPath(lake)];
  if (whole!.twice > 0) throw new ArchiveUnproven(path, "each row once", `${whole!.twice} twice`);
  const packing = new Packing(whole!.bytes);
  let [rows, digest, last] = [0, 0n, before];
  for await (const piece of piecesOf(tx, range)) {
    if (last && !isBefore(last, piece.first)) throw new ArchiveUnproven(path, `lines after ${last.id}`, piece.first.id);
    await packing.write(piece.text);
    rows += piece.rows;
    digest ^= BigInt(piece.digest);
    last = piece.last;
  }
  const { bytes, ...packed } = await packing.end();
  try {
    await writeFile(path, bytes);
    await tx.all(sql("66_archive_keep"), { ...range, path: ids });
  } catch (error) {
    await removeFiles([{ path, ids }]);
    throw error;
  }
  return { file: { path, packed, ids, rows, digest: digest.toString() }, last };
}

/** The next piece is being made while this one is used. */
async function* piecesOf(tx: Statements, { first, next }: Range): AsyncGenerator<Piece> {
  const pieceAt = async (at: bigint): Promise<Piece | undefined> => {
    if (at >= next) return undefined;
    const [piece] = await tx.all<Piece>(sql("65_archive_piece"), {
      first: at,
      next: least(next, at + ROWS_A_PIECE),
    });
    return piece;
  };
  let coming = pieceAt(first);
  try {
    for (let at = first; at < next; at += ROWS_A_PIECE) {
      const piece = await coming;
      coming = pieceAt(at + ROWS_A_PIECE);
      // Awaited above or below; until then its failure is not an unhandled one.
      coming.catch(() => undefined);
      yield piece!;
    }
  } finally {
    // Nothing else may run on these statements before.
    await coming.catch(() => undefined);
  }
}

const least = (a: bigint, b: bigint): bigint => (a < b ? a : b);

const isBefore = (a: Place, b: Place): boolean =>
  Buffer.compare(Buffer.from(a.cap), Buffer.from(b.cap)) < 0 ||
  (a.cap === b.cap && Buffer.compare(Buffer.from(a.id), Buffer.from(b.id)) < 0);
