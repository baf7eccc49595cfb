import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parse } from "yaml";

/**
 * As much of GitHub's runner as a composite action of `run` steps needs: inputs and outputs of steps in expressions, files
 * of commands, bash as the runner starts it, and workflow commands on its output (docs.github.com, "Workflow syntax",
 * "Workflow commands").
 */

interface Step {
  id?: string;
  shell: string;
  run: string;
  env?: Record<string, string>;
}

interface Action {
  inputs: Record<string, { required?: boolean; default?: string }>;
  outputs: Record<string, { value: string }>;
  runs: { using: "composite"; steps: Step[] };
}

/** An annotation as the runner reads it. */
export interface RunnerCommand {
  command: string;
  properties: Record<string, string>;
  message: string;
}

export interface ActionRun {
  /** Did every step end with 0? */
  ok: boolean;
  outputs: Record<string, string>;
  commands: RunnerCommand[];
  summary: string;
  log: string;
}

/** A value of a workflow command as the runner reads it. */
export const unescaped = (text: string): string =>
  text
    .replaceAll("%0D", "\r")
    .replaceAll("%0A", "\n")
    .replaceAll("%3A", ":")
    .replaceAll("%2C", ",")
    .replaceAll("%25", "%");

/** Commands of an output, as the runner finds them: at the beginning of a line, or in the older form anywhere in it. */
export function commandsIn(output: string): RunnerCommand[] {
  const found: RunnerCommand[] = [];
  let stopped: string | null = null;
  for (const line of output.split(/\r?\n/).map((one) => one.trimStart())) {
    const [, command, properties, message] =
      /^::([\w-]+)(?: (.*?))?::(.*)$/.exec(line) ?? /##\[([\w-]+)(?: (.*?))?\](.*)$/.exec(line) ?? [];
    if (stopped !== null) {
      if (line === `::${stopped}::`) stopped = null;
    } else if (command === "stop-commands") stopped = message!;
    else if (command !== undefined) {
      const pairs = (properties ?? "").split(",").filter((one) => one !== "");
      const named = pairs.map((one) => [one.slice(0, one.indexOf("=")), unescaped(one.slice(one.indexOf("=") + 1))]);
      found.push({ command, properties: Object.fromEntries(named), message: unescaped(message!) });
    }
  }
  return found;
}

/** Values of `${{ inputs.x }}` and `${{ steps.x.outputs.y }}`; any other expression is an error. */
function evaluated(
  text: string,
  inputs: Record<string, string>,
  steps: Record<string, Record<string, string>>,
): string {
  return text.replace(/\$\{\{\s*(.*?)\s*\}\}/g, (_, expression: string) => {
    const [, input] = /^inputs\.([\w-]+)$/.exec(expression) ?? [];
    const [, step, output] = /^steps\.([\w-]+)\.outputs\.([\w-]+)$/.exec(expression) ?? [];
    if (input !== undefined && input in inputs) return inputs[input]!;
    if (step !== undefined) return steps[step]?.[output!] ?? "";
    throw new Error(`no such expression here: ${expression}`);
  });
}

/** Runs a composite action. @param env of the machine, such as PATH @throws Error for an input that is missing or unknown */
export async function runAction(
  file: string,
  given: Record<string, string>,
  env: NodeJS.ProcessEnv = process.env,
): Promise<ActionRun> {
  const action = parse(await readFile(file, "utf8")) as Action;
  for (const name of Object.keys(given)) if (!(name in action.inputs)) throw new Error(`no input ${name}`);
  const inputs: Record<string, string> = {};
  for (const [name, { required, default: usual }] of Object.entries(action.inputs)) {
    if (required && given[name] === undefined) throw new Error(`input ${name} is required`);
    inputs[name] = given[name] ?? usual ?? "";
  }
  const temp = await mkdtemp(join(tmpdir(), "runner-"));
  const at = { output: join(temp, "output"), summary: join(temp, "summary"), script: join(temp, "step.sh") };
  const outputs: Record<string, Record<string, string>> = {};
  let [ok, log] = [true, ""];
  try {
    await writeFile(at.summary, "");
    for (const step of action.runs.steps) {
      if (step.shell !== "bash") throw new Error(`shell ${step.shell} is not known here`);
      await writeFile(at.output, "");
      await writeFile(at.script, step.run);
      const own = Object.entries(step.env ?? {}).map(([name, text]) => [name, evaluated(text, inputs, outputs)]);
      const child = spawn("bash", ["--noprofile", "--norc", "-eo", "pipefail", at.script], {
        cwd: temp,
        env: {
          ...env,
          ...{ GITHUB_ACTIONS: "true", GITHUB_ACTION_PATH: dirname(file), GITHUB_OUTPUT: at.output },
          ...{ GITHUB_STEP_SUMMARY: at.summary, RUNNER_TEMP: temp, ...Object.fromEntries(own) },
        },
      });
      for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (log += String(chunk)));
      const code = await new Promise((done) => child.on("close", done));
      const lines = (await readFile(at.output, "utf8")).split("\n").filter((line) => line.includes("="));
      const said = lines.map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]);
      if (step.id) outputs[step.id] = Object.fromEntries(said);
      if (code !== 0) {
        ok = false;
        break;
      }
    }
    const named = Object.entries(action.outputs).map(([name, { value }]) => [name, evaluated(value, inputs, outputs)]);
    const summary = await readFile(at.summary, "utf8");
    return { ok, outputs: Object.fromEntries(named), commands: commandsIn(log), summary, log };
  } finally {
    await rm(temp, { recursive: true, force: true });
  }
}
