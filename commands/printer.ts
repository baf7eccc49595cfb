import { systemClock } from "../infra/clock.ts";
import { toPrintable, toPrintableJson } from "../infra/printable.ts";
import { redact } from "../infra/secrets.ts";

/**
 * The only file that writes to stdout and stderr for a command (infra/telemetry writes a role's logs). Much of the
 * printed text comes from sellers, catalogues and copies of a record. So every line is cleaned of control characters
 * here, and only this file ends a line.
 */

let wasStdoutUsed = false;

/**
 * Reports whether something was printed on stdout. If so, a later failure is not also printed there as JSON, since a
 * script expects one JSON value.
 */
export const hasPrintedToStdout = (): boolean => wasStdoutUsed;

function writeOut(text: string): void {
  wasStdoutUsed = true;
  process.stdout.write(redact(text));
}

type Lines = string | readonly string[];

const textOf = (lines: Lines): string =>
  [lines]
    .flat()
    .map((line) => `${toPrintable(line)}\n`)
    .join("");

/** Prints one or several lines for people on stdout. A line break inside a line becomes a space. */
export const printLines = (lines: Lines): void => writeOut(textOf(lines));

/** Prints a value for a script, as one line of JSON on stdout. */
export const printJson = (value: unknown): void => printJsonText(JSON.stringify(value));

/**
 * Prints JSON text that was received, unchanged, so that a script can verify its signature. The caller must have
 * parsed it.
 */
export const printJsonText = (json: string): void => writeOut(`${toPrintableJson(json)}\n`);

/** Prints the result of a command: `facts` as JSON with `--json`, else `lines` for people. */
export const print = ({ json }: { json?: boolean }, facts: unknown, lines: readonly string[]): void =>
  json ? printJson(facts) : printLines(lines);

/** Prints one or several lines for people on stderr. */
export const say = (lines: Lines): void => void process.stderr.write(redact(textOf(lines)));

/**
 * Prints an error message on stderr. Further lines of the message are indented, since received text in it could
 * otherwise look like a line of this program.
 */
export const sayError = (text: string): void =>
  say(text.split("\n").map((line, i) => (i === 0 ? line : line.replace(/^(?! {2})/, "  "))));

/**
 * Terminal codes that erase the current line. `\r` moves to its beginning, `CSI K` erases to its end (ECMA-48 section
 * 8.3.41).
 */
const ERASE_LINE = "\r\x1b[K";

/** Shortest time between two updates of a progress line on a terminal, ms. */
const REDRAW_MS = 50;
/** Shortest time between two lines of progress where there is no terminal, ms. */
const LINE_INTERVAL_MS = 10_000;

/** Progress on stderr: one line that is rewritten on a terminal; elsewhere a new line from time to time. */
export class ProgressLine {
  readonly #tty = process.stderr.isTTY === true;
  #isLineOpen = false;
  #shownAtMs = systemClock.monotonic();

  get isOnTerminal(): boolean {
    return this.#tty;
  }

  /**
   * Shows a text, unless the last one was shown a moment ago: 50 ms on a terminal, 10 s elsewhere.
   * @param isLast true for the last text, which is always shown
   */
  show(text: string, isLast = false): void {
    const now = systemClock.monotonic();
    if (now - this.#shownAtMs <= (this.#tty ? REDRAW_MS : LINE_INTERVAL_MS) && !isLast) return;
    this.#shownAtMs = now;
    if (this.#tty) {
      const columns = process.stderr.columns ?? 120;
      process.stderr.write(ERASE_LINE + redact(toPrintable(text)).slice(0, columns - 1));
      this.#isLineOpen = true;
    } else say(text);
  }

  /** Ends the progress line. @param keepsText true: its text stays on the terminal; false: it is erased */
  end(keepsText = false): void {
    if (this.#isLineOpen) process.stderr.write(keepsText ? "\n" : ERASE_LINE);
    this.#isLineOpen = false;
  }
}

/** Reports whether a person at a terminal can be asked. */
export const canAsk = (): boolean => process.stdin.isTTY === true && process.stderr.isTTY === true;

/**
 * Opens a dialogue with the person at the terminal, on stderr. `ask` returns the typed line, trimmed, or null at the
 * end of the input. The caller must close the dialogue, or the process waits for further lines.
 */
export async function openDialogue(): Promise<{ ask(text: string): Promise<string | null>; close(): void }> {
  const { createInterface } = await import("node:readline/promises");
  const reader = createInterface({ input: process.stdin, output: process.stderr });
  // The iterator buffers lines that were typed before their question was printed.
  const inputLines = reader[Symbol.asyncIterator]();
  return {
    ask: async (text) => {
      reader.setPrompt(redact(toPrintable(text)));
      reader.prompt();
      const { value, done } = await inputLines.next();
      return done === true ? null : value.trim();
    },
    close: () => reader.close(),
  };
}
