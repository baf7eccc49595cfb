import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import type { Jwks } from "../infra/keys/jwk.ts";
import { verifyObject } from "../infra/keys/verify.ts";
import { symbolOf } from "../pipelines/record/networks.ts";
import type { Dependency } from "../serving/client/answers.ts";
import { isLineOf } from "../serving/client/ask.ts";
import { parseLines } from "../serving/pages/exposure.ts";
import { ProblemDocument } from "../serving/schemas/common.ts";
import { type ExposureLine, ExposureReport, MAX_DEPENDENCIES } from "../serving/schemas/exposure.ts";
import { parseNamedFile, readNamedFile, readNamedJsonFile } from "./files.ts";
import { printJsonText, printLines } from "./printer.ts";
import { columns } from "./report.ts";
import { fetchBounded } from "./sources.ts";
import type { OptionsOf } from "./table.ts";

/** Largest file of dependencies or of keys, bytes. */
const MAX_FILE = 1024 * 1024;
/** Limits for one response of the service. */
const ANSWER_LIMITS = { waitMs: 30_000, maxBytes: 8 * 1024 * 1024 };

/**
 * `touchstone exposure`: asks a service what its record holds about the dependencies in a file, and verifies and prints
 * the signed report.
 */
export async function exposureCommand(config: Config, file: string, options: OptionsOf<"exposure">): Promise<void> {
  const base = (options.base ?? config.base_url).replace(/\/+$/, "");
  const dependencies = dependenciesOf(file, (await readNamedFile(file, MAX_FILE)).toString("utf8"));
  const savedKeys = options.keys === undefined ? null : ((await readNamedJsonFile(options.keys, MAX_FILE)) as Jwks);
  const body = JSON.stringify({ dependencies });
  const answer = await fetchText(base, "/v1/exposure", { method: "POST", body });
  const keys = savedKeys ?? (JSON.parse(await fetchText(base, "/.well-known/svc-keys.json", {})) as Jwks);
  const report = verifyReport(answer, keys, dependencies);
  if (options.json) printJsonText(answer);
  else printLines(linesOf(report));
}

/**
 * Reads the dependencies from a file: a JSON array, `{"dependencies": [..]}`, or lines as the form of the service
 * takes them: a url, and after it calls a month, a price as `$0.01` and an address.
 * @throws Failure `unreadable`, also for one bad line, so that no part of a line is dropped or taken as url
 */
export function dependenciesOf(file: string, text: string): unknown[] {
  const isJson = /^\s*[[{]/.test(text);
  const value = isJson ? parseNamedFile(file, text) : null;
  const list = Array.isArray(value) ? value : (value as { dependencies?: unknown } | null)?.dependencies;
  if (isJson && !Array.isArray(list))
    throw new Failure("unreadable", `${file}: neither a list nor {"dependencies": [..]}`);
  const dependencies = isJson ? (list as unknown[]) : dependenciesOfLines(file, text);
  if (dependencies.length === 0) throw new Failure("unreadable", `${file} contains no dependency`);
  if (dependencies.length > MAX_DEPENDENCIES) {
    throw new Failure(
      "unreadable",
      `${file} contains ${dependencies.length} dependencies: at most ${MAX_DEPENDENCIES} are allowed`,
    );
  }
  return dependencies;
}

function dependenciesOfLines(file: string, text: string): unknown[] {
  const { dependencies, errors } = parseLines(text);
  if (errors.length > 0) throw new Failure("unreadable", `${file}: ${errors.slice(0, 20).join("; ")}`);
  return dependencies.map((one) => (typeof one !== "string" && Object.keys(one).length === 1 ? one.url : one));
}

/**
 * Fetches one answer of the service as text.
 * @throws Failure `unreachable`; `unreadable` when the service refuses the request
 */
async function fetchText(base: string, path: string, init: RequestInit): Promise<string> {
  const { status, text } = await fetchBounded(base + path, init, ANSWER_LIMITS).catch((error: Error) => {
    const { message, cause } = error as Error & { cause?: Error };
    throw new Failure("unreachable", `${base}${path}: ${cause?.message ?? message}`);
  });
  if (text === null)
    throw new Failure("unreachable", `${base}${path}: an answer of more than ${ANSWER_LIMITS.maxBytes} bytes`);
  if (status === 200) return text;
  const message = `${base}${path} answered ${status}${problemText(text)}`;
  throw new Failure(status === 400 || status === 413 ? "unreadable" : "unreachable", message);
}

/**
 * Returns the field errors of a problem document (RFC 9457), or its `detail` if it has none; empty for any other text.
 */
function problemText(text: string): string {
  try {
    const { detail, errors = [] } = ProblemDocument.parse(JSON.parse(text));
    const faults = errors.map((error) => `${error.pointer} ${error.detail}`);
    return `: ${faults.length > 0 ? faults.join("; ") : detail}`;
  } catch {
    return "";
  }
}

/**
 * Parses the report, verifies its signature, and checks that it is about these dependencies, in this order.
 * @throws Failure `tampered`
 */
function verifyReport(text: string, keys: Jwks, dependencies: readonly unknown[]): ExposureReport {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Failure("tampered", "the answer is not JSON");
  }
  const read = ExposureReport.safeParse(value);
  if (!read.success) throw new Failure("tampered", "the answer is not an exposure report");
  const verdict = verifyObject(keys, value, { purpose: "answers", at: read.data.answered_at });
  if (!verdict.ok) throw new Failure("tampered", `the signature of the report is not valid (${verdict.reason})`);
  const { lines } = read.data;
  const asked = dependencies.map((one) => (typeof one === "string" ? { url: one } : (one as Dependency)));
  if (lines.length !== asked.length || !asked.every((one, i) => isLineOf(lines[i]!, one)))
    throw new Failure("tampered", "the report is signed, but is not about these dependencies");
  return read.data;
}

const shortAddress = (address: string | null): string =>
  address === null ? "-" : address.length > 13 ? `${address.slice(0, 6)}..${address.slice(-4)}` : address;

const TOOK_MONEY_FLAGS = ["payee_took_the_money", "domain_took_the_money"];

/**
 * Returns the marks for the payee of a line: `(!)` if no 402 of the line's endpoint named this payee before, or the
 * newest does not; `(took)` if the payee or its domain took money elsewhere and delivered nothing.
 */
const payeeMarks = ({ flags, pay_to_seen_before }: ExposureLine): string => {
  const isUnknownPayee = pay_to_seen_before === false || flags.some((flag) => flag.startsWith("pay_to_"));
  return `${isUnknownPayee ? " (!)" : ""}${flags.some((flag) => TOOK_MONEY_FLAGS.includes(flag)) ? " (took)" : ""}`;
};

/** Formats the report for people: a line for each dependency, a line for each payee, and the sums. */
export function linesOf({ lines, payees, totals, answered_at, signing_key_id }: ExposureReport): string[] {
  const formatSpend = (line: ExposureLine): string =>
    line.monthly_spend === null
      ? "-"
      : `${line.monthly_spend}${line.unit === "USD" || line.price === null ? "" : ` ${line.asset === null ? "an unnamed asset" : symbolOf(line.asset)}`}`;
  const dependencies = columns([
    ["letter", "standing", "price", "a month", "pays to", "dependency"],
    ...lines.map((line) => [
      line.band,
      line.standing,
      line.price ?? "-",
      formatSpend(line),
      shortAddress(line.pay_to) + payeeMarks(line),
      line.asked,
    ]),
  ]);
  const addresses = columns([
    ["pays to", "endpoints", "a month", "of it failing", "not yet measured"],
    ...payees.map((one) => [
      one.address ?? "not known",
      String(one.dependencies),
      one.monthly_spend,
      one.monthly_spend_where_the_record_shows_a_failure,
      one.monthly_spend_not_yet_measured,
    ]),
  ]);
  const otherAssets = totals.other_assets.map(({ asset, dependencies: n }) => `${symbolOf(asset)} (${n})`);
  const marks = lines.map(payeeMarks).join("");
  const { related } = totals;
  return [
    ...dependencies,
    ...(marks.includes("(!)")
      ? ["(!) no 402 of this endpoint ever named this address, or the newest does not: check it before you pay"]
      : []),
    ...lines.flatMap((line) => (payeeMarks(line).includes("(took)") ? [`(took) ${line.asked}: ${line.why}`] : [])),
    "",
    ...addresses,
    "",
    `a month, in dollars: ${totals.monthly_spend}`,
    `  where the record shows a failure: ${totals.monthly_spend_where_the_record_shows_a_failure}`,
    `  not yet measured: ${totals.monthly_spend_not_yet_measured}`,
    `  lettered A to D: ${totals.monthly_spend_lettered}`,
    ...(related === undefined
      ? []
      : [`to payees or domains that took money elsewhere, counted above as well: ${related.monthly_spend}`]),
    ...(totals.without_spend > 0
      ? [`without a spend (no price known, or no number of calls given): ${totals.without_spend}`]
      : []),
    ...(otherAssets.length > 0 ? [`in other assets, not in these sums: ${otherAssets.join(", ")}`] : []),
    `signed by ${signing_key_id} at ${answered_at}`,
    "--json also has why, flags and defects of each line; docs/exposure.md",
  ];
}
