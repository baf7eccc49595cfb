import { systemClock } from "../infra/clock.ts";
import { type Config, ConfigError } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { type Finding, runCheck, type Severity } from "../infra/finding.ts";
import { paidNetworks, soldNetwork } from "../infra/rails/networks.ts";
import { createConfiguredEgress } from "../pipelines/roles/parts.ts";
import { withOpen } from "./files.ts";
import { diskFindings, keyFindings, type Role } from "./findings/machine.ts";
import { blindFindings, networkFindings, walletFindings } from "./findings/money.ts";
import { catalogueFindings, controlFindings, whyNoControl } from "./findings/outside.ts";
import { sellingFindings } from "./findings/selling.ts";
import { settingsFindings } from "./findings/settings.ts";
import { logFindings, recordFindings, storeFindings } from "./findings/storage.ts";
import { print, say } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/**
 * Runs all checks of a role. Each check catches its own errors and has a time limit, so a check that hangs or throws
 * hides no other.
 */
export async function examine(config: Config, role: Role): Promise<Finding[]> {
  const pays = role === "start" || role === "observe";
  const sells = role === "start" || role === "serve";
  return withOpen(createConfiguredEgress(config), async (egress) => {
    const nodes = pays ? runCheck("networks", "mend networks, or chain", () => networkFindings(config)) : null;
    // The balances are read from the same nodes, so they wait for the node checks: a node that does not answer costs
    // its time limit only once.
    const money = nodes?.then((found) =>
      runCheck("wallets", "look at the folder of the wallets", () => walletFindings(config, found)),
    );
    const looks = await Promise.all([
      runCheck("settings", "mend the settings", () => settingsFindings(config)),
      runCheck("keys", "fix what it names, or bring the keys back from your copy", () => keyFindings(config, role)),
      runCheck("disk", "look at the disk of data_dir", () => diskFindings(config)),
      runCheck("log", "bring the log up, or fix its settings", () => logFindings(config)),
      runCheck("record", "see docs/operate.md, backup and restore", () => recordFindings(config, role)),
      ...(["private", "public", "orders"] as const).map((name) =>
        runCheck(`store.${name}`, "bring the store up, or fix its settings", () => storeFindings(config, role, name)),
      ),
      ...(nodes && money ? [nodes, money] : []),
      ...(pays ? [runCheck("observe", "mend observe", async () => blindFindings(config))] : []),
      ...(sells ? [runCheck("sell", "mend sell, or networks", () => sellingFindings(config))] : []),
      ...(pays ? [runCheck("control", "look at the way out", () => controlFindings(config, egress, systemClock))] : []),
      ...(pays ? [runCheck("catalogues", "look at the way out", () => catalogueFindings(config, egress))] : []),
    ]);
    return looks.flat();
  });
}

/**
 * `touchstone doctor`: examines everything that a role needs. It changes nothing, except that it puts one object into a bucket
 * and deletes it again.
 * @throws Failure `unfit` when something is broken, after the findings were printed
 */
export async function doctorCommand(config: Config, options: OptionsOf<"doctor">): Promise<void> {
  const { role } = options;
  const findings = await examine(config, role);
  print(options, { role, ...countOf(findings), findings }, findingLines(findings));
  const { broken } = countOf(findings);
  if (broken > 0) throw new Failure("unfit", `${broken} broken of ${findings.length}: ${role} would not do its work`);
}

const countOf = (findings: readonly Finding[]): Record<Severity, number> => {
  const count = { ok: 0, warn: 0, broken: 0, off: 0 };
  for (const { standing } of findings) count[standing]++;
  return count;
};

/** Formats the findings for people, the worst first, each followed by what to do. */
export function findingLines(findings: readonly Finding[]): string[] {
  const order: Severity[] = ["broken", "warn", "ok", "off"];
  const width = Math.max(...findings.map(({ name }) => name.length));
  return order.flatMap((standing) =>
    findings
      .filter((one) => one.standing === standing)
      .flatMap(({ name, says, todo }) => [
        `${standing.padEnd(7)} ${name.padEnd(width)}  ${says}`,
        ...(todo ? [`${" ".repeat(width + 10)}-> ${todo}`] : []),
      ]),
  );
}

/** Problems in the settings of the networks, as the roles that pay or sell report them. */
function wrongNetworks(read: () => unknown): readonly string[] {
  try {
    read();
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
}

/**
 * Examines settings and disk before a role opens anything, and prints the warnings. @throws ConfigError naming all that
 * is broken
 */
export async function checkAtStart(config: Config, role: Role, { json }: OptionsOf<"keygen"> = {}): Promise<void> {
  const pays = role === "start" || role === "observe";
  const missing = pays ? whyNoControl(config) : null;
  const found = [...(await settingsFindings(config)), ...(await diskFindings(config))];
  const broken = found.filter(({ standing }) => standing === "broken");
  const problems = broken.map(({ name, says, todo }) => `${name}: ${says}; ${todo}`);
  if (missing !== null) problems.push(missing);
  if (pays) problems.push(...wrongNetworks(() => paidNetworks(config)));
  if (role === "start" || role === "serve") problems.push(...wrongNetworks(() => soldNetwork(config)));
  if (problems.length > 0) throw new ConfigError([...problems, "to look at everything: touchstone doctor"]);
  const warnings = found.filter(({ standing }) => standing === "warn");
  if (json || warnings.length === 0) return;
  say(warnings.map(({ name, says }) => `warning: ${name}: ${says}`));
}
