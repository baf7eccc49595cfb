import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { z } from "zod";
import { addressSetting, CatalogueSetting, toCatalogue } from "./catalogues.ts";
import { parseNetwork } from "./egress/address.ts";
import { Failure } from "./errors.ts";
import { nearName } from "./near-name.ts";
import { addAddressSecrets, addSecrets } from "./secrets.ts";
import { parseUrl } from "./url.ts";

/** Thrown for invalid settings. The message names each setting, where it came from and what was expected. */
export class ConfigError extends Failure {
  constructor(readonly problems: readonly string[]) {
    super("usage", `configuration:\n${problems.map((problem) => `  ${problem}`).join("\n")}`);
  }
}

const MONEY_FORM = 'expected money such as "0.10"';
const money = z.string(MONEY_FORM).regex(/^\d{1,12}\.\d{1,6}$/, MONEY_FORM);
const powerOfTwo = z
  .int()
  .refine((n) => n >= 1 && n <= 64 && Number.isInteger(Math.log2(n)), "expected 1, 2, 4, 8, 16, 32 or 64");

const ip = z.union([z.ipv4(), z.ipv6()], "expected an IP address");

const ipOrNetwork = z
  .string()
  .refine((text) => parseNetwork(text) !== null, "expected an IP address, or a network such as 10.0.0.0/8");

const bucket = z
  .string()
  .regex(
    /^s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:\/[A-Za-z0-9._=/-]*[A-Za-z0-9._=-])?$/,
    "expected s3://bucket[/folder]",
  );

/**
 * A capability id (the id of a seller's endpoint), or a host, normalised as in urls (lower case, no default port) so
 * that it matches endpoints.
 */
const hostOrCapability = z
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

/**
 * Default of `gas_ceiling_gwei`. A transaction of this service uses at most 500,000 gas, which cost 0.005 units of
 * the chain's coin at this price.
 */
export const GAS_CEILING_GWEI = 10;

/** Every setting with its default. Names are the keys of the settings file; in environment variables dots become `_`. */
export const Settings = z.strictObject({
  /** Folder of all local data: log, lake, stores, keys, the demo's market. */
  data_dir: z.string().min(1).default(".touchstone"),
  /** Public address of the service. Absolute links begin with it, and checkpoints name it as their origin. */
  base_url: addressSetting
    .refine(
      (text) => !/[?#]|^[^/]*\/\/[^/]*@/.test(text),
      "expected an address without a query, a fragment and credentials: it is part of every link, and of the log's name",
    )
    .default("http://localhost:8402"),
  /**
   * Id of the ERC-8004 agent that you minted for this service, `eip155:8453:0xREGISTRY/ID`, for the registration file
   * that the service publishes. null: no agent.
   */
  agent: z
    .string()
    .regex(/^eip155:\d{1,15}:0x[0-9a-fA-F]{40}\/\d{1,15}$/, "expected eip155:CHAIN:0xREGISTRY/ID")
    .nullable()
    .default(null),
  host: z.string().min(1).default("127.0.0.1"),
  port: z.int().min(0).max(65535).default(8402),
  /** Source revision of the build (a commit), shown in logs and metrics; null: unknown. */
  revision: z
    .string()
    .regex(/^[\w.+:/-]{1,100}$/, "expected the name of a revision")
    .nullable()
    .default(null),
  log_level: z.enum(["trace", "debug", "info", "warn", "error", "fatal", "silent"]).default("warn"),
  /** Number of partitions of a new log; an existing log keeps its own. */
  log_partitions: powerOfTwo.default(2),
  /** `kafka://host:port[,host:port]/prefix`; null: the embedded log in the data folder. */
  log: z.string().startsWith("kafka://").nullable().default(null),
  kafka: z
    .strictObject({
      /**
       * Whether this program creates missing topics, with `replicas` and `min_in_sync`; otherwise an operator creates
       * them.
       */
      create: z.boolean().default(false),
      replicas: z.int().min(1).max(9).default(3),
      min_in_sync: z.int().min(1).max(9).default(2),
      tls: z.boolean().default(false),
      mechanism: z.enum(["plain", "scram-sha-256", "scram-sha-512"]).default("scram-sha-512"),
      username: z.string().nullable().default(null),
      password: z.string().nullable().default(null),
    })
    .prefault({}),
  /** `s3://bucket[/folder]`; null: a folder in the data folder. Each store has credentials of its own. */
  stores: z
    .strictObject({
      private: bucket.nullable().default(null),
      public: bucket.nullable().default(null),
      /** Requests and answers of bought calls, shared by all replicas that sell; null: a folder in the data folder. */
      orders: bucket.nullable().default(null),
      region: z.string().min(1).default("us-east-1"),
      /** Address of the S3 server; null: Amazon's. */
      endpoint: addressSetting.nullable().default(null),
      private_key_id: z.string().nullable().default(null),
      private_key: z.string().nullable().default(null),
      public_key_id: z.string().nullable().default(null),
      public_key: z.string().nullable().default(null),
      orders_key_id: z.string().nullable().default(null),
      orders_key: z.string().nullable().default(null),
    })
    .prefault({}),
  /**
   * Witnesses that are not ours (c2sp.org/tlog-witness), to which the publisher submits each checkpoint: a name for
   * metrics and the status page, the witness's verifier key (Ed25519, type 0x04), and its submission prefix.
   */
  witnesses: z
    .array(
      z.strictObject({
        name: z.string().regex(/^[\w.:/-]{1,100}$/, "expected letters, digits and . _ : / -"),
        key: z
          .string()
          // An ML-DSA-44 key has some 1,800 characters. It passes here, and note.ts refuses it with an error that
          // names its type.
          .max(2_400)
          .regex(/^[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]+={0,2}$/, "expected a verifier key: name+id+base64"),
        url: addressSetting,
      }),
    )
    .max(16)
    .default([]),
  witnessing: z
    .strictObject({
      /** How many of the witnesses have to cosign a checkpoint. */
      quorum: z.int().min(0).max(16).default(0),
      /** Longest wait for all witnesses together before a checkpoint is published, ms. */
      patience_ms: z.int().min(50).max(60_000).default(2_000),
      /**
       * If fewer witnesses than `quorum` have cosigned in time: `publish` the checkpoint anyway, or `hold` it until
       * enough have.
       */
      below_quorum: z.enum(["publish", "hold"]).default("publish"),
    })
    .prefault({}),
  monitor: z
    .strictObject({
      /**
       * Secret of `touchstone monitor --webhook`, `whsec_` and the base64 of 24 to 64 bytes: every notice carries an
       * HMAC under it (Standard Webhooks); null: no signature.
       */
      webhook_secret: z
        .string()
        .regex(/^whsec_[A-Za-z0-9+/]{32,86}={0,2}$/, "expected whsec_ and the base64 of 24 to 64 bytes")
        .nullable()
        .default(null),
    })
    .prefault({}),
  market: z
    .strictObject({
      /** Ports of the demo's two witnesses on 127.0.0.1; 0: any free port. */
      witness_ports: z.array(z.int().min(0).max(65535)).length(2).default([8411, 8412]),
    })
    .prefault({}),
  /** Listener of `/health` and `/metrics` of every role, for operators; never on a public address. */
  status: z
    .strictObject({
      host: z.string().min(1).default("127.0.0.1"),
      /** null: no listener; 0: any free port. */
      port: z.int().min(0).max(65535).nullable().default(null),
      /** Seconds without a successful run of a role's work after which `/health` answers 503. */
      patience_s: z.int().min(1).max(86_400).default(300),
    })
    .prefault({}),
  /** For development: whether sellers' addresses may be on this machine. Never set it in production. */
  allow_loopback: z.boolean().default(false),
  /** For development, with `allow_loopback` only: the address that every seller's host resolves to, such as 127.0.0.1. */
  resolve_to: z.ipv4().nullable().default(null),
  /**
   * Reliable addresses on other machines. If most of them fail when a seller's endpoint fails, the fault counts as
   * ours. Observers need at least one.
   */
  control_urls: z.array(addressSetting).max(8).default([]),
  /** File of mappings: which endpoints are asked questions with a known answer, and how (docs/classes.md). */
  classes_file: z.string().min(1).nullable().default(null),
  /**
   * Source of the right answer to questions about prices: `url` contains `{base}` and `{quote}`, and `answer` is the
   * JSON pointer to the price in its response. null: no such questions are asked.
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
  /** Catalogues that listings are read from: addresses, known names, or objects (catalogues.ts). */
  catalogues: z.array(CatalogueSetting).max(64).default([]),
  /** Ports of sellers that may be contacted, besides 80 and 443. */
  ports: z.array(z.int().min(1).max(65535)).max(64).default([]),
  chain: z
    .strictObject({
      rpc_url: addressSetting.nullable().default(null),
      network: caip2.default("eip155:84532"),
      /** Contract of the token that is paid with; null: the network's USDC. */
      asset: z.string().nullable().default(null),
      confirmations: confirmations.nullable().default(null),
    })
    .prefault({}),
  /** Networks that payments are made on; when empty, the one network of `chain`. */
  networks: z
    .array(
      z.strictObject({
        id: caip2,
        /** Nodes in the order in which they are asked, until one answers. */
        rpc_urls: z.array(addressSetting).min(1).max(8),
        /** Number of nodes that have to agree on a settlement before it is believed. */
        agree: z.int().min(1).max(8).default(1),
        /**
         * Number of blocks after which a payment counts as settled, or a block tag; null: `finalized`, on test
         * networks 1.
         */
        confirmations: confirmations.nullable().default(null),
        /** Largest number of gwei of the chain's own coin that a unit of gas may cost; above it nothing is sent. */
        gas_ceiling_gwei: z.number().positive().max(1_000_000).default(GAS_CEILING_GWEI),
        /** Tokens with EIP-3009, one unit of which is one dollar; empty: the network's USDC. */
        assets: z
          .array(
            z.strictObject({
              address: z.string().regex(/^0x[0-9a-fA-F]{40}$/, "expected the address of a contract"),
              symbol: z.string().min(1).max(20).default("USDC"),
              decimals: z.int().min(0).max(36).default(6),
              /** Name and version of the token's EIP-712 domain; required except on Tempo. */
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
      /** Whether wallets mint their money; works on a local chain only and is refused on any other. */
      mint: z.boolean().default(false),
      /**
       * Units of a token; an alarm is raised when the known wallet (whose address sellers know), or all unused blind
       * wallets (whose addresses they do not know) together, hold less.
       */
      low_water: money.default("1.00"),
      /** Number of unused blind wallets with money; an alarm is raised when fewer are left. */
      low_blind: z.int().min(0).max(10_000).default(4),
    })
    .prefault({}),
  /** Sale of calls to sellers' endpoints and of our own work for x402 payments (docs/operate.md). Off without a network. */
  sell: z
    .strictObject({
      /** CAIP-2 id of the configured network that buyers pay on and sellers are paid on; null: nothing is sold. */
      network: caip2.nullable().default(null),
      /**
       * Address of that network's token that buyers pay in, with EIP-3009 and six decimals; null: the first of its
       * `assets`.
       */
      asset: z
        .string()
        .regex(/^0x[0-9a-fA-F]{40}$/, "expected the address of a contract")
        .nullable()
        .default(null),
      /**
       * Facilitators that charge buyers, in order of preference: "own" (this process; the gas wallet pays the gas) or
       * {url, headers}.
       */
      facilitators: z
        .array(
          z.union([
            z.literal("own"),
            z.strictObject({
              url: addressSetting,
              headers: z.record(z.string().max(100), z.string().max(4096)).default({}),
            }),
          ]),
        )
        .min(1)
        .max(8)
        .default(["own"]),
      /** Lowest seller's price at which calls are sold. */
      least_price: money.default("0.000100"),
      /**
       * Largest amount of our own money that may be paid to sellers before the buyer's charge is confirmed: for one
       * buyer, for one client network (an IPv4 address, or 56 bits of IPv6), and for all buyers that pay after delivery
       * and have no credit.
       */
      open_per_buyer: money.default("2.00"),
      open_per_network: money.default("5.00"),
      open: money.default("20.00"),
      /**
       * Largest amount that may be lost in a UTC day: through one seller's platform, endpoint or address (which then
       * refuses only endpoints without a letter, a grade from A to F); and through all buyers without credit, or all
       * sellers without a letter.
       */
      loss_per_seller_day: money.default("1.00"),
      loss_per_day: money.default("5.00"),
      /** UTC days for which a paid answer stays available to its buyer after the purchase. */
      answers_kept_days: z.int().min(1).max(3_650).default(30),
      /**
       * Largest size of all stored requests and answers together, MiB; above it the oldest paid answers are removed
       * early.
       */
      answers_kept_mb: z.int().min(16).max(100_000_000).default(8_192),
    })
    .prefault({}),
  /** Services that `research/brief` uses besides documents and the record. */
  brief: z
    .strictObject({
      /**
       * Language model that chooses the sentences of a brief, at an address with OpenAI's API: `url` is the part
       * before `/chat/completions`, `headers` may hold the API key. null: this process ranks the sentences by their
       * words.
       */
      model: z
        .strictObject({
          url: addressSetting,
          name: z.string().min(1).max(200),
          headers: z.record(z.string().max(100), z.string().max(4096)).default({}),
        })
        .nullable()
        .default(null),
      /**
       * Search of the web for questions that name no address: `url` contains `{question}`, and its answer is JSON.
       * `results` is the JSON pointer to the list of results, and `address` the JSON pointer to the address in each
       * result. null: the web is not searched.
       */
      search: z
        .strictObject({
          url: addressSetting.refine(
            (text) => text.includes("{question}"),
            "expected an address that contains {question}",
          ),
          headers: z.record(z.string().max(100), z.string().max(4096)).default({}),
          results: z.string().max(500).default("/results"),
          address: z.string().max(500).default("/url"),
        })
        .nullable()
        .default(null),
    })
    .prefault({}),
  spend: z
    .strictObject({
      per_call: money.default("0.10"),
      per_host_day: money.default("2.00"),
      /**
       * Caps for one registrable domain and for one payTo address, since a seller can create any number of hosts for
       * free.
       */
      per_domain_day: money.default("2.50"),
      per_payee_day: money.default("6.25"),
      per_day: money.default("25.00"),
      total: money.default("1000.00"),
      /** Share of a day's caps that is reserved for endpoints that were never paid. */
      new_share: z
        .string()
        .regex(/^(?:0(?:\.\d{1,6})?|1(?:\.0{1,6})?)$/, 'expected a share from 0 to 1 as text, such as "0.2"')
        .default("0.2"),
    })
    .prefault({}),
  observe: z
    .strictObject({
      hosts_at_once: z.int().min(1).max(256).default(16),
      /**
       * Number of payees (addresses that sellers are paid at) whose payers are read from the chain in an hour; each
       * is read once a week (docs/operate.md); 0: none.
       */
      payees_per_hour: z.int().min(0).max(1_000).default(5),
      /**
       * Local addresses that known calls (calls that a seller can recognise as this service's) are sent from; empty:
       * the system's choice.
       */
      known_addresses: z.array(ip).max(64).default([]),
      /**
       * Local addresses that blind calls (calls that look like those of any buyer) are sent from, one for each
       * endpoint and day; name addresses of each IP family that the machine has. Empty: blind calls are sent from the
       * addresses of known calls, by which a seller can recognise them.
       */
      blind_addresses: z.array(ip).max(64).default([]),
      /** Priority when the budget is short, higher first, by host or capability id; 0 for all others. */
      priority: z.record(hostOrCapability, z.int().min(-100).max(100)).default({}),
      /** Hosts, or capability ids of endpoints, that are probed and never paid. */
      exclude: z.array(hostOrCapability).max(1_000).default([]),
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
      /** Exposure reports for one client in a minute, and dependencies in these reports. */
      exposures_per_minute: z.int().min(1).default(10),
      dependencies_per_minute: z.int().min(1).default(600),
      /**
       * Urls without a record that are probed within an hour because one client, or all clients together, asked for
       * them; further ones wait longer.
       */
      asks_per_hour: z.int().min(1).default(20),
      asks_per_hour_total: z.int().min(1).default(50_000),
      /** Largest number of urls that wait for a probe. */
      asks_in_line: z.int().min(1).default(50_000),
      /** Urls without a record of one registrable domain that are probed in an hour; further ones wait longer. */
      asks_per_domain_hour: z.int().min(1).default(5),
      /**
       * Probes of a seller's listing while a client waits for the result: for one client in an hour, of one domain in
       * a minute, and at the same time in all.
       */
      looks_per_hour: z.int().min(1).default(20),
      looks_per_domain_minute: z.int().min(1).default(4),
      looks_at_once: z.int().min(1).max(64).default(6),
      /**
       * Receivers of notices to which a challenge is sent in an hour before they are accepted: for one client, and
       * under one registrable domain.
       */
      watchers_per_hour: z.int().min(1).default(5),
      challenges_per_domain_hour: z.int().min(1).default(60),
      /** Active watchers (subscriptions to notices) with receivers under one registrable domain, and in all. */
      watchers_per_domain: z.int().min(1).default(20),
      watchers: z.int().min(1).max(100_000).default(10_000),
      /** Notices to one registrable domain of receivers in a minute. */
      notices_per_minute: z.int().min(1).default(60),
      /** Open sockets of all clients, and of one client; sockets of a trusted proxy count in the total only. */
      sockets: z.int().min(1).max(1_000_000).default(10_000),
      sockets_per_client: z.int().min(1).default(128),
      /** Slowest rate at which a client may read an answer or send a body, and how long a socket may be slower. */
      min_bytes_per_s: z.int().min(0).default(8_192),
      slow_after_s: z.int().min(1).max(3_600).default(20),
      /** Longest time for the headers of a request, and for a whole request. */
      headers_timeout_s: z.int().min(1).max(3_600).default(10),
      request_timeout_s: z.int().min(1).max(3_600).default(30),
      /**
       * Long answers (feed, index, large objects) that are being sent to all clients, and to one; a mirror uses 8, a
       * replica 16.
       */
      streams: z.int().min(1).default(256),
      streams_per_client: z.int().min(1).default(40),
      /** MiB of long answers and objects that are sent to one client in an hour. */
      stream_mb_per_hour: z.int().min(1).max(1_000_000_000).default(8_192),
      trusted_proxies: z.array(ipOrNetwork).default([]),
    })
    .prefault({}),
});

/** Limits on the requests of clients and on the resources of this process that they may occupy. */
export type Limits = z.infer<typeof Settings>["limits"];
/** The default limits. */
export const DEFAULT_LIMITS: Limits = Settings.shape.limits.parse(undefined);

/** The settings of a process. */
export type Config = z.infer<typeof Settings> & {
  /** Path of the file that was read, or null. */
  file: string | null;
};

const PREFIX = "TOUCHSTONE_";
/**
 * Variables with the prefix of the settings that are not settings: `TOUCHSTONE_CONFIG` holds the path of the settings
 * file.
 */
const NOT_SETTINGS = new Set([`${PREFIX}CONFIG`]);

/** Finds a variable's setting: `TOUCHSTONE_SPEND_PER_CALL` -> ["spend", "per_call"]; null when there is none. */
function settingPath(name: string): string[] | null {
  const settingName = name.slice(PREFIX.length).toLowerCase();
  for (const [key, field] of Object.entries(Settings.shape)) {
    if (key === settingName) return [key];
    const inner = field instanceof z.ZodPrefault ? field.unwrap() : field;
    if (inner instanceof z.ZodObject && settingName.startsWith(`${key}_`)) {
      const rest = settingName.slice(key.length + 1);
      if (rest in inner.shape) return [key, rest];
    }
  }
  return null;
}

/** The expected form of a variable for a list or an object, with an example that works in a shell and in an env file. */
const JSON_FORMS: Record<string, string> = {
  array: `a list as a JSON array in one line, such as ["https://one.example/","https://two.example/"]`,
  object: `an object as JSON in one line, such as {"name":"value"}`,
  record: `an object as JSON in one line, such as {"api.example.com":1}`,
};

/** Describes a wrong value; for an environment variable that must be a list or an object, by the expected JSON form. */
function describeIssue(issue: z.core.$ZodIssue, fromEnv: boolean): string {
  if (issue.code === "unrecognized_keys") {
    const names = namesAt(issue.path);
    const near = issue.keys.flatMap((key) => nearName(key, names) ?? []);
    return `there is no setting ${issue.keys.join(", ")}${didYouMean(near)}`;
  }
  const form = fromEnv && issue.code === "invalid_type" ? JSON_FORMS[issue.expected] : undefined;
  return form === undefined ? issue.message : `expected ${form}`;
}

const didYouMean = (names: readonly string[]): string =>
  names.length === 0 ? "" : `; did you mean ${names.join(", ")}?`;

/** Returns the first issue of each value: further ones follow from it, such as a text that is no list and too long. */
const firstIssues = ({ issues }: z.ZodError): z.core.$ZodIssue[] => {
  const byPath = new Map<string, z.core.$ZodIssue>();
  for (const issue of issues) {
    const path = JSON.stringify(issue.path);
    if (!byPath.has(path)) byPath.set(path, issue);
  }
  return [...byPath.values()];
};

/** Returns the names of the settings in the object at a path; empty if the schema has no such object. */
function namesAt(path: readonly PropertyKey[]): string[] {
  let schema: z.core.$ZodType | undefined = Settings;
  for (const key of path) {
    if (schema instanceof z.ZodObject) schema = schema.shape[String(key)];
    else schema = schema instanceof z.ZodArray ? schema.element : undefined;
    schema = schema && withoutDefault(schema);
    if (schema instanceof z.ZodNullable) schema = withoutDefault(schema.unwrap());
  }
  return schema instanceof z.ZodObject ? Object.keys(schema.shape) : [];
}

/** Returns the variables of all settings that a variable can set. */
const allVariables = (): string[] =>
  namesAt([])
    .flatMap((name) => [name, ...namesAt([name]).map((inner) => `${name}_${inner}`)])
    .map((name) => `${PREFIX}${name.toUpperCase()}`);

/** Parses a variable as JSON (`8402`, `true`, `["https://.."]`), or takes it as text (`warn`). */
function parseSetting(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "string" ? text : value;
  } catch {
    return text;
  }
}

/** Returns the schema of a setting, without its default. */
function schemaAt(path: readonly string[]): z.core.$ZodType {
  let schema: z.core.$ZodType = Settings;
  for (const key of path) schema = withoutDefault((schema as z.ZodObject).shape[key]!);
  return schema;
}

const withoutDefault = (schema: z.core.$ZodType): z.core.$ZodType =>
  schema instanceof z.ZodDefault || schema instanceof z.ZodPrefault ? withoutDefault(schema.unwrap()) : schema;

/**
 * Parses a variable by the type of its setting. Text is taken as it is, even if it looks like a number, as a revision
 * or money may; `null` is null where the setting may be null.
 */
function parseVariable(path: readonly string[], text: string): unknown {
  const schema = schemaAt(path);
  const isNullable = schema instanceof z.ZodNullable;
  const { type } = (isNullable ? withoutDefault(schema.unwrap()) : schema)._zod.def;
  return type === "string" && !(isNullable && text === "null") ? text : parseSetting(text);
}

/** Applies environment variables to the settings. @returns the paths that were set */
function applyEnvironment(settings: Record<string, unknown>, env: NodeJS.ProcessEnv, problems: string[]): string[][] {
  const environmentPaths: string[][] = [];
  for (const [name, text] of Object.entries(env)) {
    if (!name.startsWith(PREFIX) || NOT_SETTINGS.has(name) || text === undefined) continue;
    const path = settingPath(name);
    if (!path) {
      const near = [nearName(name, allVariables()) ?? []].flat();
      problems.push(`${name} (environment): there is no such setting${didYouMean(near)}`);
      continue;
    }
    const value = parseVariable(path, text);
    if (path.length === 1) settings[path[0]!] = value;
    else settings[path[0]!] = { ...(settings[path[0]!] as object | undefined), [path[1]!]: value };
    environmentPaths.push(path);
  }
  return environmentPaths;
}

/** Removes the excerpt of the file from a JSON parser's error message, since the file may hold a password. */
const removeFileText = (says: string): string =>
  says.replace(/,? *(?:\.{3})?"[\s\S]*"(?:\.{3})? is not valid JSON$/, "");

/** Adds the secrets in these settings to the texts that log lines and error messages hide. */
function addSecretsOf(settings: z.infer<typeof Settings>): void {
  const { kafka, stores, chain, networks, control_urls, catalogues, sell, brief, monitor } = settings;
  addSecrets(kafka.password, stores.private_key, stores.public_key, stores.orders_key, monitor.webhook_secret);
  for (const address of [chain.rpc_url, ...networks.flatMap(({ rpc_urls }) => rpc_urls)])
    addAddressSecrets(address, true);
  const allCatalogues = catalogues.map(toCatalogue);
  const facilitators = sell.facilitators.filter((one) => one !== "own");
  const briefServices = [brief.model, brief.search].filter((one) => one !== null);
  for (const { headers } of [...facilitators, ...briefServices]) addSecrets(...Object.values(headers));
  for (const { headers } of allCatalogues) addSecrets(...Object.values(headers));
  for (const address of [
    stores.endpoint,
    ...control_urls,
    ...[...allCatalogues, ...facilitators, ...briefServices].map(({ url }) => url),
  ])
    addAddressSecrets(address);
}

/**
 * Validates settings and adds their secrets to the texts that `redact` hides.
 * @returns the problems by setting; empty if valid
 */
export function problemsIn(settings: object): { at: string; says: string }[] {
  const parsed = Settings.safeParse(settings);
  if (parsed.success) addSecretsOf(parsed.data);
  return (parsed.error ? firstIssues(parsed.error) : []).map((issue) => ({
    at: issue.path.join("."),
    says: describeIssue(issue, false),
  }));
}

/** Returns the path of the settings file: `file`, else `TOUCHSTONE_CONFIG`, else `touchstone.json` in the working folder. */
export const settingsFile = (file?: string, env: NodeJS.ProcessEnv = process.env): string =>
  resolve(file ?? env[`${PREFIX}CONFIG`] ?? "touchstone.json");

/**
 * Loads the settings from a JSON file and the environment, which overrides the file. The file is `file`, else
 * `TOUCHSTONE_CONFIG`, else `touchstone.json` in the working folder if it exists.
 * @param flags variables from the command line, which override the environment
 * @throws ConfigError naming all wrong settings
 */
export function loadConfig(
  file?: string,
  env: NodeJS.ProcessEnv = process.env,
  flags: Record<string, string> = {},
): Config {
  const namedFile = file ?? env[`${PREFIX}CONFIG`];
  const path = settingsFile(file, env);
  let settings: Record<string, unknown> = {};
  const isFileThere = existsSync(path);
  if (!isFileThere && namedFile) throw new ConfigError([`${namedFile}: there is no such file`]);
  if (isFileThere) {
    try {
      settings = JSON.parse(readFileSync(path, "utf8")) as Record<string, unknown>;
    } catch (error) {
      throw new ConfigError([`${path}: ${removeFileText((error as Error).message)}`]);
    }
  }
  const problems: string[] = [];
  const environmentPaths = applyEnvironment(settings, { ...env, ...flags }, problems);
  const parsed = Settings.safeParse(settings);
  if (!parsed.success) {
    for (const issue of firstIssues(parsed.error)) {
      const issuePath = issue.path.map(String);
      const fromEnv = environmentPaths.some((key) => key.every((part, i) => part === issuePath[i]));
      const where = fromEnv
        ? `${PREFIX}${issuePath.join("_").toUpperCase()} (environment)`
        : `${issuePath.join(".") || "the file"} (${path})`;
      problems.push(`${where}: ${describeIssue(issue, fromEnv)}`);
    }
  }
  if (problems.length || !parsed.success) throw new ConfigError(problems);
  addSecretsOf(parsed.data);
  return { ...parsed.data, file: isFileThere ? path : null };
}

/** The CI workflow that runs this process (docs.github.com, "Variables reference"). */
export interface Workflow {
  isGitHub: boolean;
  /** File that the summary of the job is appended to; null when there is none. */
  summary: string | null;
}

/** Returns the workflow that runs this process, from GitHub's environment variables. */
export const workflowOf = (env: NodeJS.ProcessEnv = process.env): Workflow => ({
  isGitHub: env.GITHUB_ACTIONS === "true",
  summary: env.GITHUB_STEP_SUMMARY || null,
});
