import { LineDay } from "../../../pipelines/5-archive/line-day.ts";
import { LinePiece } from "../../../pipelines/5-archive/line-piece.ts";
import { LineTemplates } from "../../../pipelines/5-archive/line-templates.ts";
import { ProbeLines } from "../../../pipelines/5-archive/probe-lines.ts";
import { ProbeRecords } from "../../../pipelines/5-archive/probe-records.ts";

/** A group of a bundle as the engine writes it (sql/65_archive_bundles). */
export interface Told {
  cap: string;
  /** With a form it is what the form says. */
  shape: string;
  form: number | null;
  sha: string | null;
  /** Each without its end. */
  records: readonly string[];
}

export function bundleOf(groups: readonly Told[]): Buffer {
  const told = groups.map(({ cap, shape, form, sha, records }) => {
    const head = [cap, form ?? "", form === null ? shape : "", sha ?? "", records.length, ""];
    return head.join("\x1d") + records.map((record) => `${record}\x1e`).join("");
  });
  return Buffer.from(told.join(""));
}

/** Templates of lines of one day, and what the forms of these groups say. */
export const templatesOf = (groups: readonly Told[], day: string, isTool = false): LineTemplates =>
  new LineTemplates(isTool, new LineDay(day), new Map(groups.map(({ form, shape }) => [form ?? -1, shape])));

/** Lines of a bundle's records in the order that they stand in. */
export function linesOf(groups: readonly Told[], templates: LineTemplates): LinePiece {
  const count = groups.reduce((sum, { records }) => sum + records.length, 0);
  const records = new ProbeRecords(bundleOf(groups), count);
  const [lines, piece] = [new ProbeLines(templates), new LinePiece()];
  for (let n = 0; n < count; n++) lines.write(records, n, piece);
  return piece;
}
