#!/usr/bin/env node
// Imported first, so that a signal is handled that arrives while the other files are loaded.
import "./commands/early-stop.ts";
import { realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { Command } from "commander";
import { EXIT, EXIT_HELP, type ExitName, exitCodeOf, exitNameOf } from "./commands/exit.ts";
import { hasPrintedToStdout, printJson, sayError } from "./commands/printer.ts";
import { addCommands } from "./commands/program.ts";
import { loadConfig } from "./infra/config.ts";
import packageJson from "./package.json" with { type: "json" };

/**
 * The command line. The rows of commands/table.ts are its commands; each command loads only the files that it needs.
 */
export const program = new Command("touchstone")
  .description("A public, provable record of what happens when machines pay HTTP endpoints that answer 402.")
  .option(
    "-c, --config <file>",
    "settings as JSON (default: touchstone.json if it is there; TOUCHSTONE_* variables win)",
  )
  .addHelpText("after", `\n${EXIT_HELP}`)
  .version(packageJson.version, "-V, --version", "print the version")
  .exitOverride((error) => {
    if (error.exitCode === 0) process.exit(EXIT.ok);
    printFaultIfJson("usage", error.message.replace(/^error: /, ""));
    process.exit(EXIT.usage);
  });

/**
 * Prints a failure as one line of JSON on stdout. Prints nothing without --json, or when the command has printed
 * something there already.
 */
function printFaultIfJson(error: ExitName, says: string): void {
  if (!hasPrintedToStdout() && process.argv.includes("--json")) printJson({ error, code: EXIT[error], says });
}

addCommands(program, {
  settings: (overrides = {}) => loadConfig(program.opts<{ config?: string }>().config, undefined, overrides),
  worldScript: fileURLToPath(new URL("./fixtures/market/main.mjs", import.meta.url)),
});

function fail(error: unknown): never {
  const says = error instanceof Error ? error.message : String(error);
  printFaultIfJson(exitNameOf(error), says);
  sayError(`touchstone: ${says}`);
  // For errors with a class of this program the message is enough. Errors of these built-in classes are bugs, whose
  // stack shows where they happened.
  // A full disk is no bug, though Node and SQLite report it in them.
  const isBug =
    exitNameOf(error) === "failed" &&
    error instanceof Error &&
    ["Error", "TypeError", "RangeError", "ReferenceError"].includes(error.name);
  if (isBug) sayError(error.stack ?? "");
  process.exit(exitCodeOf(error));
}

// A test may import this file for the definitions of the commands. Then no command runs.
const entryFile = process.argv[1];
if (entryFile !== undefined && /\btouchstone\.(?:ts|mjs)$/.test(realpathSync(entryFile))) {
  // By default V8 collects garbage once the heap is twice as large as the memory in use, or later: with 150 MB in use
  // the process took up to 330 MB, also because buffers outside the heap are freed by the same collection. With this
  // flag V8 collects at 1.4 times the memory in use.
  setFlagsFromString("--heap-growing-percent=40");
  program.parseAsync().catch(fail);
}
