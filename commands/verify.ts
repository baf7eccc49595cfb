import { systemClock } from "../infra/clock.ts";
import { Failure } from "../infra/errors.ts";
import { checkAge } from "../pipelines/mirror/state.ts";
import { CardBundle, proveCardBundle, sourceOf } from "../pipelines/published/card-bundle.ts";
import { openSourceTreeHead } from "../pipelines/published/trust.ts";
import { faultsOf } from "../pipelines/record/faults.ts";
import { cardTime } from "../pipelines/record/leaf.ts";
import { readNamedJson } from "./files.ts";
import { print, say } from "./printer.ts";
import { keysOf, type RecordOptions } from "./sources.ts";
import type { OptionsOf } from "./table.ts";

/** Largest file that is read, bytes: a bundle has some tens of kilobytes. */
const MAX_BYTES = 8 * 1024 * 1024;

/**
 * `touchstone verify FILE`: proves a card bundle offline, under the keys of the options, else under those in the file;
 * docs/card-bundle.md.
 * @throws Failure `unreadable`, `usage`, `tampered` (Unproven), `unwitnessed`, `stale`
 */
export async function verifyCommand(file: string, options: OptionsOf<"verify"> & RecordOptions): Promise<void> {
  const { data: bundle, error } = CardBundle.safeParse(await readNamedJson(file, MAX_BYTES));
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
    `next: a newer card may stand in the record: touchstone recompute ${card.capability_id} --from https://${origin}`,
  ]);
}
