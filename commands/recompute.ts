import { Failure } from "../infra/errors.ts";
import { type CardVerdict, recompute } from "../pipelines/audit/recompute.ts";
import { isId } from "../pipelines/record/ids.ts";
import { withOpen } from "./files.ts";
import { print, printJson, printLines } from "./printer.ts";
import { stopwatch } from "./report.ts";
import { openRecord, type RecordOptions } from "./sources.ts";
import type { OptionsOf } from "./table.ts";

/** Parses the argument that selects the cards: `all`, a capability id or a url. @throws Failure `usage` */
function parseTarget(endpoint: string) {
  if (endpoint === "all") return "all" as const;
  if (isId("cap", endpoint)) return { cap: endpoint };
  if (/^https?:\/\//i.test(endpoint)) return { url: endpoint };
  throw new Failure("usage", `expected a capability id (cap_…), a url or "all", not ${endpoint.slice(0, 120)}`);
}

/**
 * Formats the verdict on a card (a published grade) as one line. If the card differs, two more lines have the
 * recomputed and the published value.
 */
export function linesOf({ verdict, leaf, computed_at, tier, band, says, difference }: CardVerdict): string[] {
  const line = `${verdict.padEnd(7)} leaf ${leaf}  ${computed_at}  ${tier} ${band}`;
  if (!difference) return [says ? `${line}: ${says}` : line];
  const { field, expected, got } = difference;
  return [`${line}: ${field}`, `        expected ${expected}`, `        got      ${got}`];
}

/**
 * `touchstone recompute`: computes the cards of one endpoint, or of all, again from public files without a database,
 * and compares them with the published ones; docs/evidence.md.
 * @throws Failure `differs` or `nothing`; the errors of `recompute`
 */
export async function recomputeCommand(
  endpoint: string,
  options: OptionsOf<"recompute"> & RecordOptions,
): Promise<void> {
  const elapsedSeconds = stopwatch();
  const target = parseTarget(endpoint);
  await withOpen(openRecord(options.from, options), async ({ source, head }) => {
    let shownEndpointId = "";
    const result = await recompute(source, head, target, (card) => {
      if (options.json) return printJson(card);
      if (shownEndpointId !== card.capability_id) printLines(`${card.capability_id}${card.url ? `  ${card.url}` : ""}`);
      shownEndpointId = card.capability_id;
      printLines(linesOf(card));
    });
    const took_s = elapsedSeconds();
    print(options, { origin: head.origin, ...result, took_s }, [
      `${result.ok} ok, ${result.pending} pending, ${result.differs} differ, ${result.not_run} not run; ` +
        `${result.tree_size} leaves of ${head.origin}, ` +
        `evidence up to ${result.closed_to || "no day yet"}, ${took_s} s`,
    ]);
    if (result.differs > 0)
      throw new Failure(
        "differs",
        `${result.differs} published card${result.differs === 1 ? " does" : "s do"} not follow from the published evidence`,
      );
    if (result.ok + result.pending === 0) {
      const why = result.not_run > 0 ? "could be compared: what they depend on cannot be read" : "is published";
      throw new Failure("nothing", `no card of ${endpoint} ${why}`);
    }
    if (result.ok === 0) throw new Failure("nothing", "no evidence of these cards is published yet");
    if (!options.json) printLines(`next: touchstone audit ${options.from}`);
  });
}
