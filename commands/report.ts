import { systemClock } from "../infra/clock.ts";
import { untilStopped } from "./exit.ts";

export interface RoleOptions {
  once?: boolean;
  json?: boolean;
}

/** Print the same as JSON for a machine, or as lines for people. */
export const print = ({ json }: { json?: boolean }, told: unknown, lines: readonly string[]): void =>
  void process.stdout.write(json ? `${JSON.stringify(told)}\n` : `${lines.join("\n")}\n`);

/** Columns as wide as their widest cell, apart by two blanks. */
export function columns(rows: readonly (readonly string[])[]): string[] {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  return rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join("  ")
      .trimEnd(),
  );
}

/** Print what was done: JSON for a machine, else `name: value` and where to look next. */
export function report(options: RoleOptions, done: Record<string, unknown>, next: string): void {
  const words = Object.entries(done).flatMap(([name, value]) => (isNothing(value) ? [] : [`${name} ${wordOf(value)}`]));
  print(options, done, [words.join(", ") || "nothing was due", `next: ${next}`]);
}

/** Nothing was done, found or left: no line of a report for people. */
const isNothing = (value: unknown): boolean =>
  value === null ||
  value === 0 ||
  value === undefined ||
  (typeof value === "object" && Object.keys(value).length === 0);

const wordOf = (value: unknown): string => {
  if (Array.isArray(value)) return value.map(wordOf).join(" ");
  if (typeof value !== "object" || value === null) return String(value);
  return Object.entries(value)
    .map(([name, of]) => `${name}=${wordOf(of)}`)
    .join(" ");
};

/** Run the work once, or again every `seconds` until stopped. */
export async function repeat(options: RoleOptions, seconds: number, work: () => Promise<void>): Promise<void> {
  let over = false;
  const stop = untilStopped().then(() => {
    over = true;
  });
  do {
    await work();
    if (options.once) return;
    const pause = new AbortController();
    await Promise.race([stop, systemClock.sleep(seconds * 1000, pause.signal)]);
    pause.abort();
  } while (!over);
}
