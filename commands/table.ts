import type { FailureCode } from "../infra/errors.ts";
import type { CommandRow, OptionsOfRow } from "./row.ts";

/** Options of commands that verify a public record: the keys, the witness policy, and the age of the checkpoint. */
const TRUST_OPTIONS = {
  "--log-key <vkey>": "the log's verifier key; without it the source's own key is trusted",
  "--witness-key <vkey>": "the witness's verifier key",
  "--witness-policy <file>": "accept only checkpoints that this policy's witnesses cosigned (C2SP tlog-policy)",
  "--max-age <seconds>": "refuse a checkpoint whose cosignature (with a policy: its quorum's) is older",
} as const;

/**
 * Codes of the failures of opening log, stores, keys and the lake (the DuckDB database), which one process at a time
 * can open.
 */
const PARTS_FAILURES = ["keys", "storage", "record", "busy"] as const satisfies FailureCode[];
/** {@link PARTS_FAILURES}, and `fork`, since commands that publish fail if their log has signed two histories. */
const PUBLISHING_FAILURES = [...PARTS_FAILURES, "fork"] as const;
/** {@link PARTS_FAILURES}, and `unreadable`, since commands that create no data folder fail if it is missing. */
const DATA_FOLDER_FAILURES = [...PARTS_FAILURES, "unreadable"] as const;
/** Codes of the failures of reading a copy of the public record. */
const COPY_FAILURES = [
  "unreadable",
  "tampered",
  "rollback",
  "fork",
  "stale",
  "unwitnessed",
] as const satisfies FailureCode[];

/**
 * All commands by their words, in the order of `--help`. From this table follow `--help`, docs/commands.md and the
 * types of the options; `program.ts` names the function of each command.
 */
export const COMMANDS = {
  start: {
    does: "run all roles in one process: log in SQLite, lake in DuckDB, stores in folders",
    options: {
      "--market": "run the demo: a local chain and its sellers, whose past is simulated up to now",
      "--once": "stop when the simulated past is published; without --market, after one turn of every role",
      "--days <n>": { means: "with --market: days of the simulated past", default: 32 },
      "--pace <n>": "with --market: run the last hours of the past n times as fast as real time",
      "--pace-hours <n>": { means: "with --market: hours that run at that pace", default: 240 },
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
      "--acks <fd>": "with --market: write the event id of every acknowledged append to this file descriptor",
    },
    prints: "the address of the service; with --market first the letter of every seller",
    exits: [...PUBLISHING_FAILURES, "port", "chain", "network"],
    page: "operate",
    examples: ["--market", ""],
    opens: "market",
  },
  init: {
    does: "write a settings file from five answers, given as options or asked for at a terminal",
    options: {
      "--name <address>": "address under which others reach the service, such as record.example",
      "--network <id>": "network on which calls are paid, such as eip155:8453",
      "--rpc <url>": { means: "JSON-RPC address of a node of that network; may be repeated", repeated: true },
      "--control <url>": { means: "address on another machine that is always up; may be repeated", repeated: true },
      "--catalogue <name>": {
        means: "catalogue from which listings are read: an address or a known name; may be repeated",
        repeated: true,
      },
      "--sell": "sell calls and work on that network",
      "--no-sell": "sell nothing",
      "--force": "replace an existing settings file",
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
    does: "list every current and retired key, with its validity",
    prints:
      "a line for each key; for log and witness keys also the option --log-key or --witness-key with the verifier key",
    exits: ["keys", "unreadable"],
    page: "mirror",
    examples: ["--json"],
  },
  "keys rotate": {
    args: "<purpose>",
    does: "make a new key for cards, answers, log or witness; the old one retires after the overlap",
    options: {
      "--overlap-days <n>": "days for which both keys are valid, at most 3650 (cards, answers: 1; log, witness: 30)",
    },
    prints: "the old key and the new one",
    exits: ["keys"],
    page: "operate",
    examples: ["cards"],
  },
  observe: {
    does: "probe, pay and check by the plan of the day",
    options: {
      "--once": "make the calls that are due by now, then stop",
      "--listings <file|url>": "with --once: import these listings and probe each once, without a payment or a plan",
      "--rejected <file>": "with --listings: file for rejected rows, as NDJSON",
    },
    prints: "with --once the number of calls; with --listings a line for each probed endpoint",
    exits: [...PARTS_FAILURES, "port", "chain", "network", "unreadable", "unreachable"],
    page: "schedule",
    examples: ["--once", "--once --listings listings.csv"],
  },
  listing: {
    args: "<url>",
    does: "probe your endpoint once, without a payment, and report what is wrong with it",
    options: {
      "--method <method>": { means: "HTTP method, if no document names one", choices: ["GET", "POST"] },
      "--annotations <form>": {
        means: "print the findings as annotations of a workflow (default: github in GitHub Actions)",
        choices: ["github", "none"],
      },
      "--file <path>": "file of your repository to which annotations are attached",
    },
    prints: "what the endpoint answered and offers, then every finding with what to change, the worst first",
    exits: ["flawed", "unpayable", "unreachable"],
    page: "listings",
    examples: ["https://seller.example/weather", "http://localhost:3000/weather --method POST --annotations github"],
  },
  "listings add": {
    args: "<file|url>",
    does: "import a catalogue, a seller's document or a file: JSON, NDJSON, CSV, OpenAPI (JSON, YAML), agent cards",
    options: { "--rejected <file>": "file for rejected rows, as NDJSON (default: a new file in the data folder)" },
    prints: "the numbers of rows that were read, new, known and, by reason, rejected",
    exits: [...DATA_FOLDER_FAILURES, "unreachable"],
    page: "listings",
    examples: ["https://seller.example/.well-known/x402"],
  },
  "listings list": {
    does: "list every endpoint that a source lists now",
    options: {
      "--host <host>": "only endpoints of this host",
      "--all": "also endpoints that no source lists any more",
    },
    prints: "a line for each endpoint: id, method, url",
    exits: DATA_FOLDER_FAILURES,
    page: "listings",
    examples: ["", "--host seller.example --json"],
  },
  "listings show": {
    args: "<endpoint>",
    does: "show which sources list an endpoint (cap_ id or url), and since when",
    prints: "the endpoint, and a line for each source",
    exits: [...DATA_FOLDER_FAILURES, "unknown"],
    page: "listings",
    examples: ["https://seller.example/weather"],
  },
  "listings remove": {
    args: "<endpoint>",
    does: "delist an endpoint (cap_ id or url), with the reason; its record stays",
    options: { "--says <text>": { means: "the reason, which is published", required: true } },
    prints: "the endpoints that were removed",
    exits: [...DATA_FOLDER_FAILURES, "unknown"],
    page: "listings",
    examples: ["https://seller.example/weather --says 'the seller asked for it'"],
  },
  "register import": {
    args: "<file>",
    does: "build the register from GLEIF's golden copy of level 1 as CSV (in a ZIP, .gz, .zst or plain), in place of the old one",
    options: {
      "--domains <file>": "CSV of lei,domain, since the golden copy has no domains",
      "--relationships <file>": "GLEIF's relationship records of level 2 (rr) as CSV: direct and ultimate parents",
      "--exceptions <file>": "GLEIF's reporting exceptions of level 2 (repex) as CSV: why a parent is not reported",
    },
    prints: "the numbers of rows that were read, kept and refused, with examples of refused ones",
    exits: ["busy", "unreadable"],
    page: "companies-lookup",
    examples: ["golden-copy.csv.zip"],
  },
  ingest: {
    does: "move records from the log into Parquet segments and the lake",
    options: { "--once": "one pass, then stop" },
    prints: "after each pass the number of moved rows and the positions in the log",
    exits: PARTS_FAILURES,
    page: "deploy",
    examples: ["--once"],
  },
  grade: {
    does: "grade the endpoints that have new samples or are due, and write a run",
    options: { "--once": "one run, then stop" },
    prints: "after each run the number of cards that were made and published",
    exits: [...PUBLISHING_FAILURES, "chain", "network"],
    page: "verification-method",
    examples: ["--once"],
  },
  own: {
    does: "ingest and grade the partitions that are assigned to this process: all, or its share in a cluster",
    options: { "--once": "one turn, then stop" },
    prints: "with --once or --json, after each turn: its partitions, what it ingested and graded, and its lag",
    exits: [...PARTS_FAILURES, "port"],
    page: "deploy",
    examples: ["--once"],
  },
  publish: {
    does: "publish runs in the tree: leaves, tiles, checkpoint, index; of several publishers one is active, the others wait",
    options: { "--once": "publish what is waiting, then stop" },
    prints: "with --once or --json what was published",
    exits: [...PUBLISHING_FAILURES, "port"],
    page: "deploy",
    examples: ["--once"],
  },
  archive: {
    does: "move days older than 110 days into signed files and out of the lake",
    options: { "--once": "move the days that are due, then stop" },
    prints: "after each turn the new files",
    exits: [...PUBLISHING_FAILURES, "tampered"],
    page: "archive",
    examples: ["--once"],
  },
  "archive supersede": {
    args: "<id>",
    does: "replace a wrong file of the archive (arc_ id) by one that is rebuilt from the record",
    options: { "--reason <text>": { means: "what was wrong with it, which is published", required: true } },
    prints: "the old file and the new one",
    exits: [...PUBLISHING_FAILURES, "tampered", "unknown", "already"],
    page: "archive",
    examples: ["arc_00000000000000000000000000 --reason 'a row was read with the wrong price'"],
  },
  budget: {
    does: "show which endpoints are paid today and which not, what was spent, and what the next letters cost",
    options: {
      "--day <date>": "UTC date, YYYY-MM-DD (default: today)",
      "--all": "every endpoint; without it the first 40",
    },
    prints: "the caps, what was spent, then a line for each endpoint",
    exits: DATA_FOLDER_FAILURES,
    page: "schedule",
    examples: ["", "--day 2026-11-21 --all"],
  },
  ledger: {
    does: "show the books of the sold calls, compared with the chain, and what is owed to whom",
    options: {
      "--rpc <url>": "one node, for the books of its chain (default: the nodes of the settings, or the demo's own)",
    },
    prints: "for each asset: accounts, wallets, gas, debts, and every movement that differs from the chain",
    exits: [...DATA_FOLDER_FAILURES, "chain"],
    page: "operate",
    examples: ["--json"],
  },
  "wallets new": {
    does: "create the wallets that are missing; a second run creates nothing",
    options: { "--blind <n>": { means: "number of unused blind wallets to have afterwards", default: 20 } },
    prints: "the address of each wallet, and what to send to it",
    exits: ["keys"],
    page: "networks-and-wallets",
    examples: ["--blind 20"],
  },
  "wallets list": {
    does: "list every wallet, its balance on each network, the day on which it paid, and low balances",
    prints: "a line for each wallet, then for each asset, then for each low balance",
    exits: ["keys", "wallet"],
    page: "networks-and-wallets",
    examples: ["--json"],
  },
  "wallets sweep": {
    does: "move the rest of blind wallets that paid on past days to one address, each by its own signature",
    options: {
      "--to <address>": { means: "address that receives the money", required: true },
      "--network <id>": "only on this network, such as eip155:8453",
      "--till": "move the payments of buyers instead",
      "--dry-run": "print what would be moved, and move nothing",
    },
    prints:
      "a line for each transfer as it ends: amount, wallet, network, transaction; the exit code is that of the first failed one",
    exits: ["keys", "chain", "network", "wallet"],
    page: "networks-and-wallets",
    examples: ["--to 0x0000000000000000000000000000000000000001 --dry-run"],
  },
  "plan show": {
    args: "<day>",
    does: "compare the plan of a UTC day with its commitment, published before the day, and its salt, published after it",
    prints: "the calls of the plan, the commitment, and whether they match",
    exits: [...DATA_FOLDER_FAILURES, "unknown", "tampered"],
    page: "schedule",
    examples: ["2026-11-21"],
  },
  serve: {
    does: "answer from the public store: check, trust, feed, pages",
    options: {
      "--from <source>": "serve a mirror of the public record at this address, folder or s3://bucket",
      "--mirror <dir>": "with --from: folder of the mirror (default: replica in the data folder)",
      "--witness-policy <file>": "with --from: accept only checkpoints that this policy's witnesses cosigned",
      "--max-age <seconds>": "with --from: refuse a checkpoint with an older cosignature, and report unready meanwhile",
      "--processes <n>": { means: "with --from: number of processes that share the port", default: 1 },
    },
    prints: "the address of the service",
    exits: [...PARTS_FAILURES, "port", "network", ...COPY_FAILURES],
    page: "deploy",
    examples: ["", "--from https://record.example --processes 2"],
  },
  buckets: {
    does: "create the buckets that the settings name, with policies and lifecycle rules, as an operator of the store",
    options: {
      "--publisher <id>": {
        means: "writer of the public bucket: an access key id, or an ARN with Amazon",
        required: true,
      },
      "--owner <id>": { means: "writer of live tables and evidence in the public bucket", required: true },
      "--pipeline <id>": { means: "reader and writer of the private bucket", required: true },
      "--seller <id>": "reader and writer of stores.orders: the replicas that sell",
    },
    prints: "the buckets, and what this store does not support",
    exits: [],
    page: "deploy",
    examples: ["--publisher PUBLISHER_KEY --owner OWNER_KEY --pipeline PIPELINE_KEY"],
  },
  redrive: {
    does: "read rejected records again with this version's readers",
    prints: "how many were read, and how many are still rejected",
    exits: PARTS_FAILURES,
    page: "operate",
  },
  rebuild: {
    does: "delete the lake and rebuild it from the chain of commits",
    prints: "how many rows the new lake has",
    exits: PARTS_FAILURES,
    page: "operate",
  },
  migrate: {
    does: "convert the data of an older version to this version's formats; may be killed and run again",
    options: { "--table": "show every private format, its number, and how an older one is converted" },
    prints: "what was done with the log, the private store and the lake",
    exits: DATA_FOLDER_FAILURES,
    page: "operate",
    examples: ["", "--table"],
  },
  mirror: {
    args: "<source> <dir>",
    does: "copy a public store (URL, s3:// or folder) into <dir>/public, proving every byte",
    options: {
      "--log-key <vkey>": "the log's verifier key; without it the source's key is pinned on first use",
      "--witness-key <vkey>": "the witness's verifier key",
      "--witness-policy <file>": "accept only checkpoints that this policy's witnesses cosigned (C2SP tlog-policy)",
      "--max-age <seconds>": "refuse a checkpoint with an older cosignature (default: a day; 0 accepts any)",
      "--width <n>": { means: "number of objects that are fetched at once", default: 8 },
      "--follow <seconds>": "repeat until stopped, with this pause between two runs",
      "--only <part>": {
        means: "copy only the tree, its keys and this part",
        choices: ["index", "archive", "evidence"],
      },
      "--verify": "prove the whole copy again, and fetch damaged or missing objects",
      "--no-card-signatures": "do not verify the signatures of the cards, only that of the log and all other proofs",
    },
    prints: "after each run the leaves and the root, and what was fetched, is missing or was repaired",
    exits: [...COPY_FAILURES, "missing", "busy", "storage"],
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
    prints: "the address of the server",
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
      "--key": "print the verifier key, made where there is none, and end",
      "--host <address>": { means: "address to listen on", default: "127.0.0.1" },
      "--port <n>": { means: "port to listen on", default: 8404 },
    },
    prints: "the verifier key of the witness, the address that it serves at, and the logs; with --key the first alone",
    exits: ["port", "record", "unreadable"],
    page: "witness",
    examples: ["witness --name witness.example/w1 --log 'record.example+2f0d1c5e+AX...' --port 8404"],
    opens: "record",
  },
  monitor: {
    args: "<dir> <source...>",
    does: "follow one log at several addresses: keep and compare every checkpoint, prove forks, watch names; memory in <dir>",
    options: {
      "--log-key <vkey>": "the log's verifier key; without it the source's is pinned on first use",
      "--witness-key <vkey>": "the witness's verifier key",
      "--witness-policy <file>": "believe only checkpoints that this policy's witnesses cosigned (C2SP tlog-policy)",
      "--max-age <seconds>": "report a newest checkpoint cosigned longer ago (default: a day; 0 accepts any)",
      "--once": "one round, with an exit code for what it found",
      "--every <seconds>": { means: "pause between two rounds", default: 60 },
      "--cap <id>": { means: "an endpoint that is watched; may be repeated", repeated: true },
      "--pay-to <address>": { means: "watch the endpoints that are paid there; may be repeated", repeated: true },
      "--domain <name>": {
        means: "watch the endpoints of this host and those below it; may be repeated",
        repeated: true,
      },
      "--webhook <url>": "post what changed there too (Standard Webhooks), until it is taken",
      "--peer <url>": { means: "another monitor whose checkpoints are pulled; may be repeated", repeated: true },
      "--listen <n>": "port on which other monitors pull the checkpoints of this one",
      "--host <address>": { means: "address to listen on", default: "127.0.0.1" },
    },
    prints: "what new names stand for, then each change and each fork; faults on stderr",
    exits: [...COPY_FAILURES, "unproven", "changed", "untold", "busy", "record", "port", "storage"],
    page: "monitor",
    examples: [
      "monitor https://record.example --once --pay-to 0x1111111111111111111111111111111111111111",
      "monitor https://record.example ./copy --listen 8405 --peer https://monitor.example",
    ],
    opens: "record",
  },
  audit: {
    args: "<source>",
    does: "prove a whole public record (URL or folder) from its first leaf, every card recomputed",
    options: {
      ...TRUST_OPTIONS,
      "--also <source>": { means: "another copy, which must have the same history; may be repeated", repeated: true },
      "--since <file>": "a checkpoint that you saved earlier: a shorter or different history is refused",
      "--endpoint <cap|url>": "prove only the cards of one endpoint, which takes less time",
      "--open <file>": "prove that the log commits to these bytes of a bought call; with --salt",
      "--salt <hex>": "the salt that the buyer got with them: 32 bytes as 64 hex digits",
      "--packing <mode>": {
        means: "compare packed objects byte by byte, or only their contents",
        default: "strict",
        choices: ["strict", "content"],
      },
    },
    prints: "a line for each check, with its problems below it, then the verdict",
    exits: [...COPY_FAILURES, "unknown", "differs", "nothing"],
    page: "audit",
    examples: ["copy", "https://record.example --also copy"],
    opens: "record",
  },
  verify: {
    args: "<file>",
    does: "prove a card bundle (GET /v1/trust/{id}/bundle) or an equivocation that a monitor found, offline",
    options: TRUST_OPTIONS,
    prints:
      "the card, the sentence that explains it, and what of it was proven; or the two checkpoints that contradict",
    exits: ["unreadable", "tampered", "unwitnessed", "stale", "fork"],
    page: "card-bundle",
    examples: ["cap_7Z3.touchstone", "monitor/equivocations/1f0e5d3c2b1a0998.json"],
    opens: "record",
  },
  export: {
    args: "<source> <file>",
    does: "write a table of a record (a mirror's folder, or any public one) as one Parquet file",
    options: {
      "--what <table>": {
        means: "the endpoints of the newest index, every card ever published, or every sample",
        default: "index",
        choices: ["index", "grades", "samples"],
      },
      ...TRUST_OPTIONS,
      "--log-key <vkey>": "the log's verifier key; without it a mirror's pinned key, else the source's own",
    },
    prints: "the number of rows, and the tree head that they are from",
    exits: ["unreadable", "tampered", "stale", "unwitnessed"],
    page: "analysts",
    examples: ["copy index.parquet", "copy grades.parquet --what grades"],
    opens: "record",
  },
  correct: {
    args: "<endpoint>",
    does: "withdraw records of an endpoint (cap_ id or url) that are wrong by an error of this service",
    options: {
      "--record <id...>": "records to withdraw: handshakes and paid.intents",
      "--all-before-now": "withdraw every record observed before now",
      "--method <method>": "HTTP method, if the url is in the record with several",
      "--grade-at <time>": "computed_at of the wrong grade",
      "--fault <name>": { means: "kind of the error", required: true },
      "--says <text>": { means: "what was wrong, which is published", required: true },
    },
    prints: "the number of withdrawn records, the id of each correction, and the url that shows the change",
    exits: [...DATA_FOLDER_FAILURES, "unknown", "already"],
    page: "corrections",
    examples: [
      "https://seller.example/weather --all-before-now --fault misread_terms --says 'we read the price wrongly'",
    ],
  },
  reinstate: {
    args: "<correction>",
    does: "take a correction back: its records count again from the next run",
    options: { "--says <text>": { means: "why it is taken back, which is published", required: true } },
    prints: "the correction, the endpoint, and the url that shows the change",
    exits: [...DATA_FOLDER_FAILURES, "unknown", "already"],
    page: "corrections",
    examples: ["cor_00000000000000000000000000 --says 'the price was right after all'"],
  },
  dispute: {
    args: "<file>",
    does: "record a seller's dispute signed by its payTo, from a JSON file",
    prints: "the id of the dispute, and the url that shows it",
    exits: [...DATA_FOLDER_FAILURES, "unknown", "already", "signature"],
    page: "corrections",
    examples: ["dispute.json"],
  },
  recompute: {
    args: "<endpoint>",
    does: "recompute published cards from public files and compare every byte",
    options: {
      "--from <source>": { means: "address, folder or s3://bucket of a public store", required: true },
      ...TRUST_OPTIONS,
    },
    notes: "<endpoint> is a capability id (cap_…), a url, or all.",
    prints: "a line for each card: ok, pending or differs; then the sums",
    exits: ["unreadable", "tampered", "stale", "differs", "nothing", "unwitnessed"],
    page: "evidence",
    examples: ["all --from copy"],
    opens: "record",
  },
  exposure: {
    args: "<file>",
    does: "ask a service about all endpoints that an agent pays (JSON, or one url a line), summed up by payee",
    options: {
      "--base <url>": "address of the service (default: base_url of the settings)",
      "--keys <file>": "the service's keys document, saved earlier; without it the current one is trusted",
    },
    prints: "a line for each dependency, a line for each payee, and the sums",
    exits: ["unreadable", "unreachable", "tampered"],
    page: "exposure",
    examples: ["dependencies.txt --base https://record.example"],
  },
  check: {
    args: "<endpoint>",
    does: "ask a service about an endpoint (url or cap_ id) before you pay it",
    options: {
      "--method <method>": { means: "HTTP method, if the url has several", choices: ["GET", "POST"] },
      "--service <url>": "address of the service (default: base_url of the settings, which is the demo's)",
    },
    prints: "the letter with its reason, reasons against a payment, and the price of a call through the service",
    exits: ["ungraded", "refused", "unreachable", "tampered", "stale"],
    page: "buy",
    examples: ["https://seller.example/weather", "https://seller.example/weather --service https://record.example"],
  },
  buy: {
    args: "<endpoint>",
    does: "buy one call of an endpoint (url or cap_ id) through a service: charged only if the answer passed",
    options: {
      "--input <json>": "a JSON object: the query of a GET, the body of a POST",
      "--max-price <sum>": "highest price, fee included, in USDC, such as 0.05",
      "--yes": "pay without asking",
      "--key <file>": "your wallet's private key, in a file that only you can read (default: the demo's purse)",
      "--escrow": "pay into escrow, if it is offered (0.05 to 1.00 USDC)",
      "--save <file>": "write the answer to this file instead, and the order to <file>.order.json",
      "--method <method>": { means: "HTTP method, if the url has several", choices: ["GET", "POST"] },
      "--service <url>": "address of the service (default: base_url of the settings, which is the demo's)",
    },
    prints: "the seller's answer; the check and the charge go to stderr, the signed order to a file",
    exits: [
      ...["ungraded", "dear", "refused", "undelivered", "open", "wallet"],
      ...["already", "keys", "chain", "unreachable", "tampered", "stale"],
    ] as const,
    page: "buy",
    notes: "Without --key it pays on the demo's own chain, from a purse that the demo fills.",
    examples: [
      `http://127.0.0.2:20002/sum --input '{"a":20,"b":22}'`,
      "https://seller.example/weather?city=Oslo --service https://record.example --key buyer.key --max-price 0.05 --yes",
    ],
  },
  resume: {
    args: "<file>",
    does: "send a payment that buy saved again, until its outcome is known: it is the same order, charged at most once",
    prints: "what buy would have printed: the seller's answer, and the signed order to a file",
    exits: [
      ...["refused", "undelivered", "open", "wallet"],
      ...["already", "unreadable", "unreachable", "tampered", "stale"],
    ] as const,
    page: "buy",
    notes: "It signs nothing and needs no key. The file is removed once the outcome is known.",
    examples: ["answer.json.payment.json"],
  },
  doctor: {
    does: "check everything that a role needs, and print what to do",
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
    does: "record in the chain of commits that the log lost records before they were ingested",
    prints: "the gaps that were recorded",
    exits: PARTS_FAILURES,
    page: "operate",
  },
} as const satisfies Record<string, CommandRow>;

/** Descriptions of first words that are no command themselves, but have subcommands. */
export const GROUPS: Readonly<Record<string, string>> = {
  keys: "the signing keys",
  listings: "the listed endpoints",
  register: "the register of companies",
  wallets: "the wallets from which calls are paid",
  plan: "the plan of a day",
  gap: "gaps in the record",
};

/** The words of a command, such as `wallets new`. */
export type Words = keyof typeof COMMANDS;

/** The options of a command as its function gets them. */
export type OptionsOf<W extends Words> = OptionsOfRow<(typeof COMMANDS)[W]>;
