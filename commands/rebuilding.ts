import { systemClock } from "../infra/clock.ts";
import type { Ingest } from "../pipelines/2-ingest/ingest.ts";
import { ProgressLine, say } from "./printer.ts";

/** Where stderr is no terminal a line of progress is printed this often, ms. */
const EVERY_MS = 10_000;

/** A lake made anew, with its progress on stderr. @returns its rows */
export async function rebuilt(ingest: Pick<Ingest, "rebuild">, json = false): Promise<number> {
  const line = new ProgressLine();
  let told = systemClock.monotonic();
  const { rows } = await ingest.rebuild((taken, of) => {
    if (json) return;
    const text = `the lake is made anew from the segments: ${taken} of ${of}`;
    line.show(text);
    if (line.isShown || (taken < of && systemClock.monotonic() - told < EVERY_MS)) return;
    told = systemClock.monotonic();
    say(text);
  });
  line.end(true);
  return rows;
}
