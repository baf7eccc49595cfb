import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

/** The published page of parameters, where the design folder lies beside the repository. */
export const SHARED_DESIGN = resolve(ROOT, "../shared/design");

/** VECTORS_DIR if set, else the project's own copy, else the folder beside the repository. */
function vectorsFile(): string {
  const folders = [process.env.VECTORS_DIR, join(ROOT, "fixtures/vectors"), resolve(ROOT, "../shared/vectors")];
  const files = folders.filter((folder) => folder !== undefined).map((folder) => join(folder, "grading/vectors.json"));
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

const all = JSON.parse(readFileSync(vectorsFile(), "utf8")) as Vector<never, never>[];

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
