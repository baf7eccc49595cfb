import { isIP } from "node:net";
import { toCatalogue } from "../../infra/catalogues.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import type { Egress, EgressResult } from "../../infra/egress/egress.ts";
import { broken, type Finding, ok, warn } from "../../infra/finding.ts";
import { ownAddresses } from "./settings.ts";

/** Seconds by which our clock may differ from others' before the record is off, and before nothing can be published. */
const CLOCK_WARN_S = 5;
const CLOCK_BROKEN_S = 30;

const describeEnd = (result: EgressResult): string =>
  result.outcome === "answered" ? `answered ${result.status}` : `${result.outcome}: ${result.says}`;

const isOnThisMachine = (address: string): boolean => {
  const plain = address.replace(/^::ffff:/, "");
  return plain === "::1" || plain.startsWith("127.") || (isIP(plain) !== 0 && ownAddresses().includes(plain));
};

/**
 * Returns why the role refuses to pay without a control address, or null: an outage of ours would be counted against a
 * seller.
 */
export function whyNoControl({
  control_urls,
  allow_loopback,
}: Pick<Config, "control_urls" | "allow_loopback">): string | null {
  return control_urls.length > 0 || allow_loopback
    ? null
    : "control_urls: name addresses on other machines that are known to be up: without one, a fault of ours would count against a seller, so nothing is paid";
}

/**
 * Checks that the control addresses answer and are not on this machine, and compares our clock with theirs. If one of
 * several is down it is a warning, since the majority decides.
 */
export async function controlFindings(config: Config, egress: Egress, clock: Clock): Promise<Finding[]> {
  const { control_urls: urls } = config;
  const missing = whyNoControl(config);
  if (missing !== null) return [broken("control", "none is named", missing)];
  const said = await Promise.all(
    urls.map(async (url) => {
      const result = await egress.fetch({ url, method: "GET", profile: "control" });
      return { url, result, at: clock.now() };
    }),
  );
  const asked = said.map(({ url, result }, i) => controlFinding(`control ${i + 1}`, url, result, config));
  const answering = asked.filter(({ standing }) => standing !== "broken").length;
  // Addresses that are down have no effect while at least half of them answer.
  const outvoted = answering > 0 && answering * 2 >= asked.length;
  const found = asked.map(
    (one): Finding => (one.standing === "broken" && outvoted ? { ...one, standing: "warn" } : one),
  );
  if (urls.length === 1)
    found.push(
      warn(
        "control",
        "there is only one: while it is down, every fault counts as ours",
        "name two or three, with different hosters",
      ),
    );
  return [...found, clockFinding(said)];
}

function controlFinding(name: string, url: string, result: EgressResult, { allow_loopback }: Config): Finding {
  if (result.outcome !== "answered" || result.status >= 500)
    return broken(
      name,
      `${url} ${describeEnd(result)}`,
      "replace it with an address that is up, or fix this machine's connection",
    );
  if (isOnThisMachine(result.remoteAddress) && !allow_loopback)
    return broken(
      name,
      `${url} is on this machine: it is up whatever happens to our network`,
      "an address on another machine",
    );
  return ok(name, `${url} ${describeEnd(result)} in ${Math.round(result.totalMs)} ms`);
}

/** Compares our clock with the `Date` headers of the answers (RFC 9110, section 6.6.1: whole seconds). */
function clockFinding(said: readonly { result: EgressResult; at: Date }[]): Finding {
  const apart: number[] = [];
  for (const { result, at } of said) {
    const date = result.outcome === "answered" ? Date.parse(result.headers.date ?? "") : Number.NaN;
    if (!Number.isNaN(date)) apart.push((at.getTime() - date) / 1000);
  }
  if (apart.length === 0) return warn("clock", "no control address tells the time", "compare it by hand: timedatectl");
  apart.sort((a, b) => a - b);
  const middle = apart[Math.floor(apart.length / 2)]!;
  const says = `${Math.abs(middle).toFixed(0)} s ${middle < 0 ? "behind" : "ahead of"} what ${apart.length} control addresses say`;
  const todo = "let it follow a time server: times in the record cannot be taken back";
  if (Math.abs(middle) > CLOCK_BROKEN_S) return broken("clock", says, todo);
  return Math.abs(middle) > CLOCK_WARN_S ? warn("clock", says, todo) : ok("clock", says);
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
        "none is named: the record holds only what is asked for or added by hand",
        "name some in catalogues",
      ),
    ];
  return Promise.all(
    catalogues.map(toCatalogue).map(async ({ url, headers }, i) => {
      const name = `catalogue ${i + 1}`;
      const result = await egress.fetch({ url, method: "GET", headers, profile: "evidence" });
      const todo = "look whether its address has changed; what it listed stays in the record";
      if (result.outcome !== "answered" || result.status !== 200)
        return warn(name, `${url} ${describeEnd(result)}`, todo);
      try {
        JSON.parse(Buffer.from(result.body).toString("utf8"));
      } catch {
        return warn(name, `${url} answers with something that is not JSON`, todo);
      }
      return ok(name, `${url}: ${result.body.length} bytes`);
    }),
  );
}
