import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Equivocation, readEquivocation } from "../../../pipelines/published/equivocation.ts";

/** Folder of recorded equivocations. */
export const RECORDED = join(import.meta.dirname, "recorded");
export const FILES = ["equal-sizes", "a-power-of-two", "other-sizes"] as const;

/** A recorded equivocation. */
export const recorded = (name: (typeof FILES)[number]): Equivocation =>
  readEquivocation(JSON.parse(readFileSync(join(RECORDED, `${name}.json`), "utf8")));

/** Changes of a file after which it proves nothing. */
export const LIES: [name: string, lie: (file: Equivocation) => Equivocation][] = [
  ["the notes exchanged", (file) => ({ ...file, smaller: file.larger, larger: file.smaller })],
  ["one note twice", (file) => ({ ...file, larger: file.smaller, proof: [] })],
  ["a node left out", (file) => ({ ...file, proof: file.proof.slice(1) })],
  ["a node more", (file) => ({ ...file, proof: [...file.proof, Buffer.alloc(32, 1).toString("base64")] })],
  ["another node", (file) => ({ ...file, proof: [Buffer.alloc(32).toString("base64"), ...file.proof.slice(1)] })],
  ["another size", (file) => ({ ...file, smaller: file.smaller.replace(/\n\d+\n/, "\n9\n") })],
  ["another name", (file) => ({ ...file, origin: "other.example" })],
  ["no signature", (file) => ({ ...file, larger: file.larger.replace(/\n\n.*\n/, "\n\n") })],
];
