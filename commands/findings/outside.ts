import { isIP } from "node:net";
import { toCatalogue } from "../../infra/catalogues.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import type { Egress, EgressResult } from "../../infra/egress/egress.ts";
import { broken, type Finding, ok, warn } from "../../infra/finding.ts";
import { addressesOfThisMachine } from "./settings.ts";

/** Difference between this machine's clock and the control addresses' clocks that is reported as a warning, seconds. */
const CLOCK_WARN_S = 5;
/**
 * Difference between this machine's clock and the control addresses' clocks that is reported as `broken`, seconds. With
 * a larger difference the publisher refuses to publish.
 */
const CLOCK_BROKEN_S = 30;

const describeResult = (result: EgressResult): string =>
  result.outcome === "answered" ? `answered ${result.status}` : `${result.outcome}: ${result.says}`;

const isOnThisMachine = (address: string): boolean => {
  const bareAddress = address.replace(/^::ffff:/, "");
  return (
    bareAddress === "::1" ||
    bareAddress.startsWith("127.") ||
    (isIP(bareAddress) !== 0 && addressesOfThisMachine().includes(bareAddress))
  );
};

/**
 * Returns why a role refuses to pay, or null. A control address is an address on another machine that is always up: if
 * it fails together with a seller, this machine has the outage. Without one, that outage would count against the
 * seller.
 */
export function whyNotPayWithoutControl({
  control_urls,
  allow_loopback,
}: Pick<Config, "control_urls" | "allow_loopback">): string | null {
  return control_urls.length > 0 || allow_loopback
    ? null
    : "control_urls: name addresses on other machines that are always up: without one, an outage of this machine would count against a seller, so nothing is paid";
}

/**
 * Checks that the control addresses answer and are not on this machine, and compares this machine's clock with theirs.
 * If at most half of them are down, the finding is a warning, since an outage of this machine is assumed only if more
 * than half fail.
 */
export async function controlFindings(config: Config, egress: Egress, clock: Clock): Promise<Finding[]> {
  const { control_urls: urls } = config;
  const problem = whyNotPayWithoutControl(config);
  if (problem !== null) return [broken("control", "none is named", problem)];
  const answers = await Promise.all(
    urls.map(async (url) => {
      const result = await egress.fetch({ url, method: "GET", profile: "control" });
      return { url, result, at: clock.now() };
    }),
  );
  const addressFindings = answers.map(({ url, result }, i) => controlFinding(`control ${i + 1}`, url, result, config));
  const answering = addressFindings.filter(({ standing }) => standing !== "broken").length;
  // Addresses that are down do not change any verdict while at least half of all control addresses answer.
  const isMinorityDown = answering > 0 && answering * 2 >= addressFindings.length;
  const findings = addressFindings.map(
    (one): Finding => (one.standing === "broken" && isMinorityDown ? { ...one, standing: "warn" } : one),
  );
  if (urls.length === 1)
    findings.push(
      warn(
        "control",
        "there is only one: while it is down, every failed call counts as an outage of this machine",
        "name two or three, at different hosting providers",
      ),
    );
  return [...findings, clockFinding(answers)];
}

function controlFinding(name: string, url: string, result: EgressResult, { allow_loopback }: Config): Finding {
  if (result.outcome !== "answered" || result.status >= 500)
    return broken(
      name,
      `${url} ${describeResult(result)}`,
      "replace it with an address that is up, or fix this machine's connection",
    );
  if (isOnThisMachine(result.remoteAddress) && !allow_loopback)
    return broken(
      name,
      `${url} is on this machine, so it answers even without a network`,
      "name an address on another machine",
    );
  return ok(name, `${url} ${describeResult(result)} in ${Math.round(result.totalMs)} ms`);
}

/** Compares this machine's clock with the `Date` headers of the answers (RFC 9110, section 6.6.1: whole seconds). */
function clockFinding(answers: readonly { result: EgressResult; at: Date }[]): Finding {
  const differences: number[] = [];
  for (const { result, at } of answers) {
    const date = result.outcome === "answered" ? Date.parse(result.headers.date ?? "") : Number.NaN;
    if (!Number.isNaN(date)) differences.push((at.getTime() - date) / 1000);
  }
  if (differences.length === 0)
    return warn("clock", "no control address sends the time", "check the clock by hand: timedatectl");
  differences.sort((a, b) => a - b);
  const median = differences[Math.floor(differences.length / 2)]!;
  const text = `${Math.abs(median).toFixed(0)} s ${median < 0 ? "behind" : "ahead of"} ${differences.length} control addresses`;
  const todo = "synchronise it with a time server: times in the record cannot be corrected later";
  if (Math.abs(median) > CLOCK_BROKEN_S) return broken("clock", text, todo);
  return Math.abs(median) > CLOCK_WARN_S ? warn("clock", text, todo) : ok("clock", text);
}

/** Checks that each catalogue answers with JSON. A catalogue that is down is a warning. */
export async function catalogueFindings(
  { catalogues }: Pick<Config, "catalogues">,
  egress: Egress,
): Promise<Finding[]> {
  if (catalogues.length === 0)
    return [
      warn(
        "catalogues",
        "none is named: only endpoints that somebody asks about or adds are observed",
        "name some in the setting catalogues",
      ),
    ];
  return Promise.all(
    catalogues.map(toCatalogue).map(async ({ url, headers }, i) => {
      const name = `catalogue ${i + 1}`;
      const result = await egress.fetch({ url, method: "GET", headers, profile: "evidence" });
      const todo = "check whether its address has changed; what it listed stays in the record";
      if (result.outcome !== "answered" || result.status !== 200)
        return warn(name, `${url} ${describeResult(result)}`, todo);
      try {
        JSON.parse(Buffer.from(result.body).toString("utf8"));
      } catch {
        return warn(name, `${url} answers with something that is not JSON`, todo);
      }
      return ok(name, `${url}: ${result.body.length} bytes`);
    }),
  );
}
