import { printable, printableJson } from "../infra/printable.ts";
import { redact } from "../infra/secrets.ts";

/**
 * The only place that writes to stdout and stderr for a command (logs of a role are infra/telemetry's). Sellers, catalogues
 * and copies of a record choose much of what is printed, so every line is cleaned here: a line ends where this file ends it.
 */

let answered = false;

/** Was something printed on stdout? An answer says itself what is wrong, and a second one would garble it. */
export const hasAnswered = (): boolean => answered;

function out(text: string): void {
  answered = true;
  process.stdout.write(redact(text));
}

type Lines = string | readonly string[];

const textOf = (lines: Lines): string =>
  [lines]
    .flat()
    .map((line) => `${printable(line)}\n`)
    .join("");

/** A line for people, or several, on stdout. A line break inside of one is a stranger's, and becomes a blank. */
export const printLines = (lines: Lines): void => out(textOf(lines));

/** A value for a machine, as one line of JSON on stdout. @param indent spaces, for a value that people read too */
export const printJson = (value: unknown, indent?: number): void => printJsonText(JSON.stringify(value, null, indent));

/** JSON that somebody else wrote, and that was read as JSON: its own text, so that it can be compared with what was signed. */
export const printJsonText = (json: string): void => out(`${printableJson(json)}\n`);

/** The same as JSON for a machine, or as lines for people. */
export const print = ({ json }: { json?: boolean | undefined }, told: unknown, lines: readonly string[]): void =>
  json ? printJson(told) : printLines(lines);

/** A line for people beside the answer, or several, on stderr. */
export const say = (lines: Lines): void => void process.stderr.write(redact(textOf(lines)));

/** What an error says: its further lines are indented, so that none of them looks like a line of ours. */
export const sayError = (text: string): void =>
  say(text.split("\n").map((line, i) => (i === 0 ? line : line.replace(/^(?! {2})/, "  "))));

/** `\r`: to the line's beginning; `CSI K`: erase to its end (ECMA-48 section 8.3.41). */
const ERASE = "\r\x1b[K";

/** One line on stderr that is written over on a terminal; where there is none, nothing. */
export class ProgressLine {
  readonly #tty = process.stderr.isTTY === true;
  #open = false;

  get isShown(): boolean {
    return this.#tty;
  }

  show(text: string): void {
    if (!this.#tty) return;
    const columns = process.stderr.columns ?? 120;
    process.stderr.write(ERASE + redact(printable(text)).slice(0, columns - 1));
    this.#open = true;
  }

  /** Take the line away, or leave it there and go on below it. */
  end(stays = false): void {
    if (this.#open) process.stderr.write(stays ? "\n" : ERASE);
    this.#open = false;
  }
}

/** Is somebody there who can be asked? */
export const isAsked = (): boolean => process.stdin.isTTY === true && process.stderr.isTTY === true;

/**
 * Questions to who sits at the terminal, on stderr. The answer to one is its line, trimmed; null: the terminal said no more.
 * Close it, or the process waits for further lines.
 */
export async function questions(): Promise<{ ask(text: string): Promise<string | null>; close(): void }> {
  const { createInterface } = await import("node:readline/promises");
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  // Lines that were typed ahead, or pasted together, wait for their question.
  const typed = lines[Symbol.asyncIterator]();
  return {
    ask: async (text) => {
      lines.setPrompt(redact(printable(text)));
      lines.prompt();
      const { value, done } = await typed.next();
      return done === true ? null : value.trim();
    },
    close: () => lines.close(),
  };
}
