import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { verifyConsistency } from "../../../infra/tree/proof.ts";
import { verifyInclusion } from "./inclusion.ts";

const FOLDER = new URL("../../../fixtures/vectors/merkle", import.meta.url).pathname;

interface Vector {
  wantErr: boolean;
  proof: string[] | null;
  root?: string;
  leafHash?: string;
  root1?: string;
  root2?: string;
}

const base64 = (text: string | undefined): Buffer => Buffer.from(text ?? "", "base64");

/** Some of the integers exceed 2^53, so they are read from the text. */
function integer(text: string, name: string): bigint {
  const match = new RegExp(`"${name}": (\\d+)`).exec(text);
  if (!match) throw new Error(`no ${name}`);
  return BigInt(match[1]!);
}

function accepts(kind: string, text: string): { accepted: boolean; want: boolean } {
  const vector = JSON.parse(text) as Vector;
  const proof = (vector.proof ?? []).map(base64);
  const accepted =
    kind === "inclusion"
      ? verifyInclusion(
          integer(text, "leafIdx"),
          integer(text, "treeSize"),
          base64(vector.leafHash),
          proof,
          base64(vector.root),
        )
      : verifyConsistency(
          integer(text, "size1"),
          integer(text, "size2"),
          base64(vector.root1),
          base64(vector.root2),
          proof,
        );
  return { accepted, want: !vector.wantErr };
}

/** Where we are stricter than the vectors: hashes that are not 32 bytes long. */
const POLICY = ["consistency/additional/sizes-are-equal-one-and-proof-is-empty.json"];

describe("public RFC 6962 proofs", () => {
  const files = readdirSync(FOLDER, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".json"));

  it("are all here", () => expect(files).toHaveLength(196));

  it.each(files.sort())("%s", (file) => {
    const { accepted, want } = accepts(file.split("/")[0]!, readFileSync(join(FOLDER, file), "utf8"));
    expect(accepted).toBe(POLICY.includes(file) ? !want : want);
  });
});
