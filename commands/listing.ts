import { randomBytes } from "node:crypto";
import { appendFile } from "node:fs/promises";
import { systemClock } from "../infra/clock.ts";
import { type Config, ConfigError, type Workflow, workflowOf } from "../infra/config.ts";
import { resolveTo } from "../infra/egress/address.ts";
import { createEgress } from "../infra/egress/create.ts";
import { Failure } from "../infra/errors.ts";
import { ownLoop } from "../infra/loop-watch.ts";
import { configuredNetworks, railOn } from "../infra/rails/networks.ts";
import { isLoopbackHost, parseUrl } from "../infra/url.ts";
import { ControlCalls } from "../pipelines/1-observe/probe/exchange.ts";
import { processReader } from "../pipelines/1-observe/reading/reader.ts";
import { addressKey } from "../pipelines/record/networks.ts";
import { BadUrl, normaliseUrl } from "../pipelines/record/url.ts";
import { listingAnswer } from "../serving/answers/listing-look.ts";
import { stockAdviceOf } from "../serving/answers/stock-advice.ts";
import { MAX_PAYEES } from "../serving/client/guard.ts";
import { DEFAULT_POLICY } from "../serving/client/policy.ts";
import type { ListingAnswer } from "../serving/schemas/listing.ts";
import { type Annotation, annotationLine, disableCommands, markdownTable } from "./annotations.ts";
import { withOpen } from "./files.ts";
import { printJson, printLines } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/**
 * Severity of a finding. grave: clients refuse to pay, or the payment cannot be signed or goes to a wrong address.
 * mild: clients can pay nevertheless. note: nothing is wrong.
 */
export type Severity = "grave" | "mild" | "note";

/** One thing about an endpoint that its seller should know. */
export interface Finding {
  severity: Severity;
  /**
   * Code of the finding: the defect, the state of the endpoint (such as `silent`), or `stock_client` for what the
   * protocol's official client would do.
   */
  what: string;
  /** What was found, in words. */
  says: string;
  /** What the seller should change; null when unknown. */
  mend: string | null;
}

const SEVERITY_ORDER: readonly Severity[] = ["grave", "mild", "note"];

const severityOf = (defect: string): Severity => {
  if (defect === "paid_calls_refused") return "note";
  // A signature for another domain than the token's is rejected by the token. Without a valid `maxTimeoutSeconds` our
  // client cannot read for how long a signature would be valid, and refuses.
  return defect === "wrong_domain" || defect === "bad_timeout" || DEFAULT_POLICY.defects.includes(defect)
    ? "grave"
    : "mild";
};

/** Returns findings about what our client refuses by default although it is no defect. */
function clientFindings({ offers, defects }: Pick<ListingAnswer, "offers" | "defects">): Finding[] {
  const longestTimeoutS = Math.max(0, ...offers.map(({ max_timeout_s }) => max_timeout_s ?? 0));
  const payees = new Set(offers.flatMap(({ pay_to }) => (pay_to === null ? [] : addressKey(pay_to))));
  const { maxValidity_s } = DEFAULT_POLICY;
  const findings: Finding[] = [];
  // A timeout outside all bounds has the defect `bad_timeout` already.
  if (longestTimeoutS > maxValidity_s && !defects.some(({ defect }) => defect === "bad_timeout")) {
    const says = `a payment would be valid for ${longestTimeoutS} s; our client signs for ${maxValidity_s} s at most`;
    const mend = `Set \`maxTimeoutSeconds\` to ${maxValidity_s} or less; 60 is usual.`;
    findings.push({ severity: "grave", what: "validity", says, mend });
  }
  if (payees.size > MAX_PAYEES) {
    const says = `the offers name ${payees.size} addresses to pay; our client refuses more than ${MAX_PAYEES}`;
    findings.push({ severity: "grave", what: "too_many_payees", says, mend: "Name one address in each offer." });
  }
  return findings;
}

/** Returns all findings about an endpoint, the worst first. */
export function findingsOf({ state, says, mend, offers, defects, stock_client: stock }: ListingAnswer): Finding[] {
  const findings: Finding[] = [];
  if (state !== "asked") findings.push({ severity: "grave", what: state, says, mend });
  for (const { defect, says: words, mend: how } of defects)
    findings.push({ severity: severityOf(defect), what: defect, says: words, mend: how });
  findings.push(...clientFindings({ offers, defects }));
  if (state === "asked" && stock.verdict === "refuses")
    findings.push({ severity: "grave", what: "stock_client", says: stock.says, mend: stockAdviceOf(stock) });
  if (stock.verdict === "signs_without_spend_limits")
    findings.push({ severity: "mild", what: "stock_client", says: stock.says, mend: stockAdviceOf(stock) });
  return findings.sort((a, b) => SEVERITY_ORDER.indexOf(a.severity) - SEVERITY_ORDER.indexOf(b.severity));
}

/**
 * Probes one url from this machine. Unlike the service's observers, this command may also call addresses of this
 * machine, and any port that the url names.
 */
async function probeFromHere(
  config: Config,
  url: string,
  method: OptionsOf<"listing">["method"],
): Promise<ListingAnswer> {
  const parsedUrl = parseUrl(url);
  if (parsedUrl === null) throw new BadUrl(url, "not a url");
  const egress = createEgress({
    allowLoopback: config.allow_loopback || isLoopbackHost(parsedUrl.hostname),
    extraPorts: parsedUrl.port === "" ? config.ports : [...config.ports, Number(parsedUrl.port)],
    userAgent: `touchstone (+${config.base_url})`,
    loop: ownLoop,
    ...(config.allow_loopback && config.resolve_to !== null ? { resolve: resolveTo(config.resolve_to) } : {}),
  });
  return withOpen(egress, async () => {
    const rail = railOn(configuredNetworks(config));
    const control = new ControlCalls(egress, config.control_urls);
    const tools = { egress, rail, control, reader: processReader, loop: ownLoop };
    return listingAnswer(tools, normaliseUrl(url), method ?? null, systemClock, () => null);
  });
}

/** Formats the result for people: what the endpoint answered and offers, then the findings. */
export function linesOf(answer: ListingAnswer, findings: readonly Finding[]): string[] {
  const { method, url, status, says, offers, stock_client: stock, listing } = answer;
  const offerLines = offers.map(
    ({ scheme, network, price, amount_atomic, pay_to }) =>
      `  offers ${scheme} on ${network}: ${price ?? amount_atomic ?? "no amount"} to ${pay_to ?? "nobody"}`,
  );
  return [
    `${method} ${url}: ${says}${status === null ? "" : ` (status ${status})`}`,
    ...offerLines,
    `  ${stock.client}: ${stock.says}`,
    `  seller's own document: ${listing === null ? "none names this url" : listing.document}`,
    ...findings.flatMap(({ severity, what, says: words, mend }) => [
      `${severity.padEnd(5)} ${what}: ${words}`,
      ...(mend === null ? [] : [`      ${mend}`]),
    ]),
    findings.some(({ severity }) => severity !== "note")
      ? countOf(findings.length, "finding")
      : "nothing is wrong with it",
  ];
}

const countOf = (n: number, one: string): string => `${n} ${one}${n === 1 ? "" : "s"}`;

const LEVELS: Readonly<Record<Severity, Annotation["level"]>> = { grave: "error", mild: "warning", note: "notice" };

/** Converts a finding to an annotation that GitHub shows beside the code. */
export const annotationOf = (finding: Finding, url: string, file: string | null): Annotation => ({
  level: LEVELS[finding.severity],
  title: `${finding.what} of ${url}`,
  message: finding.mend === null ? finding.says : `${finding.says}\n${finding.mend}`,
  file,
});

/** Formats the findings for the summary of a job, in Markdown. */
export function summaryOf({ method, url, says }: ListingAnswer, findings: readonly Finding[]): string {
  const rows = findings.map(({ severity, what, says: words, mend }) => [severity, what, words, mend ?? ""]);
  const table =
    rows.length === 0 ? ["Nothing is wrong with it."] : markdownTable(["", "code", "finding", "what to change"], rows);
  return `${["### Listing", "", ...markdownTable(["endpoint", "answer"], [[`${method} ${url}`, says]]), "", ...table, ""].join("\n")}\n`;
}

/** Throws the failure for the most severe finding, if there is one above `note`. @throws Failure */
function failForWorst({ state, url }: ListingAnswer, findings: readonly Finding[]): void {
  if (state === "silent" || state === "unfetchable") throw new Failure("unreachable", `${url} sent no complete answer`);
  const count = (severity: Severity): number => findings.filter((one) => one.severity === severity).length;
  if (count("grave") > 0)
    throw new Failure("unpayable", `clients will not pay this endpoint: ${countOf(count("grave"), "grave finding")}`);
  if (count("mild") > 0)
    throw new Failure("flawed", `clients can pay this endpoint, with ${countOf(count("mild"), "mild finding")}`);
}

/**
 * `touchstone listing`: probes an endpoint once, for free, from this machine, as POST /v1/listings/validate does.
 * Nothing is paid, stored or sent to a service.
 * @throws Failure `flawed`, `unpayable` or `unreachable`; BadUrl, ConfigError
 */
export async function listingCommand(
  config: Config,
  url: string,
  options: OptionsOf<"listing">,
  workflow: Workflow = workflowOf(),
): Promise<void> {
  const answer = await probeFromHere(config, url, options.method);
  const findings = findingsOf(answer);
  const lines = linesOf(answer, findings);
  const forGitHub = (options.annotations ?? (workflow.isGitHub ? "github" : "none")) === "github";
  if (options.json) printJson({ ...answer, findings });
  else if (forGitHub) {
    printLines(disableCommands(lines, randomBytes(16).toString("hex")));
    printLines(findings.map((one) => annotationLine(annotationOf(one, answer.url, options.file ?? null))));
  } else printLines(lines);
  if (forGitHub && workflow.summary !== null) {
    await appendFile(workflow.summary, summaryOf(answer, findings)).catch((error: Error) => {
      throw new ConfigError([`GITHUB_STEP_SUMMARY (environment): ${error.message}`]);
    });
  }
  failForWorst(answer, findings);
}
