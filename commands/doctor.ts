import { systemClock } from "../infra/clock.ts";
import { type Config, ConfigError } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { type Finding, runCheck, type Severity } from "../infra/finding.ts";
import { paidNetworks, soldNetwork } from "../infra/rails/networks.ts";
import { createConfiguredEgress } from "../pipelines/roles/parts.ts";
import { withOpen } from "./files.ts";
import { diskFindings, isDiskFull, keyFindings, type Role } from "./findings/machine.ts";
import { blindFindings, networkFindings, walletFindings } from "./findings/money.ts";
import { catalogueFindings, controlFindings, whyNotPayWithoutControl } from "./findings/outside.ts";
import { sellingFindings } from "./findings/selling.ts";
import { settingsFindings } from "./findings/settings.ts";
import { logFindings, recordFindings, storeFindings } from "./findings/storage.ts";
import { print, say } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/**
 * Runs all checks that a role needs (`Role`: which part of the service runs on this machine). Each check catches its
 * own errors and has a time limit, so a check that hangs or throws does not prevent the others.
 */
export async function examine(config: Config, role: Role): Promise<Finding[]> {
  const pays = role === "start" || role === "observe";
  const sells = role === "start" || role === "serve";
  return withOpen(createConfiguredEgress(config), async (egress) => {
    const nodeChecks = pays ? runCheck("networks", "mend networks, or chain", () => networkFindings(config)) : null;
    // The wallet checks read balances from the same nodes, and start after the node checks: they leave out nodes that
    // did not answer, so that each costs its time limit only once.
    const walletChecks = nodeChecks?.then((nodeFindings) =>
      runCheck("wallets", "check the folder of the wallets", () => walletFindings(config, nodeFindings)),
    );
    const findings = await Promise.all([
      runCheck("settings", "fix the settings", () => settingsFindings(config)),
      runCheck("keys", "fix the named file, or restore the keys from your copy", () => keyFindings(config, role)),
      runCheck("disk", "check the disk of data_dir", () => diskFindings(config)),
      runCheck("log", "start the log, or fix its settings", () => logFindings(config)),
      runCheck("record", "see docs/operate.md, backup and restore", () => recordFindings(config, role)),
      ...(["private", "public", "orders"] as const).map((name) =>
        runCheck(`store.${name}`, "start the store, or fix its settings", () => storeFindings(config, role, name)),
      ),
      ...(nodeChecks && walletChecks ? [nodeChecks, walletChecks] : []),
      ...(pays ? [runCheck("observe", "fix the settings observe", async () => blindFindings(config))] : []),
      ...(sells ? [runCheck("sell", "fix the settings sell or networks", () => sellingFindings(config))] : []),
      ...(pays
        ? [runCheck("control", "check this machine's connection", () => controlFindings(config, egress, systemClock))]
        : []),
      ...(pays
        ? [runCheck("catalogues", "check this machine's connection", () => catalogueFindings(config, egress))]
        : []),
    ]);
    return findings.flat();
  });
}

/**
 * `touchstone doctor`: checks everything that a role needs. It changes nothing, except that it writes one object to
 * each bucket that the role writes to, and deletes it again.
 * @throws Failure `unfit` if something is broken, after it has printed the findings
 */
export async function doctorCommand(config: Config, options: OptionsOf<"doctor">): Promise<void> {
  const { role } = options;
  const findings = await examine(config, role);
  print(options, { role, ...countOf(findings), findings }, findingLines(findings));
  const { broken } = countOf(findings);
  if (broken > 0) throw new Failure("unfit", `${broken} of ${findings.length} checks failed: ${role} would not work`);
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

/**
 * Returns the problems that `read` finds in the settings of the networks; none if it succeeds. Other errors are
 * thrown.
 */
function networkProblems(read: () => unknown): readonly string[] {
  try {
    read();
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
}

/**
 * Checks settings and disk before a role opens anything, and prints the warnings. A disk with little room is only a
 * warning: a running role works on with it, so a role that was killed must be able to start and continue open orders.
 * @throws ConfigError with every setting that is broken
 * @throws Failure `storage` if the disk is full; a later start may find room
 */
export async function checkAtStart(config: Config, role: Role, { json }: OptionsOf<"keygen"> = {}): Promise<void> {
  const pays = role === "start" || role === "observe";
  const controlProblem = pays ? whyNotPayWithoutControl(config) : null;
  const [settings, disk] = [await settingsFindings(config), await diskFindings(config)];
  const broken = settings.filter(({ standing }) => standing === "broken");
  const problems = broken.map(({ name, says, todo }) => `${name}: ${says}; ${todo}`);
  if (controlProblem !== null) problems.push(controlProblem);
  if (pays) problems.push(...networkProblems(() => paidNetworks(config)));
  if (role === "start" || role === "serve") problems.push(...networkProblems(() => soldNetwork(config)));
  if (problems.length > 0) throw new ConfigError([...problems, "to check everything: touchstone doctor"]);
  if (await isDiskFull(config)) {
    throw new Failure("storage", disk.map(({ name, says, todo }) => `${name}: ${says}; ${todo}`).join("\n"));
  }
  const warnings = [...settings, ...disk].filter(({ standing }) => standing === "warn" || standing === "broken");
  if (json || warnings.length === 0) return;
  say(warnings.map(({ name, says }) => `warning: ${name}: ${says}`));
}
