import { z } from "zod";
import type { Store } from "../../infra/store/store.ts";
import { Kin, type Thief } from "../3-grade/kin.ts";
import { BadPrivate } from "../4-publish/generation.ts";

/**
 * The payee and domain tables that runs graded with. A card's leaf names its table by hash alone (`inputs.kin`), and no
 * single endpoint's evidence contains it, so the tables are kept when they are used and published with the evidence.
 */
const Thieves = z.array(
  z.strictObject({ cap: z.string(), pay_to: z.string().nullable(), domain: z.string().nullable() }),
);

const kinKey = (sha256: string): string => `kin/${sha256}.json`;

/** The table of nobody: every run before the first theft. It is never written down. */
export const EMPTY_KIN = new Kin([]).sha256;

/** Keep the table of a run, once. @throws Error when the table is not the one the run names: its cards could not be proven */
export async function keepKin(privateStore: Store, sha256: string, thieves: readonly Thief[]): Promise<void> {
  const got = new Kin(thieves).sha256;
  if (got !== sha256) throw new Error(`the run graded with kin table ${sha256}, the lake holds ${got}`);
  if (sha256 !== EMPTY_KIN) await privateStore.create(kinKey(sha256), Buffer.from(JSON.stringify(thieves)));
}

/** A kept table, ascending by capability, or null when no run of this store kept it. @throws BadPrivate when damaged */
export async function keptKin(privateStore: Store, sha256: string): Promise<Thief[] | null> {
  if (sha256 === EMPTY_KIN) return [];
  const object = await privateStore.get(kinKey(sha256));
  if (!object) return null;
  const { data } = Thieves.safeParse(parse(object.bytes));
  if (!data || new Kin(data).sha256 !== sha256) throw new BadPrivate(kinKey(sha256), "is not what its name says");
  return [...data].sort((a, b) => (a.cap < b.cap ? -1 : 1));
}

function parse(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString("utf8"));
  } catch {
    return undefined;
  }
}
