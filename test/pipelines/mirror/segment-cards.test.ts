import { expect, it } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import { FixedClock } from "../../../infra/clock.ts";
import type { Jwks } from "../../../infra/keys/jwk.ts";
import { signObject } from "../../../infra/keys/signer.ts";
import { signCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../../infra/tree/note.ts";
import { writeKeys } from "../../../pipelines/4-publish/keys.ts";
import { EMPTY_TREE, growTree } from "../../../pipelines/4-publish/live.ts";
import { writeTree } from "../../../pipelines/4-publish/recover.ts";
import { checkpointKeys } from "../../../pipelines/4-publish/tree-head.ts";
import { mirrorOnce } from "../../../pipelines/mirror/mirror.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import type { Source } from "../../../pipelines/published/source.ts";
import { capOf, cardOf, NOW, ORIGIN } from "../../helpers/public-record.ts";
import { JWKS, NEXT_CARDS, rotated, SIGNERS } from "../4-publish/world.ts";
import { MemoryStore } from "./memory-store.ts";
import { specOf } from "./testbed.ts";

/**
 * Cards in a segment: each under the keys of its place, also where these
 * change within the segment, and what the keys do not decide is verified one card at a time.
 */
const SIZE = 65_540;
const ROTATED = "2026-11-20T00:00:00.000Z";
const [EARLY, LATE] = ["2026-11-19T00:00:00.000Z", "2026-11-20T01:00:00.000Z"];
/** Where the second keys document is a leaf. */
const SECOND = 300;

const spec = specOf("seller");
const card = (by: typeof SIGNERS.cards, computed_at: string) => signObject(by, cardOf(spec, { computed_at }));
const gradeOf = (signed: object) => ({
  ...{ kind: "grade", day: "2026-11-20", raw_band: "B", headline: true, why: "B.", card: signed },
  inputs: { positions: { "observations.free": 10 }, digest: "00".repeat(32), kin: "11".repeat(32) },
});

/** What stands at a place instead of a leaf that says nothing: a leaf without its place, or its text. */
type At = Record<number, object | ((index: number) => string)>;

const GOOD: At = {
  1: gradeOf(card(SIGNERS.cards, EARLY)),
  [SECOND - 1]: gradeOf(card(SIGNERS.cards, EARLY)),
  [SECOND + 1]: gradeOf(card(NEXT_CARDS, LATE)),
  65535: gradeOf(card(NEXT_CARDS, LATE)),
  65536: gradeOf(card(NEXT_CARDS, LATE)),
};

const CAP = capOf(spec);
/** A leaf that says nothing, in RFC 8785 form. */
const filler = (index: number) =>
  `{"at":"${NOW}","capability_id":"${CAP}","index":${index},"kind":"delisting","seq":${index}}`;
const fillers = Array.from({ length: SIZE }, (_, index) => filler(index));

/** A log of two keys documents and these leaves. */
async function logOf(more: At): Promise<MemoryStore> {
  const store = new MemoryStore();
  const fold = new PublishedFold();
  const documents: Record<number, Jwks> = { 0: JWKS, [SECOND]: rotated(ROTATED) };
  const texts: string[] = [];
  for (let index = 0; index < SIZE; index++) {
    const jwks = documents[index];
    const drafted = jwks && (await writeKeys(store, fold, jwks, SIGNERS, new Date(NOW)));
    const own = drafted ?? more[index] ?? GOOD[index] ?? fillers[index]!;
    if (typeof own === "function") texts.push(own(index));
    else texts.push(typeof own === "string" ? own : canonicalText({ at: NOW, seq: index, ...own, index }));
    // The next document is chained to this one.
    if (drafted?.kind === "keys") fold.keys = { n: drafted.n, key: drafted.key, sha256: drafted.sha256, leaf: index };
  }
  const grown = growTree(
    EMPTY_TREE,
    texts.map((text) => Buffer.from(text)),
  );
  await writeTree(store, grown);
  const { log, witness } = checkpointKeys(ORIGIN, SIGNERS);
  const head = { origin: ORIGIN, size: SIZE, root: grown.live.tree.root() };
  await store.create("checkpoint", signCheckpoint(head, log, witness, new Date(NOW)));
  return store;
}

async function mirrored(more: At, cardSignatures = true) {
  const theirs = await logOf(more);
  const source: Source = {
    name: "memory",
    get: async (key) => (await theirs.get(key))?.bytes ?? null,
    close: async () => undefined,
  };
  const publicStore = new MemoryStore();
  const { log, witness } = checkpointKeys(ORIGIN, SIGNERS);
  const keys = { log: formatVkey(log, ED25519), witness: formatVkey(witness, COSIGNATURE) };
  const clock = new FixedClock(NOW);
  const run = mirrorOnce({ source, publicStore, stateStore: new MemoryStore(), clock, keys, cardSignatures });
  return { run, publicStore };
}

/** The same leaf, its members in another order: no RFC 8785, and still JSON that a key signed. */
const shuffled = (leaf: object) => (index: number) =>
  JSON.stringify({ kind: "grade", index, ...Object.fromEntries(Object.entries(leaf).reverse()), at: NOW, seq: index });

it("every card holds under the keys of its place, whatever the order of its members", async () => {
  const { run, publicStore } = await mirrored({ 400: shuffled(gradeOf(card(NEXT_CARDS, LATE))) });
  expect(await run).toMatchObject({ result: "synced", tree_size: SIZE });
  expect(publicStore.objects.has("checkpoint")).toBe(true);
});

const { signature, ...unsigned } = card(NEXT_CARDS, LATE);
const worse = gradeOf({ ...unsigned, composite: 0.99, signature });
it.each<[string, At, RegExp]>([
  ["a card that was changed after it was signed", { 40000: worse }, /card of leaf 40000 .*bad_signature/],
  [
    "a card of a key that is named behind it",
    { 200: gradeOf(card(NEXT_CARDS, LATE)) },
    /card of leaf 200 .*unknown_key/,
  ],
  ["a card of a key that had retired", { 500: gradeOf(card(SIGNERS.cards, LATE)) }, /card of leaf 500 .*retired/],
  ["a card without a signature", { 600: gradeOf(unsigned) }, /card of leaf 600 .*malformed/],
  [
    "a card that says its place in the place of its leaf",
    { 700: (index) => canonicalText({ ...gradeOf({ ...unsigned, index }), at: NOW, index: 1, seq: index }) },
    /leaf 700 .*JSON with its index/,
  ],
  ["a leaf that is no JSON", { 800: () => "{" }, /leaf 800 .*JSON with its index/],
])("%s: the segment is refused", async (_, more, says) => {
  const { run, publicStore } = await mirrored(more);
  await expect(run).rejects.toThrow(says);
  expect(publicStore.objects.has("checkpoint")).toBe(false);
});

it("a mirror that believes the log for its cards takes them as they are", async () => {
  const { run } = await mirrored({ 40000: worse }, false);
  expect(await run).toMatchObject({ result: "synced", tree_size: SIZE });
});
