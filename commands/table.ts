import type { FailureCode } from "../infra/errors.ts";
import type { CommandRow, OptionsOfRow } from "./row.ts";

/** Keys that a record is verified with. */
const TRUSTED = {
  "--log-key <vkey>": "the log's verifier key; without it the key that the source shows is believed",
  "--witness-key <vkey>": "the witness's verifier key",
  "--witness-policy <file>": "believe only checkpoints that this policy's witnesses cosigned (C2SP tlog-policy)",
} as const;

/** Causes that opening the log, the stores and the keys has; the lake has one owner at a time. */
const PARTS = ["keys", "storage", "record", "busy"] as const satisfies FailureCode[];
/** {@link PARTS}, where a data folder has to be there. */
const DATA = [...PARTS, "unreadable"] as const;
/** Causes of copies of the public record. */
const COPY = ["unreadable", "tampered", "rollback", "fork", "stale", "unwitnessed"] as const satisfies FailureCode[];

/**
 * All commands by their words, in the order of `--help`. `--help`, docs/commands.md and the types of the options follow from
 * this table; `program.ts` names the function of each.
 */
export const COMMANDS = {
  start: {
    does: "run all roles in one process: log in SQLite, lake in DuckDB, stores in folders",
    options: {
      "--market": "run the demo: a local chain and its sellers, whose past is simulated up to now",
      "--once": "stop when the simulated past is published; without --market, after one turn of every role",
      "--days <n>": { means: "days of the simulated past", default: 32 },
      "--pace <n>": "with --market: live through the last hours of the past n times as fast as real time",
      "--pace-hours <n>": { means: "hours that are lived through at that pace", default: 240 },
      "--log <address>": {
        means: "kafka://host:port[,host:port]/prefix instead of the embedded log",
        setting: "TOUCHSTONE_LOG",
      },
      "--private <address>": {
        means: "s3://bucket[/folder] instead of a folder, for what is never published",
        setting: "TOUCHSTONE_STORES_PRIVATE",
      },
      "--public <address>": {
        means: "s3://bucket[/folder] instead of a folder, for what is published",
        setting: "TOUCHSTONE_STORES_PUBLIC",
      },
      "--acks <fd>": "write the event id of every acknowledged append to this file descriptor",
    },
    prints: "the address that it serves at; with --market the letter of every seller first",
    exits: [...PARTS, "port", "chain", "network"],
    page: "operate",
    examples: ["--market", ""],
    opens: "market",
  },
  init: {
    does: "write a settings file from five answers, given as options or asked for on a terminal",
    options: {
      "--name <address>": "address under which others reach the service, such as record.example",
      "--network <id>": "network that calls are paid on, such as eip155:8453",
      "--rpc <url>": { means: "JSON-RPC address of a node of that network; may be repeated", repeated: true },
      "--control <url>": { means: "address on another machine that is always up; may be repeated", repeated: true },
      "--catalogue <name>": {
        means: "where listings are read: an address or a known name; may be repeated",
        repeated: true,
      },
      "--sell": "sell calls and work on that network",
      "--no-sell": "sell nothing",
      "--force": "replace a settings file that is there",
    },
    prints: "the settings file, and the commands to run next",
    exits: ["already", "keys"],
    page: "operate",
    examples: [
      "",
      "--name record.example --network eip155:8453 --rpc https://node-a.example --rpc https://node-b.example --control https://one.example/ --control https://two.example/ --catalogue cdp-bazaar --no-sell",
    ],
    opens: "nothing",
  },
  keygen: {
    does: "make the four signing keys and the secrets, in files that only their owner can read",
    prints: "the folder of the keys, and the id of each",
    exits: ["keys", "storage", "record"],
    page: "operate",
  },
  "keys list": {
    does: "list every key that ever was in use, with its validity",
    prints: "a line for each key; of log and witness the verifier key as --log-key and --witness-key take it",
    exits: ["keys", "unreadable"],
    page: "mirror",
    examples: ["--json"],
  },
  "keys rotate": {
    args: "<purpose>",
    does: "make a new key for cards, answers, log or witness; the old one retires after the overlap",
    options: { "--overlap-days <n>": "days in which both keys are valid (cards, answers: 1; log, witness: 30)" },
    prints: "the old key and the new one",
    exits: ["keys"],
    page: "operate",
    examples: ["cards"],
  },
  observe: {
    does: "probe, pay and check by the plan of the day",
    options: {
      "--once": "make the calls that are due by now, then stop",
      "--listings <file|url>": "with --once: take in these listings and probe each once, for free, without a plan",
      "--rejected <file>": "with --listings: where rejected rows go, as NDJSON",
    },
    prints: "with --once what was called; with --listings a line for each endpoint that was probed",
    exits: [...PARTS, "port", "chain", "network", "unreadable", "unreachable"],
    page: "schedule",
    examples: ["--once", "--once --listings listings.csv"],
  },
  listing: {
    args: "<url>",
    does: "look at an endpoint of yours once, for free, and report what is wrong with it",
    options: {
      "--method <method>": { means: "HTTP method, where no document names one", choices: ["GET", "POST"] },
      "--annotations <form>": {
        means: "print the findings as annotations of a workflow (default: github in GitHub Actions)",
        choices: ["github", "none"],
      },
      "--file <path>": "file of your repository at which annotations are shown",
    },
    prints: "what the endpoint answered and offers, then every finding with what to change, the worst first",
    exits: ["flawed", "unpayable", "unreachable"],
    page: "listings",
    examples: ["https://seller.example/weather", "http://localhost:3000/weather --method POST --annotations github"],
  },
  "listings add": {
    args: "<file|url>",
    does: "take in a catalogue, a seller's document or a file: JSON, NDJSON, CSV, OpenAPI (JSON, YAML), agent cards",
    options: { "--rejected <file>": "where rejected rows go, as NDJSON (default: a new file in the data folder)" },
    prints: "how many rows were read, are new, were known and were rejected, by reason",
    exits: [...DATA, "unreachable"],
    page: "listings",
    examples: ["https://seller.example/.well-known/x402"],
  },
  "listings list": {
    does: "list every endpoint that a source lists now",
    options: { "--host <host>": "of this host only", "--all": "also those that no source lists any more" },
    prints: "a line for each endpoint: id, method, url",
    exits: DATA,
    page: "listings",
    examples: ["", "--host seller.example --json"],
  },
  "listings show": {
    args: "<endpoint>",
    does: "show which sources list an endpoint (cap_ id or url), and since when",
    prints: "the endpoint, and a line for each source",
    exits: [...DATA, "unknown"],
    page: "listings",
    examples: ["https://seller.example/weather"],
  },
  "listings remove": {
    args: "<endpoint>",
    does: "take an endpoint (cap_ id or url) off the list, with the reason; its record stays",
    options: { "--says <text>": { means: "the reason, which is published", required: true } },
    prints: "the endpoints that were removed",
    exits: [...DATA, "unknown"],
    page: "listings",
    examples: ["https://seller.example/weather --says 'the seller asked for it'"],
  },
  "register import": {
    args: "<file>",
    does: "make the register from GLEIF's golden copy of level 1 as CSV (in a ZIP, .gz, .zst or plain); it replaces the old one",
    options: { "--domains <file>": "CSV of lei,domain: the golden copy holds no domains" },
    prints: "how many rows were read, kept and refused, with examples of those that were refused",
    exits: ["busy", "unreadable"],
    page: "companies-lookup",
    examples: ["golden-copy.csv.zip"],
  },
  ingest: {
    does: "move records from the log into Parquet segments and the lake",
    options: { "--once": "one pass, then stop" },
    prints: "after each pass the rows that were moved and the positions that were reached",
    exits: PARTS,
    page: "deploy",
    examples: ["--once"],
  },
  grade: {
    does: "grade the endpoints that have new samples or are due, and write a run",
    options: { "--once": "one run, then stop" },
    prints: "after each run how many cards were made and published",
    exits: [...PARTS, "chain", "network"],
    page: "verification-method",
    examples: ["--once"],
  },
  own: {
    does: "ingest and grade the partitions that this process is given: all, or its share of a cluster's group",
    options: { "--once": "one turn, then stop" },
    prints:
      "with --once or --json, after each turn, the partitions that it holds, what it moved and graded, and its lag",
    exits: [...PARTS, "port"],
    page: "deploy",
    examples: ["--once"],
  },
  publish: {
    does: "write runs into the tree: leaves, tiles, checkpoint, index; of several publishers one is active, the others wait",
    options: { "--once": "take what is there, then stop" },
    prints: "with --once or --json what was published",
    exits: [...PARTS, "port"],
    page: "deploy",
    examples: ["--once"],
  },
  archive: {
    does: "move days older than 110 days into signed files and out of the lake",
    options: { "--once": "move what is due, then stop" },
    prints: "after each turn the files that were made",
    exits: PARTS,
    page: "archive",
    examples: ["--once"],
  },
  "archive supersede": {
    args: "<id>",
    does: "replace a wrong file of the archive (arc_ id) by one that is made again from the record",
    options: { "--reason <text>": { means: "what was wrong with it, which is published", required: true } },
    prints: "the old file and the new one",
    exits: [...PARTS, "unknown", "already"],
    page: "archive",
    examples: ["arc_00000000000000000000000000 --reason 'a row was read with the wrong price'"],
  },
  budget: {
    does: "show who is paid today and who is not, what was spent, and what the next letters cost",
    options: {
      "--day <date>": "UTC date, YYYY-MM-DD (default: today)",
      "--all": "every endpoint; without it the first 40",
    },
    prints: "the caps and what was spent of them, then a line for each endpoint",
    exits: DATA,
    page: "schedule",
    examples: ["", "--day 2026-11-21 --all"],
  },
  ledger: {
    does: "show the books of what was bought and sold, compared with the chain, and who is owed what",
    options: { "--rpc <url>": "node of the chain (default: chain.rpc_url of the settings, or the demo's own)" },
    prints:
      "for each asset the accounts, the wallets, gas, what is owed, and every movement that differs from the chain",
    exits: [...DATA, "chain"],
    page: "operate",
    examples: ["--json"],
  },
  "wallets new": {
    does: "make the wallets that are missing; a second run makes nothing",
    options: { "--blind <n>": { means: "how many blind wallets shall be there that were never used", default: 20 } },
    prints: "the address of each wallet, and what to send to it",
    exits: ["keys"],
    page: "networks-and-wallets",
    examples: ["--blind 20"],
  },
  "wallets list": {
    does: "list every wallet, what it holds on each network, on which day it paid, and what is low",
    prints: "a line for each wallet, then for each asset, then for each balance that is low",
    exits: ["keys", "wallet"],
    page: "networks-and-wallets",
    examples: ["--json"],
  },
  "wallets sweep": {
    does: "move what blind wallets of past days have left to one address, by signed authorizations",
    options: {
      "--to <address>": { means: "where the money goes", required: true },
      "--network <id>": "on this network only, such as eip155:8453",
      "--till": "move what buyers have paid instead",
      "--dry-run": "print what would be moved, and move nothing",
    },
    prints: "a line for each transfer: amount, wallet, network, transaction",
    exits: ["keys", "chain", "network", "wallet"],
    page: "networks-and-wallets",
    examples: ["--to 0x0000000000000000000000000000000000000001 --dry-run"],
  },
  "plan show": {
    args: "<day>",
    does: "compare the plan of a UTC day with what was committed before the day and opened after it",
    prints: "the calls of the plan, the commitment, and whether they match",
    exits: [...DATA, "unknown", "tampered"],
    page: "schedule",
    examples: ["2026-11-21"],
  },
  serve: {
    does: "answer from the public store: check, trust, feed, pages",
    options: {
      "--from <source>": "serve a mirror of the public record at this address, folder or s3://bucket",
      "--mirror <dir>": "with --from: folder of the mirror (default: replica in the data folder)",
      "--witness-policy <file>": "with --from: believe only checkpoints that this policy's witnesses cosigned",
      "--processes <n>": { means: "with --from: processes that share the port", default: 1 },
    },
    prints: "the address that it serves at",
    exits: [...PARTS, "port", "network", ...COPY],
    page: "deploy",
    examples: ["", "--from https://record.example --processes 2"],
  },
  buckets: {
    does: "make the buckets of the settings, with policies and lifecycle, as an operator of the store",
    options: {
      "--publisher <id>": {
        means: "who writes the public bucket: an access key id, or an ARN with Amazon",
        required: true,
      },
      "--owner <id>": { means: "who writes live tables and evidence there, and nothing else", required: true },
      "--pipeline <id>": { means: "who reads and writes the private one", required: true },
      "--seller <id>": "who keeps answers of bought calls in stores.orders: the replicas that sell",
    },
    prints: "the buckets, and what this store cannot do",
    exits: [],
    page: "deploy",
    examples: ["--publisher PUBLISHER_KEY --owner OWNER_KEY --pipeline PIPELINE_KEY"],
  },
  redrive: {
    does: "read rejected bytes again with today's readers",
    prints: "how many were read and how many stay rejected",
    exits: PARTS,
    page: "operate",
  },
  rebuild: {
    does: "delete the lake and build it again from the chain of commits",
    prints: "how many rows the new lake has",
    exits: PARTS,
    page: "operate",
  },
  migrate: {
    does: "bring what an older version left to the forms of this one; may be killed and run again",
    options: { "--table": "show every private form, its number, and how an older one is brought forward" },
    prints: "what was done with the log, the private store and the lake",
    exits: DATA,
    page: "operate",
    examples: ["", "--table"],
  },
  mirror: {
    args: "<source> <dir>",
    does: "copy a public store (URL, s3:// or folder) into <dir>/public, proving every byte",
    options: {
      "--log-key <vkey>": "the log's verifier key; without it the source's is pinned on first use",
      "--witness-key <vkey>": "the witness's verifier key",
      "--witness-policy <file>": "believe only checkpoints that this policy's witnesses cosigned (C2SP tlog-policy)",
      "--max-age <seconds>": "refuse a checkpoint cosigned longer ago (default: a day; 0 accepts any)",
      "--width <n>": { means: "objects fetched at once", default: 8 },
      "--follow <seconds>": "go on until stopped, with this pause between two runs",
      "--only <part>": {
        means: "copy the tree, its keys and this part alone",
        choices: ["index", "archive", "evidence"],
      },
      "--verify": "prove everything again; fetch what is damaged or gone",
      "--no-card-signatures": "trust the log's signature for its cards; every other proof stays",
    },
    prints: "after each run the leaves and the root, what was fetched, what is missing and what was mended",
    exits: [...COPY, "missing", "busy", "storage"],
    page: "mirror",
    examples: [
      "https://record.example copy",
      "https://record.example copy --follow 60",
      "https://record.example copy --verify",
    ],
    opens: "record",
  },
  "mirror serve": {
    args: "<dir>",
    does: "serve a mirror's public folder over HTTP",
    options: {
      "--host <address>": { means: "address to listen on", default: "127.0.0.1" },
      "--port <n>": { means: "port to listen on", default: 8403 },
    },
    json: false,
    prints: "the address that it serves at",
    exits: ["port", "unreadable"],
    page: "mirror",
    examples: ["copy --port 8403"],
    opens: "nothing",
  },
  witness: {
    args: "<dir>",
    does: "cosign checkpoints of other logs, each only where it extends the last (C2SP tlog-witness); key and memory in <dir>",
    options: {
      "--name <name>": { means: "the witness's name, a URL without scheme; fixed with the key", required: true },
      "--log <vkey>": { means: "verifier key of a log that is witnessed; may be repeated", repeated: true },
      "--logs <file>": "the same as the log lines of a tlog-policy file",
      "--host <address>": { means: "address to listen on", default: "127.0.0.1" },
      "--port <n>": { means: "port to listen on", default: 8404 },
    },
    prints: "the verifier key of the witness, the address that it serves at, and the logs",
    exits: ["port", "record", "unreadable"],
    page: "witness",
    examples: ["witness --name witness.example/w1 --log 'record.example+2f0d1c5e+AX...' --port 8404"],
    opens: "nothing",
  },
  audit: {
    args: "<source>",
    does: "prove a whole public record (URL or folder) from its first leaf, every card recomputed",
    options: {
      ...TRUSTED,
      "--also <source>": { means: "another copy that has to show the same history; may be repeated", repeated: true },
      "--since <file>": "a checkpoint kept from an earlier time: a smaller or another history is refused",
      "--max-age <seconds>": "refuse a checkpoint cosigned longer ago",
      "--endpoint <cap|url>": "light: the cards of one endpoint only",
      "--open <file>": "prove that the log commits to these bytes of a call that was not published; with --salt",
      "--salt <hex>": "the salt that came with them: 32 bytes, 64 hex digits",
      "--packing <mode>": {
        means: "validate packed bytes that no leaf names too, or their contents alone",
        default: "strict",
        choices: ["strict", "content"],
      },
    },
    prints: "a line for each check, with the problems that it found below it, then the verdict",
    exits: [...COPY, "unknown", "differs", "nothing"],
    page: "audit",
    examples: ["copy", "https://record.example --also copy"],
    opens: "record",
  },
  export: {
    args: "<source> <file>",
    does: "write a table of a record (a mirror's folder, or any public one) as one Parquet file",
    options: {
      "--what <table>": {
        means: "endpoints as the newest index has them, every card ever published, or every sample",
        default: "index",
        choices: ["index", "grades", "samples"],
      },
      "--log-key <vkey>": "the log's verifier key; without it a mirror's own, else the one that the source shows",
      "--witness-key <vkey>": "the witness's verifier key",
    },
    prints: "how many rows the file has, and of which tree head",
    exits: ["unreadable", "tampered"],
    page: "analysts",
    examples: ["copy index.parquet", "copy grades.parquet --what grades"],
    opens: "record",
  },
  correct: {
    args: "<endpoint>",
    does: "withdraw records of an endpoint (cap_ id or url) that a fault of ours made wrong",
    options: {
      "--record <id...>": "records to withdraw: handshakes and paid.intents",
      "--all-before-now": "withdraw every record observed before now",
      "--method <method>": "of a url that is in the record with several methods",
      "--grade-at <time>": "computed_at of the grade that was wrong",
      "--fault <name>": { means: "which of our own faults it was", required: true },
      "--says <text>": { means: "what was wrong, which is published", required: true },
    },
    prints: "how many records were withdrawn, the id of each correction, and where the change shows",
    exits: [...DATA, "unknown", "already"],
    page: "corrections",
    examples: [
      "https://seller.example/weather --all-before-now --fault misread_terms --says 'we read the price wrongly'",
    ],
  },
  reinstate: {
    args: "<correction>",
    does: "take a correction back: its records count again from the next run",
    options: { "--says <text>": { means: "why it is taken back, which is published", required: true } },
    prints: "the correction and the endpoint, and where the change shows",
    exits: [...DATA, "unknown", "already"],
    page: "corrections",
    examples: ["cor_00000000000000000000000000 --says 'the price was right after all'"],
  },
  dispute: {
    args: "<file>",
    does: "record a seller's dispute signed by its payTo, from a JSON file",
    prints: "the id of the dispute, and where it shows",
    exits: [...DATA, "unknown", "already", "signature"],
    page: "corrections",
    examples: ["dispute.json"],
  },
  recompute: {
    args: "<endpoint>",
    does: "make published cards again from public files and compare every byte",
    options: {
      "--from <source>": { means: "address, folder or s3://bucket of a public store", required: true },
      ...TRUSTED,
    },
    notes: "<endpoint> is a capability id (cap_…), a url, or all.",
    prints: "a line for each card: ok, pending or differs; then the sums",
    exits: ["unreadable", "tampered", "differs", "nothing", "unwitnessed"],
    page: "evidence",
    examples: ["all --from copy"],
    opens: "record",
  },
  exposure: {
    args: "<file>",
    does: "show what a service's record holds about dependencies (JSON, or one url a line), by payee",
    options: {
      "--base <url>": "address of the service (default: base_url of the settings)",
      "--keys <file>": "its keys document, saved before; without it the one that it shows is believed",
    },
    prints: "a line for each dependency, a line for each payee, and the sums",
    exits: ["unreadable", "unreachable", "tampered"],
    page: "exposure",
    examples: ["dependencies.txt --base https://record.example"],
  },
  doctor: {
    does: "look at everything that a role needs, and name what to do",
    options: {
      "--role <role>": {
        means: "what runs on this machine",
        default: "start",
        choices: ["start", "observe", "own", "publish", "serve"],
      },
    },
    prints: "a line for each finding, the worst first, with what to do below it",
    exits: ["unfit"],
    page: "operate",
    examples: ["", "--role publish --json"],
  },
  "gap accept": {
    does: "write a hole into the commit chain, where everybody sees it: the log lost records before they were read",
    prints: "the holes that were written",
    exits: PARTS,
    page: "operate",
  },
} as const satisfies Record<string, CommandRow>;

/** What first words that are no command stand for. */
export const GROUPS: Readonly<Record<string, string>> = {
  keys: "the signing keys",
  listings: "what is listed",
  register: "the register of companies",
  wallets: "the wallets that calls are paid from",
  plan: "what was planned for a day",
  gap: "holes in the record",
};

/** Words of a command. */
export type Words = keyof typeof COMMANDS;

/** The options of a command as its function gets them. */
export type OptionsOf<W extends Words> = OptionsOfRow<(typeof COMMANDS)[W]>;
