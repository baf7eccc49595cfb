#!/usr/bin/env node
// First of all imports: a signal that comes while the others are loaded is not lost.
import "./commands/early-stop.ts";
import { realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { Command } from "commander";
import { EXIT, EXIT_HELP, exitCodeOf, exitNameOf } from "./commands/exit.ts";
import { hasAnswered, printJson, sayError } from "./commands/printer.ts";
import { addCommands } from "./commands/program.ts";
import { COMMANDS } from "./commands/table.ts";
import { loadConfig } from "./infra/config.ts";
import packaged from "./package.json" with { type: "json" };

/** The front door: one command, its words as sub-commands. Each loads only what it needs. */
export const program = new Command("touchstone")
  .description("A public, provable record of what happens when machines pay HTTP endpoints that answer 402.")
  .option(
    "-c, --config <file>",
    "settings as JSON (default: touchstone.json if it is there; TOUCHSTONE_* variables win)",
  )
  .addHelpText("after", `\n${EXIT_HELP}`)
  .version(packaged.version, "-V, --version", "print the version")
  .exitOverride((error) => {
    if (error.exitCode === 0) process.exit(EXIT.ok);
    sayFault(EXIT.usage, error.message.replace(/^error: /, ""));
    process.exit(EXIT.usage);
  });

/** With --json a fault is JSON too, on stdout, where a machine reads; words for people go to stderr either way. */
function sayFault(code: number, says: string): void {
  if (hasAnswered() || !process.argv.includes("--json")) return;
  printJson({ error: exitNameOf(code), code, says });
}

addCommands(program, COMMANDS, {
  settings: (given = {}) => loadConfig(program.opts<{ config?: string }>().config, undefined, given),
  worldScript: fileURLToPath(new URL("./fixtures/market/main.mjs", import.meta.url)),
});

function fail(error: unknown): never {
  const code = exitCodeOf(error);
  const says = error instanceof Error ? error.message : String(error);
  sayFault(code, says);
  sayError(`touchstone: ${says}`);
  // An error that has a name of ours says it all; one that has not is a fault of ours, and its way is of use.
  const unnamed = error instanceof Error && ["Error", "TypeError", "RangeError", "ReferenceError"].includes(error.name);
  if (unnamed) sayError(error.stack ?? "");
  process.exit(code);
}

// Whoever imports this file wants to look at the words, not to run them.
const started = process.argv[1];
if (started !== undefined && /\btouchstone\.(?:ts|mjs)$/.test(realpathSync(started))) {
  // V8 lets garbage grow to as much as what lives, or more, before it collects: where 150 MB lived its heap took up to 330,
  // and buffers outside of it wait for the same collection. Here it collects at 1.4 times what lives.
  setFlagsFromString("--heap-growing-percent=40");
  program.parseAsync().catch(fail);
}
