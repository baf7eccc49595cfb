#!/usr/bin/env node
// First of all imports: a signal that comes while the others are loaded is not lost.
import "./commands/early-stop.ts";
import { realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { setFlagsFromString } from "node:v8";
import { Command, InvalidArgumentError, Option } from "commander";
import { EXIT, EXIT_HELP, exitCodeOf, exitNameOf } from "./commands/exit.ts";
import { explain } from "./commands/help.ts";
import { hasAnswered, printJson, sayError } from "./commands/printer.ts";
import { loadConfig, workflowOf } from "./infra/config.ts";
import packaged from "./package.json" with { type: "json" };

/** The front door: one command, the roles as sub-commands. Each loads only what it needs. */
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

/** @param given settings of the command line, as the variables that they stand for */
const settings = (given: Record<string, string> = {}) =>
  loadConfig(program.opts<{ config?: string }>().config, undefined, given);

function wholeNumber(text: string): number {
  const n = Number(text);
  if (!Number.isInteger(n) || n < 0) throw new InvalidArgumentError("expected a whole number");
  return n;
}

function utcDay(text: string): string {
  const at = Date.parse(`${text}T00:00:00.000Z`);
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text) || Number.isNaN(at) || new Date(at).toISOString().slice(0, 10) !== text) {
    throw new InvalidArgumentError("expected a date such as 2026-11-21");
  }
  return text;
}

const repeated = (one: string, before: string[]): string[] => [...before, one];

const json = new Option("--json", "print JSON for scripts");

program
  .command("start")
  .description("all roles in one process on embedded parts: SQLite log, DuckDB lake, directory stores")
  .option("--market", "boot the demo: a local chain and its sellers, the past simulated to now")
  .option("--once", "stop when the simulated past is published")
  .option("--days <n>", "length of the simulated past", wholeNumber)
  .option(
    "--pace <n>",
    "with --market: live through the last hours of the past n times as fast as real time",
    wholeNumber,
  )
  .option("--pace-hours <n>", "how many hours are lived through at that pace (default: 240)", wholeNumber)
  .option("--log <address>", "kafka://host:port[,host:port]/prefix instead of the embedded log")
  .option("--private <address>", "s3://bucket[/folder] instead of a folder, for what is never published")
  .option("--public <address>", "s3://bucket[/folder] instead of a folder, for what is published")
  .addOption(json)
  .addOption(
    new Option("--acks <fd>", "write the event id of every acknowledged append to this descriptor").argParser(
      wholeNumber,
    ),
  )
  .action(async (options) => {
    const worldScript = fileURLToPath(new URL("./fixtures/market/main.mjs", import.meta.url));
    const { start } = await import("./commands/start.ts");
    const given = {
      ...(options.log ? { TOUCHSTONE_LOG: options.log } : {}),
      ...(options.private ? { TOUCHSTONE_STORES_PRIVATE: options.private } : {}),
      ...(options.public ? { TOUCHSTONE_STORES_PUBLIC: options.public } : {}),
    };
    await start(settings(given), { ...options, worldScript });
  });

program
  .command("init")
  .description("write a settings file: five questions, asked on a terminal or answered by options; docs/operate.md")
  .option("--name <address>", "address under which others reach the service, as record.example")
  .option("--network <id>", "network that is paid on, as eip155:8453")
  .option("--rpc <url>", "JSON-RPC address of a node of it; may be repeated", repeated, [])
  .option("--control <url>", "address on another machine that is always up; may be repeated", repeated, [])
  .option("--catalogue <name>", "where listings are read: an address or a known name; may be repeated", repeated, [])
  .option("--sell", "sell calls and work on that network")
  .option("--no-sell", "sell nothing")
  .option("--force", "replace a settings file that is there")
  .addOption(json)
  .action(async (options) =>
    (await import("./commands/init.ts")).initCommand(program.opts<{ config?: string }>().config, options),
  );

program
  .command("keygen")
  .description("make the four signing keys and the secrets, in files that only you can read")
  .addOption(json)
  .action(async (options) => (await import("./commands/keys.ts")).makeKeysCommand(settings(), options));

const keys = program.command("keys").description("the signing keys: docs/mirror.md");
keys
  .command("list")
  .description("every key there ever was, with its validity")
  .addOption(json)
  .action(async (options) => (await import("./commands/keys.ts")).listKeys(settings(), options));
keys
  .command("rotate <purpose>")
  .description("a new key for cards, answers, log or witness; the old one retires after the overlap")
  .option("--overlap-days <n>", "days in which both keys are valid (cards, answers: 1; log, witness: 30)", wholeNumber)
  .addOption(json)
  .action(async (purpose, options) => (await import("./commands/keys.ts")).rotateKeys(settings(), purpose, options));

program
  .command("observe")
  .description("probe, pay and check by the plan of the day")
  .option("--once", "catch up with what is due by now, then stop")
  .option("--listings <file|url>", "with --once: take these listings in and probe each once, for free, without a plan")
  .option("--rejected <file>", "with --listings: where rejected rows go, as NDJSON")
  .addOption(json)
  .action(async ({ listings, ...options }) => {
    if (listings === undefined) return (await import("./commands/observe.ts")).observe(settings(), options);
    if (!options.once) throw new InvalidArgumentError("--listings probes once: say --once too");
    return (await import("./commands/listings.ts")).probeListings(settings(), listings, options);
  });

program
  .command("listing <url>")
  .description("look at an endpoint of yours once, for free, and say what is wrong with it: docs/listings.md")
  .addOption(new Option("--method <method>", "how it is called, where no document says").choices(["GET", "POST"]))
  .addOption(
    new Option("--annotations <form>", "say it as a workflow reads it (default: github in GitHub Actions)").choices([
      "github",
      "none",
    ]),
  )
  .option("--file <path>", "file of your repository at which annotations are shown")
  .addOption(json)
  .addHelpText(
    "after",
    `\nExits with ${EXIT.ok} where nothing is wrong, ${EXIT.flawed} where it is paid all the same, ${EXIT.unpayable} where it is not, ${EXIT.unreachable} where no whole answer comes.`,
  )
  .action(async (url, options) =>
    (await import("./commands/listing.ts")).listingCommand(settings(), url, options, workflowOf()),
  );

const listings = program.command("listings").description("what is listed: docs/listings.md");
listings
  .command("add <file|url>")
  .description(
    "take in a catalogue, a seller's document or a file: JSON, NDJSON, CSV, OpenAPI (JSON, YAML), agent cards",
  )
  .option("--rejected <file>", "where rejected rows go, as NDJSON (default: a new file in the data folder)")
  .addOption(json)
  .action(async (source, options) => (await import("./commands/listings.ts")).addListings(settings(), source, options));

listings
  .command("list")
  .description("every endpoint that a source lists now")
  .option("--host <host>", "of this host only")
  .option("--all", "also those that no source lists any more")
  .addOption(json)
  .action(async (options) => (await import("./commands/listed.ts")).listListings(settings(), options));
listings
  .command("show <endpoint>")
  .description("what every source says about an endpoint (cap_ id or url), and since when")
  .addOption(json)
  .action(async (endpoint, options) =>
    (await import("./commands/listed.ts")).showListing(settings(), endpoint, options),
  );
listings
  .command("remove <endpoint>")
  .description("take an endpoint (cap_ id or url) off the list, with the reason; its record stays")
  .requiredOption("--says <text>", "why, in words for everybody")
  .addOption(json)
  .action(async (endpoint, options) =>
    (await import("./commands/listed.ts")).removeListing(settings(), endpoint, options),
  );

program
  .command("register")
  .description("the register of companies: docs/companies-lookup.md")
  .command("import <file>")
  .description(
    "make it from GLEIF's golden copy of level 1 as CSV (in a ZIP, .gz, .zst or plain); it replaces the old one",
  )
  .option("--domains <file>", "CSV of lei,domain: the golden copy holds no domains")
  .addOption(json)
  .action(async (file, options) => (await import("./commands/register.ts")).importCommand(settings(), file, options));

program
  .command("ingest")
  .description("move the log into Parquet segments and the lake")
  .option("--once", "one pass, then stop")
  .addOption(json)
  .action(async (options) => (await import("./commands/ingest.ts")).ingest(settings(), options));

program
  .command("grade")
  .description("grade what is dirty or due and write a run")
  .option("--once", "one run, then stop")
  .addOption(json)
  .action(async (options) => (await import("./commands/roles.ts")).grade(settings(), options));

program
  .command("own")
  .description("ingest and grade the partitions that this process is given: all, or its share of a cluster's group")
  .option("--once", "one turn, then stop")
  .addOption(json)
  .action(async (options) => (await import("./commands/own.ts")).own(settings(), options));

program
  .command("publish")
  .description(
    "take runs into the tree: leaves, tiles, checkpoint, index; of several, one publishes and the others wait",
  )
  .option("--once", "take what is there, then stop")
  .addOption(json)
  .action(async (options) => (await import("./commands/publish.ts")).publish(settings(), options));

const archiving = program
  .command("archive")
  .description("move days older than 110 days into signed files and out of the lake; docs/archive.md")
  .option("--once", "file what is due, then stop")
  .addOption(json)
  .action(async (options) => (await import("./commands/archive.ts")).archive(settings(), options));
archiving
  .command("supersede <id>")
  .description("replace a wrong file (arc_ id) by one that is made again from the record")
  .requiredOption("--reason <text>", "what was wrong with it, in words for everybody")
  .addOption(json)
  .action(async (id, _, command) =>
    (await import("./commands/archive.ts")).archiveSupersede(settings(), id, command.optsWithGlobals()),
  );

program
  .command("budget")
  .description("who is paid today and who is not, what was spent, what the next letters cost; docs/schedule.md")
  .option("--day <date>", "UTC date, YYYY-MM-DD (default: today)", utcDay)
  .option("--all", "every endpoint, however long the table gets")
  .addOption(json)
  .action(async (options) => (await import("./commands/budget.ts")).budget(settings(), options));

program
  .command("ledger")
  .description(
    "the books of what was bought and sold: every movement of money, compared with the chain; who is owed what",
  )
  .option("--rpc <url>", "node of the chain (default: chain.rpc_url of the settings, or the demo's own)")
  .addOption(json)
  .action(async (options) => (await import("./commands/ledger.ts")).ledgerCommand(settings(), options));

const wallets = program
  .command("wallets")
  .description("wallets that calls are paid from; docs/networks-and-wallets.md");
wallets
  .command("new")
  .description("make the wallets that are missing, and print the addresses to fund; a second run makes nothing")
  .option("--blind <n>", "how many blind ones there shall be that were never used", wholeNumber, 20)
  .addOption(json)
  .action(async (options) => (await import("./commands/wallets.ts")).newWallets(settings(), options));
wallets
  .command("list")
  .description("every wallet, what it holds on each network, on which day it paid, and what is low")
  .addOption(json)
  .action(async (options) => (await import("./commands/wallets.ts")).listWallets(settings(), options));
wallets
  .command("sweep")
  .description("move what blind wallets of past days have left to one address, by signed authorizations")
  .requiredOption("--to <address>", "where it goes")
  .option("--network <id>", "only there, as eip155:8453")
  .option("--till", "move what buyers have paid instead")
  .option("--dry-run", "say what would be moved, and move nothing")
  .addOption(json)
  .action(async (options) => (await import("./commands/wallets.ts")).sweepWallets(settings(), options));

program
  .command("plan")
  .description("what a day's plan was")
  .command("show <day>")
  .description("compare the plan of a UTC day with what was committed before it and opened after it; docs/schedule.md")
  .addOption(json)
  .action(async (day, options) => (await import("./commands/plan.ts")).showPlan(settings(), utcDay(day), options));

program
  .command("serve")
  .description("answer from the public store: check, trust, feed, pages; docs/deploy.md")
  .option("--from <source>", "a replica that is a mirror: the public record at this address, folder or s3://bucket")
  .option("--mirror <dir>", "with --from: folder of the replica's own copy (default: replica in the data folder)")
  .option("--processes <n>", "with --from: processes that share the port", wholeNumber, 1)
  .addOption(json)
  .action(async ({ from, mirror, processes, ...options }) => {
    if (from === undefined && (mirror !== undefined || processes !== 1)) {
      throw new InvalidArgumentError("--mirror and --processes need --from: only a replica has them");
    }
    if (from === undefined) return (await import("./commands/serve.ts")).serveRole(settings(), options);
    const { inProcesses } = await import("./commands/processes.ts");
    const { port } = settings().status;
    await inProcesses(
      processes,
      async () => (await import("./commands/replica.ts")).serveReplica(settings(), { from, mirror, ...options }),
      // What each of them counted is its own: each shows it at a port of its own.
      (k): Record<string, string> => (port ? { TOUCHSTONE_STATUS_PORT: String(port + k) } : {}),
    );
  });

program
  .command("buckets")
  .description("make the buckets of the settings, with policies and lifecycle, as an operator; docs/deploy.md")
  .requiredOption("--publisher <id>", "who writes the public bucket: an access key id, or an ARN with Amazon")
  .requiredOption("--owner <id>", "who writes live tables and evidence there, and nothing else")
  .requiredOption("--pipeline <id>", "who reads and writes the private one")
  .option("--seller <id>", "who keeps answers of bought calls in stores.orders: the replicas that sell")
  .addOption(json)
  .action(async (options) => (await import("./commands/buckets.ts")).bucketsCommand(settings(), options));

program
  .command("redrive")
  .description("read rejected bytes again with today's readers")
  .addOption(json)
  .action(async (options) => (await import("./commands/ingest.ts")).redrive(settings(), options));

program
  .command("rebuild")
  .description("throw the lake away and build it again from the chain of commits")
  .addOption(json)
  .action(async (options) => (await import("./commands/ingest.ts")).rebuild(settings(), options));

program
  .command("migrate")
  .description("bring what an older version left to the forms of this one; may be killed and run again")
  .option("--table", "every private form, its number, and how an older one is brought forward")
  .addOption(json)
  .action(async (options) => (await import("./commands/migrate.ts")).migrate(settings(), options));

const mirroring = program
  .command("mirror <source> <dir>")
  .description("copy a public store (URL, s3:// or folder) into <dir>/public, proving every byte; docs/mirror.md")
  .option("--log-key <vkey>", "the log's verifier key; without it the source's is pinned on first use")
  .option("--witness-key <vkey>", "the witness's verifier key")
  .option("--max-age <seconds>", "refuse a checkpoint cosigned longer ago (default: a day; 0 accepts any)", wholeNumber)
  .option("--width <n>", "objects fetched at once", wholeNumber, 8)
  .option("--follow <seconds>", "go on until stopped, with this pause between two runs", wholeNumber)
  .option("--verify", "prove everything again; fetch what is damaged or gone")
  .option("--no-card-signatures", "trust the log's signature for its cards; every other proof stays")
  .addOption(json)
  .action(async (source, dir, options) =>
    (await import("./commands/mirror.ts")).mirror(source, dir, { ...options, settings }),
  );

mirroring
  .command("serve <dir>")
  .description("serve a mirror's public folder over HTTP")
  .option("--host <address>", "address to listen on", "127.0.0.1")
  .option("--port <n>", "port to listen on", wholeNumber, 8403)
  .action(async (dir, options) => (await import("./commands/mirror-serve.ts")).mirrorServe(dir, options));

program
  .command("audit <source>")
  .description("prove a whole public record (URL or folder) from its first leaf, every card recomputed; docs/audit.md")
  .option("--log-key <vkey>", "the log's verifier key; without it the one that the source shows is believed")
  .option("--witness-key <vkey>", "the witness's verifier key")
  .option("--also <source>", "another copy that has to show the same history; may be repeated", repeated, [])
  .option("--since <file>", "a checkpoint kept from an earlier time: a smaller or another history is refused")
  .option("--max-age <seconds>", "refuse a checkpoint cosigned longer ago", wholeNumber)
  .option("--endpoint <cap|url>", "light: the cards of one endpoint only")
  .option("--open <file>", "prove that the log commits to these bytes of a call that was not published; with --salt")
  .option("--salt <hex>", "the salt that came with them: 32 bytes, 64 hex digits")
  .addOption(
    new Option("--packing <mode>", "validate packed bytes that no leaf names too, or their contents alone")
      .choices(["strict", "content"])
      .default("strict"),
  )
  .addOption(json)
  .action(async (source, options) =>
    (await import("./commands/audit.ts")).auditCommand(source, { ...options, settings }),
  );

program
  .command("export <source> <file>")
  .description("write a record (a mirror's folder, or any public one) as one Parquet file: docs/analysts.md")
  .addOption(
    new Option("--what <table>", "endpoints as the newest index has them, every card ever published, or every sample")
      .choices(["index", "grades", "samples"])
      .default("index"),
  )
  .option("--log-key <vkey>", "the log's verifier key; without it a mirror's own, else the one that the source shows")
  .option("--witness-key <vkey>", "the witness's verifier key")
  .addOption(json)
  .action(async (source, file, options) =>
    (await import("./commands/export.ts")).exportCommand(source, file, { ...options, settings }),
  );

program
  .command("correct <endpoint>")
  .description("withdraw records of an endpoint (cap_ id or url) that a fault of ours made wrong; docs/corrections.md")
  .option("--record <id...>", "records to withdraw: handshakes and paid.intents")
  .option("--all-before-now", "withdraw every record observed before now")
  .option("--method <method>", "of a url that is in the record with several methods")
  .option("--grade-at <time>", "computed_at of the grade that was wrong")
  .requiredOption("--fault <name>", "which of our own faults it was")
  .requiredOption("--says <text>", "what was got wrong, in words for everybody")
  .addOption(json)
  .action(async (endpoint, options) =>
    (await import("./commands/corrections.ts")).correct(settings(), endpoint, options),
  );

program
  .command("reinstate <correction>")
  .description("take a correction back: its records count again from the next run")
  .requiredOption("--says <text>", "why it is taken back")
  .addOption(json)
  .action(async (id, options) => (await import("./commands/corrections.ts")).reinstate(settings(), id, options));

program
  .command("dispute <file>")
  .description("record a seller's dispute signed by its payTo, from a JSON file; docs/corrections.md")
  .addOption(json)
  .action(async (file, options) => (await import("./commands/dispute.ts")).dispute(settings(), file, options));

program
  .command("recompute <endpoint>")
  .description("make published cards again from public files and compare every byte; docs/evidence.md")
  .requiredOption("--from <source>", "folder or address of a public store")
  .option("--log-key <vkey>", "the log's verifier key; without it the one that the source shows is believed")
  .option("--witness-key <vkey>", "the witness's verifier key")
  .addOption(json)
  .addHelpText("after", "\n<endpoint> is a capability id (cap_…), a url, or all.")
  .action(async (endpoint, options) => (await import("./commands/recompute.ts")).recomputeCommand(endpoint, options));

program
  .command("exposure <file>")
  .description("what a service's record holds about dependencies (JSON, or one url a line), by payee; docs/exposure.md")
  .option("--base <url>", "address of the service (default: base_url of the settings)")
  .option("--keys <file>", "its keys document, saved before; without it the one that it shows is believed")
  .addOption(json)
  .action(async (file, options) => (await import("./commands/exposure.ts")).exposureCommand(settings(), file, options));

program
  .command("doctor")
  .description("look at everything that a role stands on, and say what to do: docs/operate.md")
  .addOption(
    new Option("--role <role>", "what runs on this machine")
      .choices(["start", "observe", "own", "publish", "serve"])
      .default("start"),
  )
  .addOption(json)
  .action(async (options) => (await import("./commands/doctor.ts")).doctorCommand(settings, options));

const gap = program.command("gap").description("holes in the record");
gap
  .command("accept")
  .description(
    "write a hole into the commit chain, where everybody sees it: the log lost records before they were read",
  )
  .addOption(json)
  .action(async (options) => (await import("./commands/ingest.ts")).acceptGap(settings(), options));

explain(program);

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
