import { afterAll, beforeAll, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import {
  CardBundle,
  makeCardBundle,
  proveCardBundle,
  readLeafText,
  sourceOf,
} from "../../../pipelines/published/card-bundle.ts";
import { CHECKPOINT } from "../../../pipelines/published/objects.ts";
import { PublishedTree } from "../../../pipelines/published/reader.ts";
import { openSourceTreeHead } from "../../../pipelines/published/trust.ts";
import type { GradeLeaf } from "../../../pipelines/record/leaf.ts";
import { liesOf } from "../../helpers/bundle-lies.ts";
import { capOf, cardOf, listingDraft, NOW, PublicRecord } from "../../helpers/public-record.ts";

const SUM = { url: "https://seller.example/sum" };
let record: PublicRecord;
const bundles: CardBundle[] = [];

beforeAll(async () => {
  record = await PublicRecord.open();
  // One leaf, then some, then more than a tile of them: proofs of every length.
  await record.publish(record.grades([cardOf(SUM)], "the first"));
  bundles.push(await bundleAt(0));
  await record.publish(...Array.from({ length: 5 }, (_, n) => [listingDraft({ url: `https://s${n}.example/x` })]));
  bundles.push(await bundleAt(0));
  const many = Array.from({ length: 300 }, (_, n) => [listingDraft({ url: `https://m${n}.example/x` })]);
  await record.publish(...many, record.grades([cardOf(SUM, { band: "C" })], "the last"));
  bundles.push(await bundleAt(0), await bundleAt(306));
});
afterAll(() => record.close());

async function bundleAt(index: number): Promise<CardBundle> {
  const snapshot = (await new PublishedTree(record.store, record.trust).newest())!;
  for await (const { bytes } of snapshot.reader.leaves(index, index + 1)) {
    const of = { index, leaf: bytes.toString("utf8"), capability_id: capOf(SUM) };
    return CardBundle.parse(JSON.parse(JSON.stringify(await makeCardBundle(snapshot, of, record.jwks))));
  }
  throw new Error(`no leaf ${index}`);
}

async function proven(bundle: CardBundle): Promise<GradeLeaf> {
  const head = await openSourceTreeHead(sourceOf("a file", bundle), {}, () => undefined, new FixedClock(NOW));
  return proveCardBundle(bundle, head);
}

test("a bundle of any leaf of a tree of any size is proven, and holds its card", async () => {
  const bands = [];
  for (const bundle of bundles) bands.push((await proven(bundle)).card.band);
  expect(bands).toEqual(["B", "B", "B", "C"]);
  expect(bundles.map(({ proof }) => proof.length > 0)).toEqual([false, true, true, true]);
});

test("a bundle has the checkpoint that was signed last, although no leaf was added, and never an older one", async () => {
  const tree = new PublishedTree(record.store, record.trust);
  const { head } = (await tree.newest())!;
  const fresher = record.note(head, "2026-11-21T12:00:10.000Z");
  for (const bytes of [fresher, head.bytes]) {
    await record.store.swap(CHECKPOINT, bytes, (await record.store.head(CHECKPOINT))!.etag);
    const snapshot = (await tree.newest())!;
    const of = { index: 0, leaf: await readLeafText(snapshot, 0), capability_id: capOf(SUM) };
    const bundle = await makeCardBundle(snapshot, of, record.jwks);
    expect([bundle.checkpoint, snapshot.head.cosignedAt]).toEqual([
      fresher.toString("utf8"),
      new Date("2026-11-21T12:00:10.000Z"),
    ]);
    expect((await proven(bundle)).card.band).toBe("B");
  }
});

test("no lie is proven", async () => {
  const believed: string[] = [];
  for (const bundle of bundles.slice(1)) {
    for (const [lie, lying] of liesOf(bundle)) {
      await proven(lying).then(
        () => believed.push(lie),
        (error) => expect([lie, error]).toEqual([lie, expect.objectContaining({ code: "tampered" })]),
      );
    }
  }
  expect(believed).toEqual([]);
});
