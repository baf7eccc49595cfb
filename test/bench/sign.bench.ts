/**
 * Signatures on all cores against Node's own on one: verified in batches (as mirrors and auditors do), signed one by one
 * on the thread pool (as the publisher does). 1.3 kB cards. `npx tsx test/bench/sign.bench.ts [signatures]`
 *
 * Wall clock tells something only on a quiet machine; CPU a signature tells how much of the cores goes into signatures.
 * Cards are made before the clock starts: in a publication the same cores make and print them meanwhile, so that its own
 * share of signatures is less than what is shown here. A next batch is handed in whenever one is answered, as the users do.
 */
import { createPublicKey, verify } from "node:crypto";
import { availableParallelism, loadavg } from "node:os";
import { canonicalBytes } from "../../infra/canonical.ts";
import { verifySoon } from "../../infra/keys/verify.ts";
import { line, SIGNERS } from "../pipelines/4-publish/world.ts";
import { type Cost, ratio, timed } from "./ratio.ts";

const count = Number(process.argv[2] ?? 20_000);
const BATCH = 512;
const cores = availableParallelism();
const { cards: signer } = SIGNERS;
const { publicKey } = signer;
const x = Buffer.from(publicKey).toString("base64url");
const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });

const cards = Array.from({ length: count }, (_, i) =>
  canonicalBytes(line(`s-${i % 500}`, new Date(i * 1_000).toISOString(), ["B"]).cards[0]!.card),
);
const each = (cost: Cost): string =>
  `${((cost.wall / count) * 1e6).toFixed(1).padStart(7)} us wall ${((cost.cpu / count) * 1e6).toFixed(1).padStart(7)} us CPU each`;
console.log(`${count} cards of ${cards[0]!.length} bytes, ${cores} cores, load ${loadavg()[0]!.toFixed(1)}`);

const signatures: Uint8Array[] = [];
const alone = await timed(async () => {
  for (const card of cards) signatures.push(signer.sign(card));
});
console.log(`sign, one core           ${each(alone)}`);
/** Batches [at, at + BATCH) with so many under way as keep all cores busy. */
async function batches(work: (at: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    for (let at = next; at < count; at = next) {
      next += BATCH;
      await work(at);
    }
  };
  await Promise.all(Array.from({ length: 2 * cores }, worker));
}

const soon: Uint8Array[] = [];
const pooled = await timed(() =>
  batches(async (at) => {
    const signed = await Promise.all(cards.slice(at, at + BATCH).map((card) => signer.signSoon(card)));
    for (const [i, signature] of signed.entries()) soon[at + i] = signature;
  }),
);
if (soon.some((signature, i) => Buffer.compare(signature, signatures[i]!) !== 0)) throw new Error("another signature");
console.log(`sign, all cores          ${each(pooled)}`);

const native = await timed(async () => {
  for (const [i, card] of cards.entries())
    if (!verify(null, card, key, signatures[i]!)) throw new Error("does not hold");
});
console.log(`verify, one core         ${each(native)}`);
const jobs = cards.map((bytes, i) => ({ publicKey, bytes, signature: signatures[i]! }));
const good = (of: typeof jobs) => Promise.all(of.map((job) => verifySoon(job.publicKey, job.bytes, job.signature)));
// Threads start, and the key is looked at, before the clock does.
await good(jobs.slice(0, BATCH));
const together = await timed(() =>
  batches(async (at) => {
    if ((await good(jobs.slice(at, at + BATCH))).includes(false)) throw new Error("does not hold");
  }),
);
console.log(`verify, all cores        ${each(together)}`);

const speed = (base: Cost, all: Cost): string =>
  `${(base.wall / all.wall / cores).toFixed(2)} wall, ${(base.cpu / all.cpu).toFixed(2)} CPU`;
ratio(`verify on ${cores} cores against native x ${cores}`, speed(native, together), "at least 0.90");
ratio(`sign on ${cores} cores against native x ${cores}`, speed(alone, pooled), "at least 0.90");
