import { systemClock } from "../infra/clock.ts";
import { Failure } from "../infra/errors.ts";
import { addressOfOrigin } from "../infra/tree/checkpoint.ts";
import { ED25519 } from "../infra/tree/note.ts";
import { checkAge } from "../pipelines/mirror/state.ts";
import { CardBundle, proveCardBundle, sourceOf } from "../pipelines/published/card-bundle.ts";
import { EQUIVOCATION_SCHEMA, proveEquivocation, readEquivocation } from "../pipelines/published/equivocation.ts";
import { logOfPolicy, openSourceTreeHead, parseVerifierKey } from "../pipelines/published/trust.ts";
import { faultsOf } from "../pipelines/record/faults.ts";
import { cardTime } from "../pipelines/record/leaf.ts";
import { readNamedJsonFile } from "./files.ts";
import { print, say } from "./printer.ts";
import { keysOf, type RecordOptions } from "./sources.ts";
import type { OptionsOf } from "./table.ts";

/** Largest file that is read, bytes: a bundle has some tens of kilobytes. */
const MAX_BYTES = 8 * 1024 * 1024;

/**
 * `touchstone verify FILE`: proves, offline, a card bundle (a grade with its proofs), or an equivocation (two
 * checkpoints of one log that contradict each other). It uses the keys of the options, else those in the file;
 * docs/card-bundle.md, docs/monitor.md.
 * @throws Failure `fork` for an equivocation that is proven; `unreadable`, `usage`, `tampered` (Unproven),
 * `unwitnessed`, `stale`
 */
export async function verifyCommand(file: string, options: OptionsOf<"verify"> & RecordOptions): Promise<void> {
  const value = await readNamedJsonFile(file, MAX_BYTES);
  if ((value as { schema?: unknown } | null)?.schema === EQUIVOCATION_SCHEMA) return verifyEquivocation(value, options);
  const { data: bundle, error } = CardBundle.safeParse(value);
  if (!bundle) {
    const [fault] = faultsOf(error);
    throw new Failure(
      "unreadable",
      `${file} is no card bundle: ${fault ? `/${fault.path.map(String).join("/")} ${fault.detail}` : "it has another form"}`,
    );
  }
  const head = await openSourceTreeHead(sourceOf(file, bundle), await keysOf(options), say, systemClock);
  if (options.maxAge !== undefined) checkAge(head, systemClock, options.maxAge);
  const leaf = proveCardBundle(bundle, head);
  const { card, why } = leaf;
  const { origin, size } = head;
  const cosigned_at = head.cosignedAt?.toISOString() ?? null;
  const computed_at = cardTime(leaf);
  print(options, { origin, tree_size: size, leaf: bundle.index, cosigned_at, computed_at, why, card }, [
    `${card.capability_id}  ${card.band}  ${card.tier}  computed ${computed_at}`,
    `  ${why}`,
    `proven: leaf ${bundle.index} of the ${size} leaves of ${origin}, cosigned at ${cosigned_at ?? "no time"}`,
    `next: a newer card may stand in the record: touchstone recompute ${card.capability_id} --from ${addressOfOrigin(origin)}`,
  ]);
}

/**
 * Proves that the two checkpoints in an equivocation file contradict each other, and prints them.
 * @throws Failure `fork` when that is proven, Unproven when not, `unreadable`, `usage`, `unwitnessed` for a policy
 * that names other logs
 */
async function verifyEquivocation(value: unknown, options: OptionsOf<"verify"> & RecordOptions): Promise<void> {
  const file = readEquivocation(value);
  const { log, policy } = await keysOf(options);
  const logKey = log ?? logOfPolicy(policy, Buffer.from(file.larger));
  const keys = logKey === undefined ? undefined : [parseVerifierKey(logKey, ED25519), ...(policy?.logs ?? [])];
  const { smaller, larger, prefixRoot } = proveEquivocation(file, keys);
  if (!keys) say(`believing the keys of the file: --log-key ${file.log_keys.join(" or ")}`);
  const [signedRoot, otherRoot] = [smaller.root.toString("hex"), Buffer.from(prefixRoot).toString("hex")];
  const sizes = { smaller: smaller.size, larger: larger.size };
  const facts = {
    origin: file.origin,
    ...sizes,
    signed_root: signedRoot,
    other_root: otherRoot,
    larger_root: larger.root.toString("hex"),
  };
  print(options, facts, [
    `proven: ${file.origin} signed two histories`,
    `  its checkpoint of ${smaller.size} leaves has the root ${signedRoot}`,
    smaller.size === larger.size
      ? `  and another of ${larger.size} leaves the root ${otherRoot}`
      : `  and the tree of ${larger.size} leaves that it signed has at ${smaller.size} the root ${otherRoot}`,
    "next: publish the file, and tell the operator of the log, its mirrors and its witnesses",
  ]);
  throw new Failure("fork", `${file.origin} signed two histories`);
}
