import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import ts from "typescript";
import { z } from "zod";
import { Settings } from "../infra/config.ts";

/**
 * The reference of the settings (`docs/settings.md`), made from the schema in infra/config.ts: names, kinds, bounds and
 * defaults are read from the schema, and what each setting means from the comment above it. A test holds the page against
 * this; `npx tsx test/settings-page.ts` writes it anew.
 */
const ROOT = resolve(import.meta.dirname, "..");
export const PAGE = join(ROOT, "docs/settings.md");

export interface Setting {
  /** `limits.sockets`, as it stands in the file. */
  name: string;
  kind: string;
  default: string;
  says: string;
}

/** Settings that stand without a comment of their own, or share one with others: their names say nearly all of it. */
const SAYS: Record<string, string> = {
  host: "Address of this machine on which the service listens.",
  port: "Port on which the service listens; 0: a free one.",
  log_level: "Which lines a process writes about itself.",
  catalogues: "Catalogues that are read for listings: addresses, names of known ones (docs/listings.md), or objects.",
  "kafka.replicas": "Copies of a topic that is created.",
  "kafka.min_in_sync": "Copies that must have an append before it counts.",
  "kafka.tls": "Whether the brokers are spoken to over TLS.",
  "kafka.mechanism": "How the user proves itself to the brokers.",
  "kafka.username": "User of the brokers; null: none.",
  "kafka.password": "Its password.",
  "stores.private": "Bucket of what is private; null: a folder of the data folder.",
  "stores.public": "Bucket of what is published; null: a folder of the data folder.",
  "stores.region": "Region that requests to the stores are signed for.",
  "stores.private_key_id": "Access key of the private bucket.",
  "stores.private_key": "Its secret.",
  "stores.public_key_id": "Access key of the public bucket; null: read as anybody.",
  "stores.public_key": "Its secret.",
  "stores.orders_key_id": "Access key of the orders' bucket, of the selling replicas alone.",
  "stores.orders_key": "Its secret.",
  "status.host": "Address on which `/health` and `/metrics` of every role listen. Never one that strangers reach.",
  "chain.rpc_url": "JSON-RPC address of the chain that is paid on; null: nothing is paid.",
  "chain.network": "CAIP-2 name of that chain.",
  "chain.asset": "Contract of the token that is paid with.",
  "chain.confirmations": "Blocks after which a payment counts as settled.",
  "spend.per_call": "Largest payment of one call.",
  "spend.per_host_day": "All payments to one host on a UTC day.",
  "spend.per_domain_day":
    "All payments to one registrable domain on a UTC day; a stranger has any number of hosts for nothing.",
  "spend.per_payee_day": "All payments to one payTo on a UTC day.",
  "spend.per_day": "All payments on a UTC day.",
  "spend.total": "All payments ever.",
  "observe.hosts_at_once": "Hosts that are called at the same time.",
  "lake.memory_limit": "Memory that the lake's engine may use.",
  "lake.threads": "Threads that it may use.",
  "limits.checks_per_minute": "Checks of one client in a minute.",
  "limits.trusted_proxies": "Proxies whose `X-Forwarded-For` is believed: addresses or networks.",
};

type Schema = {
  type?: string | string[];
  properties?: Record<string, Schema>;
  anyOf?: Schema[];
  enum?: string[];
  minimum?: number;
  maximum?: number;
  format?: string;
  items?: Schema;
};

const atPath = (value: unknown, path: string[]): unknown =>
  path.reduce((at, name) => (at as Record<string, unknown>)[name], value);

const isNull = ({ type }: Schema): boolean => type === "null";
/** Bounds that a whole number has by its kind alone. */
const UNBOUND = Number.MAX_SAFE_INTEGER;

/** A kind in words: "whole number, 1 to 64", "text or null". */
function kindOf(schema: Schema): string {
  const { type, anyOf, enum: values, minimum, maximum } = schema;
  if (anyOf) {
    const kinds = [...new Set(anyOf.filter((one) => !isNull(one)).map(kindOf))];
    return [...kinds, ...(anyOf.some(isNull) ? ["null"] : [])].join(" or ");
  }
  if (values) return values.map((value) => `\`${value}\``).join(", ");
  if (type === "integer") {
    const low = minimum === undefined || minimum === -UNBOUND ? "" : String(minimum);
    const high = maximum === undefined || maximum === UNBOUND ? "" : String(maximum);
    return `whole number${low && high ? `, ${low} to ${high}` : low ? `, at least ${low}` : ""}`;
  }
  if (Array.isArray(type))
    return type.map((one) => (one === "null" ? one : kindOf({ ...schema, type: one }))).join(" or ");
  if (type === "array") return "list (JSON array)";
  if (type === "boolean") return "`true` or `false`";
  return type === "object" ? "object (JSON)" : schema.format === "uri" ? "address" : "text";
}

/** The comment right above each setting, by its name. */
function commentsOf(source: ts.SourceFile): Map<string, string> {
  const comments = new Map<string, string>();
  const visit = (node: ts.Node, path: string): void => {
    let below = path;
    if (ts.isPropertyAssignment(node)) {
      below = path ? `${path}.${node.name.getText(source)}` : node.name.getText(source);
      const text = ts.getJSDocCommentsAndTags(node).map(({ comment }) => comment);
      if (typeof text[0] === "string") comments.set(below, text[0].replace(/\s+/g, " "));
    }
    ts.forEachChild(node, (child) => visit(child, below));
  };
  const isSettings = (node: ts.Node): node is ts.VariableStatement =>
    ts.isVariableStatement(node) && node.declarationList.declarations[0]!.name.getText(source) === "Settings";
  visit(source.statements.find(isSettings)!, "");
  return comments;
}

/** Every setting, in the order of the schema. @throws Error that names settings without a word on what they mean */
export function settingsOf(): Setting[] {
  const file = join(ROOT, "infra/config.ts");
  const source = ts.createSourceFile(file, readFileSync(file, "utf8"), ts.ScriptTarget.Latest, true);
  const comments = commentsOf(source);
  const defaults = Settings.parse({});
  const settings: Setting[] = [];
  const missing: string[] = [];
  const add = (name: string, schema: Schema, above: string | null): string | null => {
    const says = SAYS[name] ?? comments.get(name) ?? above;
    if (says === null) missing.push(name);
    settings.push({
      name,
      kind: kindOf(schema),
      default: JSON.stringify(atPath(defaults, name.split("."))),
      says: says ?? "",
    });
    return says;
  };
  const { properties } = z.toJSONSchema(Settings, { io: "input", unrepresentable: "any" }) as Schema;
  for (const [name, schema] of Object.entries(properties!)) {
    if (!schema.properties) {
      add(name, schema, null);
      continue;
    }
    let above: string | null = null;
    for (const [inner, one] of Object.entries(schema.properties)) above = add(`${name}.${inner}`, one, above);
  }
  if (missing.length > 0) throw new Error(`settings without a comment in infra/config.ts: ${missing.join(", ")}`);
  return settings;
}

/** One row a sentence: settings that share a comment stand together. */
function rowsOf(settings: readonly Setting[]): string[] {
  const rows: Setting[][] = [];
  for (const one of settings) {
    const row = rows.at(-1);
    if (row?.[0]?.says === one.says) row.push(one);
    else rows.push([one]);
  }
  const cell = (text: string): string => text.replaceAll("|", "\\|");
  const each = (of: readonly Setting[], say: (one: Setting) => string): string => [...new Set(of.map(say))].join("; ");
  return rows.map(
    (of) =>
      `| ${each(of, ({ name }) => `\`${name}\``)} | ${cell(of[0]!.says)} | ${cell(each(of, ({ kind }) => kind))} | ${cell(of.map((one) => `\`${one.default}\``).join("; "))} |`,
  );
}

const HEAD = ["| setting | what it means | value | default |", "|---|---|---|---|"];

/** Text of the page. */
export function settingsPage(): string {
  const settings = settingsOf();
  const groups = new Map<string, Setting[]>();
  for (const one of settings) {
    const group = one.name.includes(".") ? one.name.split(".")[0]! : "";
    groups.set(group, [...(groups.get(group) ?? []), one]);
  }
  const parts = [...groups].map(([name, of]) =>
    [`## ${name === "" ? "The service" : name}`, "", ...HEAD, ...rowsOf(of)].join("\n"),
  );
  return `# Settings

Every setting of the service, with its default. This page is made from the schema that the program checks them by.

Settings come from one JSON file (\`touchstone.json\`, or \`--config FILE\`) and from the environment. The environment wins. A setting \`spend.per_day\` is \`{"spend": {"per_day": "25.00"}}\` in the file and \`TOUCHSTONE_SPEND_PER_DAY=25.00\` in the environment. Every value is checked at start, and every wrong one is named at once.

In a variable, a **list** is a JSON array in one line, and an **object** is JSON in one line; commas between bare values are not read. In a file for systemd or compose nothing is quoted around it, in a shell single quotes are:

\`\`\`sh
# a line of an env file
TOUCHSTONE_CONTROL_URLS=["https://one.example/","https://two.example/"]
# in a shell
export TOUCHSTONE_CONTROL_URLS='["https://one.example/","https://two.example/"]'
\`\`\`

${parts.join("\n\n")}
`;
}

if (process.argv[1] === import.meta.filename) writeFileSync(PAGE, settingsPage());
