import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { z } from "zod";
import { asCatalogue, CatalogueSetting } from "./catalogues.ts";
import { Failure } from "./errors.ts";
import { keepAddress, keepSecret } from "./secrets.ts";
import { parseUrl } from "./url.ts";

/** A setting that cannot be used. The message names the setting, where it came from and what was expected. */
export class ConfigError extends Failure {
  constructor(readonly problems: readonly string[]) {
    super("usage", `configuration:\n${problems.map((problem) => `  ${problem}`).join("\n")}`);
  }
}

const money = z.string().regex(/^\d{1,12}\.\d{1,6}$/, 'expected money such as "0.10"');
const powerOfTwo = z
  .int()
  .refine((n) => n >= 1 && n <= 64 && Number.isInteger(Math.log2(n)), "expected 1, 2, 4, 8, 16, 32 or 64");

const ip = z.union([z.ipv4(), z.ipv6()], "expected an IP address");

const bucket = z
  .string()
  .regex(
    /^s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:\/[A-Za-z0-9._=/-]*[A-Za-z0-9._=-])?$/,
    "expected s3://bucket[/folder]",
  );

/** A capability id, or a host in the form that addresses have: as `Api.Example.com` or with a default port nothing would meet it. */
const named = z
  .string()
  .min(1)
  .max(300)
  .transform((name, context) => {
    if (/^cap_[0-9A-HJKMNP-TV-Z]{26}$/.test(name)) return name;
    const url = /^[^\s/?#@\\_]+$/.test(name) ? parseUrl(`https://${name}`) : null;
    if (url !== null) return url.host;
    context.addIssue({
      code: "custom",
      message: `expected a host such as api.example.com or a capability id, got ${name}`,
    });
    return z.NEVER;
  });

const caip2 = z
  .string()
  .regex(/^eip155:[1-9]\d{0,15}$/, "expected an EVM network such as eip155:8453; others are priced and not paid");
const confirmations = z.union(
  [z.int().min(1).max(10_000), z.enum(["safe", "finalized"])],
  'expected a number of blocks, "safe" or "finalized"',
);

/** Default. A transaction of ours uses 500,000 of gas at most: 0.005 of the coin, and on most chains a hundredth of that. */
export const GAS_CEILING_GWEI = 10;

/** Every setting of the service, with its default. Names are also the keys of the file; dots become `_` in variables. */
export const Settings = z.strictObject({
  /** Folder of everything this machine keeps: log, lake, stores, keys, the demo's market. */
  data_dir: z.string().min(1).default(".touchstone"),
  /** Address under which others reach us; origin of the checkpoint and of every absolute link. */
  base_url: z.url({ protocol: /^https?$/ }).default("http://localhost:8402"),
  host: z.string().min(1).default("127.0.0.1"),
  port: z.int().min(0).max(65535).default(8402),
  /** What was built, in its builder's words (a commit): shown in logs and metrics; null: unknown. */
  revision: z
    .string()
    .regex(/^[\w.+:/-]{1,100}$/, "expected the name of a revision")
    .nullable()
    .default(null),
  log_level: z.enum(["trace", "debug", "info", "warn", "error", "fatal", "silent"]).default("warn"),
  /** Partitions of a new log; a log that exists keeps its own. */
  log_partitions: powerOfTwo.default(2),
  /** `kafka://host:port[,host:port]/prefix`; null: the embedded log in the data folder. */
  log: z.string().startsWith("kafka://").nullable().default(null),
  kafka: z
    .strictObject({
      /** Create topics that are missing, with these copies; off: an operator declares them. */
      create: z.boolean().default(false),
      replicas: z.int().min(1).max(9).default(3),
      min_in_sync: z.int().min(1).max(9).default(2),
      tls: z.boolean().default(false),
      mechanism: z.enum(["plain", "scram-sha-256", "scram-sha-512"]).default("scram-sha-512"),
      username: z.string().nullable().default(null),
      password: z.string().nullable().default(null),
    })
    .prefault({}),
  /** `s3://bucket[/folder]`; null: a folder of the data folder. Each has credentials of its own. */
  stores: z
    .strictObject({
      private: bucket.nullable().default(null),
      public: bucket.nullable().default(null),
      /** Bucket of bodies and answers of bought calls, which replicas that sell share; null: a folder of the data folder. */
      orders: bucket.nullable().default(null),
      region: z.string().min(1).default("us-east-1"),
      /** Address of a store that is not Amazon's. */
      endpoint: z
        .url({ protocol: /^https?$/ })
        .nullable()
        .default(null),
      private_key_id: z.string().nullable().default(null),
      private_key: z.string().nullable().default(null),
      public_key_id: z.string().nullable().default(null),
      public_key: z.string().nullable().default(null),
      orders_key_id: z.string().nullable().default(null),
      orders_key: z.string().nullable().default(null),
    })
    .prefault({}),
  /** `/health` and `/metrics` of every role, for those who run it: never on an address that strangers reach. */
  status: z
    .strictObject({
      host: z.string().min(1).default("127.0.0.1"),
      /** null: no listener; 0: a free one. */
      port: z.int().min(0).max(65535).nullable().default(null),
      /** How long a role may go without a good turn before `/health` says 503. */
      patience_s: z.int().min(1).max(86_400).default(300),
    })
    .prefault({}),
  /** Development switch: strangers' addresses may be on this machine. Never in production. */
  allow_loopback: z.boolean().default(false),
  /** Development switch, with `allow_loopback` only: every name of a stranger leads to this address, say 127.0.0.1. */
  resolve_to: z.ipv4().nullable().default(null),
  /** Addresses on other machines that are known to be up: they tell our own faults from a seller's. Observers need one. */
  control_urls: z
    .array(z.url({ protocol: /^https?$/ }))
    .max(8)
    .default([]),
  /** File of classes: which endpoints are asked questions whose answer we know, and how (docs/classes.md). */
  classes_file: z.string().min(1).nullable().default(null),
  /**
   * Reference of prices: its url contains `{base}` and `{quote}`; `answer` is a JSON pointer. null: no price is asked
   * for.
   */
  price_reference: z
    .strictObject({
      url: z
        .string()
        .max(2048)
        .regex(/^https?:\/\//, "expected http(s)://.."),
      answer: z.string().max(500),
    })
    .nullable()
    .default(null),
  /** Where listings are read: addresses, known names, or objects (catalogues.ts). */
  catalogues: z.array(CatalogueSetting).max(64).default([]),
  /** Ports of strangers besides 80 and 443. */
  ports: z.array(z.int().min(1).max(65535)).max(64).default([]),
  chain: z
    .strictObject({
      rpc_url: z
        .url({ protocol: /^https?$/ })
        .nullable()
        .default(null),
      network: caip2.default("eip155:84532"),
      /** null: the network's USDC. */
      asset: z.string().nullable().default(null),
      confirmations: confirmations.nullable().default(null),
    })
    .prefault({}),
  /** Several networks at once, in place of `chain`, which is the short form for one. */
  networks: z
    .array(
      z.strictObject({
        id: caip2,
        /** In the order in which they are asked: the next one when one does not answer. */
        rpc_urls: z
          .array(z.url({ protocol: /^https?$/ }))
          .min(1)
          .max(8),
        /** So many of them have to say the same of a settlement before it is believed. */
        agree: z.int().min(1).max(8).default(1),
        /** Blocks, or the chain's own word; null: `finalized`, on test networks 1. */
        confirmations: confirmations.nullable().default(null),
        /** Gwei of the chain's own coin that a unit of gas may cost; above it nothing is sent. */
        gas_ceiling_gwei: z.number().positive().max(1_000_000).default(GAS_CEILING_GWEI),
        /** Tokens with EIP-3009 whose unit is a dollar; empty: the network's USDC. */
        assets: z
          .array(
            z.strictObject({
              address: z.string().regex(/^0x[0-9a-fA-F]{40}$/, "expected the address of a contract"),
              symbol: z.string().min(1).max(20).default("USDC"),
              decimals: z.int().min(0).max(36).default(6),
              /** EIP-712 domain; needed everywhere but on Tempo. */
              name: z.string().max(100).default(""),
              version: z.string().max(20).default(""),
            }),
          )
          .max(8)
          .default([]),
      }),
    )
    .max(16)
    .default([]),
  wallets: z
    .strictObject({
      /** Folder of the wallets' files; null: `wallets` in the data folder. */
      dir: z.string().min(1).nullable().default(null),
      /** Wallets that mint their own money: on a local chain only, and refused on any other. */
      mint: z.boolean().default(false),
      /** An alarm is raised when the known wallet, or all fresh blind ones together, hold less on a network. */
      low_water: money.default("1.00"),
      /** An alarm is raised, too, when fewer unused blind wallets with money than this are left. */
      low_blind: z.int().min(0).max(10_000).default(4),
    })
    .prefault({}),
  /** Calls of others' endpoints and work of our own, sold for x402 payments (docs/operate.md). Off until a network is named. */
  sell: z
    .strictObject({
      /** CAIP-2 of the network that buyers pay on and sellers are paid on, one of those above; null: nothing is sold. */
      network: caip2.nullable().default(null),
      /** Address of the token, one of that network's, with EIP-3009 and six decimals; null: its first. */
      asset: z
        .string()
        .regex(/^0x[0-9a-fA-F]{40}$/, "expected the address of a contract")
        .nullable()
        .default(null),
      /** Who charges buyers, in the order in which they are asked: "own" (this process, `gas` pays), or {url, headers}. */
      facilitators: z
        .array(
          z.union([
            z.literal("own"),
            z.strictObject({
              url: z.url({ protocol: /^https?$/ }),
              headers: z.record(z.string().max(100), z.string().max(4096)).default({}),
            }),
          ]),
        )
        .min(1)
        .max(8)
        .default(["own"]),
      /** Smallest price of a seller that is paid. */
      least_price: money.default("0.000100"),
      /**
       * Most of our own money that may be out before its charge is known: for one buyer's calls, for those of one client
       * network, and for all buyers that pay after delivery and have no credit.
       */
      open_per_buyer: money.default("2.00"),
      open_per_network: money.default("5.00"),
      open: money.default("20.00"),
      /**
       * Most that may be lost in a UTC day: by one seller's address, platform or endpoint; and through all buyers without
       * credit, or all sellers without a letter.
       */
      loss_per_seller_day: money.default("1.00"),
      loss_per_day: money.default("5.00"),
      /** UTC days after the purchase for which an answer that was charged can be had again. */
      answers_kept_days: z.int().min(1).max(3_650).default(30),
      /** MiB of all bodies and answers together; past it the oldest charged answers go before their days are over. */
      answers_kept_mb: z.int().min(16).max(100_000_000).default(8_192),
    })
    .prefault({}),
  spend: z
    .strictObject({
      per_call: money.default("0.10"),
      per_host_day: money.default("2.00"),
      /** Of a registrable domain, and of one payTo: a stranger has any number of hosts for nothing. */
      per_domain_day: money.default("2.50"),
      per_payee_day: money.default("6.25"),
      per_day: money.default("25.00"),
      total: money.default("1000.00"),
      /** Part of a day's caps that is kept for endpoints never paid. */
      new_share: z
        .string()
        .regex(/^(?:0(?:\.\d{1,6})?|1(?:\.0{1,6})?)$/, 'expected a share from 0 to 1 as text, such as "0.2"')
        .default("0.2"),
    })
    .prefault({}),
  observe: z
    .strictObject({
      hosts_at_once: z.int().min(1).max(256).default(16),
      /** Payees whose other payers are read from the chain in an hour, each once a week (docs/operate.md); 0: none. */
      payees_per_hour: z.int().min(0).max(1_000).default(5),
      /** Addresses of this machine that what says it is ours leaves from; empty: the system's choice. */
      known_addresses: z.array(ip).max(64).default([]),
      /**
       * Those of blind calls, both legs: one for each endpoint and day. Of each family that the machine has. Empty: blind calls
       * leave from where known ones do, and a seller tells them by it.
       */
      blind_addresses: z.array(ip).max(64).default([]),
      /** Who is paid first when the budget is short: host or capability id -> a whole number; 0 for all others. */
      priority: z.record(named, z.int().min(-100).max(100)).default({}),
      /** Hosts that are probed and never paid. */
      exclude: z.array(named).max(1_000).default([]),
    })
    .prefault({}),
  lake: z
    .strictObject({
      memory_limit: z
        .string()
        .regex(/^\d+(?:MB|GB)$/, 'expected a size such as "2GB"')
        .default("2GB"),
      threads: z.int().min(1).max(64).default(2),
    })
    .prefault({}),
  limits: z
    .strictObject({
      checks_per_minute: z.int().min(1).default(600),
      /** Exposure reports of one client, and the dependencies in them. */
      exposures_per_minute: z.int().min(1).default(10),
      dependencies_per_minute: z.int().min(1).default(600),
      /** Unknown urls of one client, and of all of them, that have their turn within an hour; more wait longer. */
      asks_per_hour: z.int().min(1).default(20),
      asks_per_hour_total: z.int().min(1).default(50_000),
      /** Urls in line at most. */
      asks_in_line: z.int().min(1).default(50_000),
      /** Urls of one registrable domain that are probed in an hour; more wait longer. */
      asks_per_domain_hour: z.int().min(1).default(5),
      /** Looks at a listing for somebody who waits for it: of one client in an hour, of one domain in a minute, and at once. */
      looks_per_hour: z.int().min(1).default(20),
      looks_per_domain_minute: z.int().min(1).default(4),
      looks_at_once: z.int().min(1).max(64).default(6),
      /** Receivers that one client, and all of them under one registrable domain, may have us challenge in an hour. */
      watchers_per_hour: z.int().min(1).default(5),
      challenges_per_domain_hour: z.int().min(1).default(60),
      /** Active watchers of one registrable domain of receivers, and in all. */
      watchers_per_domain: z.int().min(1).default(20),
      watchers: z.int().min(1).max(100_000).default(10_000),
      /** Notices to one registrable domain of receivers in a minute. */
      notices_per_minute: z.int().min(1).default(60),
      /** Sockets at once of all clients, and of one; those of a trusted proxy count in total alone. */
      sockets: z.int().min(1).max(1_000_000).default(10_000),
      sockets_per_client: z.int().min(1).default(128),
      /** Slowest rate at which an answer is taken or a body sent, and how long a socket may fall short of it. */
      min_bytes_per_s: z.int().min(0).default(8_192),
      slow_after_s: z.int().min(1).max(3_600).default(20),
      /** Longest time for the headers of a request, and for a whole request. */
      headers_timeout_s: z.int().min(1).max(3_600).default(10),
      request_timeout_s: z.int().min(1).max(3_600).default(30),
      /** Long answers (feed, index, large objects) at once of all clients, and of one: a mirror asks for 8, a replica for 16. */
      streams: z.int().min(1).default(256),
      streams_per_client: z.int().min(1).default(40),
      /** MiB of long answers and objects that one client is sent in an hour. */
      stream_mb_per_hour: z.int().min(1).max(1_000_000_000).default(8_192),
      trusted_proxies: z.array(z.string()).default([]),
    })
    .prefault({}),
});

/** What strangers may ask and hold of one process, by the names of the settings. */
export type Limits = z.infer<typeof Settings>["limits"];
/** The same without settings. */
export const LIMITS: Limits = Settings.shape.limits.parse(undefined);

export type Config = z.infer<typeof Settings> & {
  /** Path of the file that was read, or null. */
  file: string | null;
};

const PREFIX = "TOUCHSTONE_";
/** Variables that are ours but no setting. */
const OTHER = new Set([`${PREFIX}CONFIG`]);

/** `TOUCHSTONE_SPEND_PER_CALL` -> ["spend", "per_call"], found in the shape; null when no setting has that name. */
function pathOf(name: string): string[] | null {
  const wanted = name.slice(PREFIX.length).toLowerCase();
  for (const [key, field] of Object.entries(Settings.shape)) {
    if (key === wanted) return [key];
    const inner = field instanceof z.ZodPrefault ? field.unwrap() : field;
    if (inner instanceof z.ZodObject && wanted.startsWith(`${key}_`)) {
      const rest = wanted.slice(key.length + 1);
      if (rest in inner.shape) return [key, rest];
    }
  }
  return null;
}

/** What a variable has to look like where a list or an object is wanted, by an example that a shell and an env file take. */
const FORMS: Record<string, string> = {
  array: `a list as a JSON array in one line, such as ["https://one.example/","https://two.example/"]`,
  object: `an object as JSON in one line, such as {"name":"value"}`,
  record: `an object as JSON in one line, such as {"api.example.com":1}`,
};

/** A wrong value in words; of a list or an object in a variable, the form that is wanted, which zod does not know. */
function wordsOf(issue: z.core.$ZodIssue, fromEnv: boolean): string {
  const form = fromEnv && issue.code === "invalid_type" ? FORMS[issue.expected] : undefined;
  return form === undefined ? issue.message : `expected ${form}`;
}

/** A variable's text as JSON where it is JSON, else as the text itself: `8402`, `true`, `["https://.."]`, `warn`. */
function settingFrom(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "string" ? text : value;
  } catch {
    return text;
  }
}

/** Settings whose value is text even when it looks like a number, as money and passwords do. */
const isText = (path: string[]): boolean =>
  path[0] === "spend" ||
  /^(?:low_water|least_price|open|open_per_(?:buyer|network)|loss_per_(?:seller_)?day|username|password|(?:private|public|orders)_key(?:_id)?)$/.test(
    path[1] ?? "",
  );

function applyEnvironment(settings: Record<string, unknown>, env: NodeJS.ProcessEnv, problems: string[]): string[][] {
  const touched: string[][] = [];
  for (const [name, text] of Object.entries(env)) {
    if (!name.startsWith(PREFIX) || OTHER.has(name) || text === undefined) continue;
    const path = pathOf(name);
    if (!path) {
      problems.push(`${name} (environment): there is no such setting`);
      continue;
    }
    const value = isText(path) ? text : settingFrom(text);
    if (path.length === 1) settings[path[0]!] = value;
    else settings[path[0]!] = { ...(settings[path[0]!] as object | undefined), [path[1]!]: value };
    touched.push(path);
  }
  return touched;
}

/** What a JSON parser says, without the piece of the file that it shows: a password may stand there. */
const withoutText = (says: string): string => says.replace(/,? *(?:\.{3})?"[\s\S]*"(?:\.{3})? is not valid JSON$/, "");

/** From here on no log line and no error that ends this process shows the secrets of these settings. */
function keepSecretsOf(settings: z.infer<typeof Settings>): void {
  const { kafka, stores, chain, networks, control_urls, catalogues, sell } = settings;
  keepSecret(kafka.password, stores.private_key, stores.public_key, stores.orders_key);
  for (const address of [chain.rpc_url, ...networks.flatMap(({ rpc_urls }) => rpc_urls)]) keepAddress(address, true);
  const listed = catalogues.map(asCatalogue);
  const facilitators = sell.facilitators.filter((one) => one !== "own");
  for (const { headers } of facilitators) keepSecret(...Object.values(headers));
  for (const { headers } of listed) keepSecret(...Object.values(headers));
  for (const address of [stores.endpoint, ...control_urls, ...[...listed, ...facilitators].map(({ url }) => url)])
    keepAddress(address);
}

/** What is wrong in these settings, by the name of each: nothing where they hold. Their secrets are kept from now on. */
export function problemsIn(settings: object): { at: string; says: string }[] {
  const parsed = Settings.safeParse(settings);
  if (parsed.success) keepSecretsOf(parsed.data);
  return (parsed.error?.issues ?? []).map(({ path, message }) => ({ at: path.join("."), says: message }));
}

/** Path of the settings file: `file`, else `TOUCHSTONE_CONFIG`, else `touchstone.json` in the working folder. */
export const settingsFile = (file?: string, env: NodeJS.ProcessEnv = process.env): string =>
  resolve(file ?? env[`${PREFIX}CONFIG`] ?? "touchstone.json");

/**
 * Settings from one JSON file and the environment (the environment wins). The file is `file`, else
 * `TOUCHSTONE_CONFIG`, else `touchstone.json` in the working folder if it is there.
 * @param flags variables that were said on the command line: they win over the environment's
 * @throws ConfigError naming every setting that is wrong, at once.
 */
export function loadConfig(
  file?: string,
  env: NodeJS.ProcessEnv = process.env,
  flags: Record<string, string> = {},
): Config {
  const named = file ?? env[`${PREFIX}CONFIG`];
  const path = settingsFile(file, env);
  let settings: Record<string, unknown> = {};
  const found = existsSync(path);
  if (!found && named) throw new ConfigError([`${named}: there is no such file`]);
  if (found) {
    try {
      settings = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
    } catch (error) {
      throw new ConfigError([`${path}: ${withoutText((error as Error).message)}`]);
    }
  }
  const problems: string[] = [];
  const touched = applyEnvironment(settings, { ...env, ...flags }, problems);
  const parsed = Settings.safeParse(settings);
  if (!parsed.success) {
    for (const issue of parsed.error.issues) {
      const at = issue.path.map(String);
      const fromEnv = touched.some((key) => key.every((part, i) => part === at[i]));
      const where = fromEnv
        ? `${PREFIX}${at.join("_").toUpperCase()} (environment)`
        : `${at.join(".") || "the file"} (${path})`;
      problems.push(`${where}: ${wordsOf(issue, fromEnv)}`);
    }
  }
  if (problems.length || !parsed.success) throw new ConfigError(problems);
  keepSecretsOf(parsed.data);
  return { ...parsed.data, file: found ? path : null };
}

/** A workflow that runs this process: GitHub's runner says so (docs.github.com, "Variables reference"). */
export interface Workflow {
  isGitHub: boolean;
  /** File that the summary of the job is appended to; null where there is none. */
  summary: string | null;
}

export const workflowOf = (env: NodeJS.ProcessEnv = process.env): Workflow => ({
  isGitHub: env.GITHUB_ACTIONS === "true",
  summary: env.GITHUB_STEP_SUMMARY || null,
});
