import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/** The published page of parameters, where the design folder lies beside the repository. */
export const SHARED_DESIGN = resolve(ROOT, "../shared/design");

/**
 * The file of VECTORS_DIR if that is set, else the project's own copy, else that of the folder beside the repository.
 * @param given what VECTORS_DIR is @throws Error when there is none: also when VECTORS_DIR is set and holds none, since
 *   whoever sets it means to be told of those, and not of ours
 */
function vectorsFile(given: string | undefined): string {
  const own = [join(ROOT, "fixtures/vectors"), resolve(ROOT, "../shared/vectors")];
  const files = (given === undefined ? own : [given]).map((folder) => join(folder, "grading/vectors.json"));
  const file = files.find((name) => existsSync(name));
  if (!file) throw new Error(`no grading vectors; looked for ${files.join(", ")}`);
  console.info(`grading vectors: ${file}`);
  return file;
}

export interface Vector<In, Out> {
  id: string;
  fn: string;
  in: In;
  out: Out;
  note?: string;
}

export interface VectorRow {
  obs_id: number;
  t: string;
  kind: number;
  payer: string | null;
  w: number;
  fault: string | null;
  live: boolean;
  honest: boolean | null;
  settled: boolean;
  delivered: boolean | null;
  refunded: boolean;
  delivery: number | null;
  outcome: number | null;
  schema_ok: boolean | null;
  latency_ms: number | null;
  price: number | null;
}

interface Place {
  pay_to: string | null;
  domain: string | null;
  ours: boolean;
}

export interface GradeIn {
  now: string;
  window_start: string;
  observations: VectorRow[];
  withdrawn?: number[];
  site?: Place;
  others?: (Place & { took_the_money: boolean })[];
}

export interface VectorFigure {
  point: number;
  lower: number;
  upper: number;
  n_eff: number;
}

export interface GradeOut {
  tier: string | null;
  components: Record<string, VectorFigure | null> | null;
  composite: number | null;
  band_raw: string;
  progress: number;
  caps: Record<string, number>;
  flags: string[];
  due_at: string | null;
  cards: { tier: string; band_raw: string; composite: number; progress: number }[];
}

const all = readVectors(process.env.VECTORS_DIR);

/** @throws Error when the file holds no list, or an empty one: no test would fail by it */
export function readVectors(given: string | undefined): Vector<never, never>[] {
  const file = vectorsFile(given);
  const vectors: unknown = JSON.parse(readFileSync(file, "utf8"));
  if (!Array.isArray(vectors) || vectors.length === 0) throw new Error(`no grading vectors in ${file}`);
  return vectors;
}

export const vectorsOf = <In, Out>(fn: string): Vector<In, Out>[] =>
  all.filter((vector) => vector.fn === fn) as Vector<In, Out>[];
export const vectorFunctions = [...new Set(all.map(({ fn }) => fn))];

const id = (n: number): string => String(n).padStart(8, "0");

/** A vector's rows as samples. The vectors are older than the fields they lack: their paid calls are examples. */
export const samplesOf = (vector: Vector<GradeIn, GradeOut>): Sample[] =>
  vector.in.observations.map((row) => ({
    ...row,
    obs_id: `${vector.id}-${id(row.obs_id)}`,
    t: new Date(row.t),
    input: row.kind === 1 ? "example" : null,
    response_sha256: null,
    pay_to: null,
  }));

export const withdrawnOf = (vector: Vector<GradeIn, GradeOut>): string[] =>
  (vector.in.withdrawn ?? []).map((n) => `${vector.id}-${id(n)}`);
