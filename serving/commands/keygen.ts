import { systemClock } from "../../infra/clock.ts";
import type { Config } from "../../infra/config.ts";
import { loadKeys } from "../../infra/keys/keys.ts";
import { folders, makeKeys } from "../../pipelines/parts.ts";

/** `touchstone keygen`: make keys where there are none, and say which ones there are. */
export function keygenCommand(config: Config, options: { json?: boolean }): void {
  const made = makeKeys(config.data_dir, systemClock.now());
  const dir = folders(config.data_dir).keys;
  const keys = loadKeys(dir);
  const kids = Object.fromEntries(
    (["cards", "answers", "log", "witness"] as const).map((name) => [name, keys[name].kid]),
  );
  if (options.json) {
    process.stdout.write(`${JSON.stringify({ made, dir, kids })}\n`);
    return;
  }
  process.stdout.write(
    made ? `Made four keys in ${dir}.\n` : `There are keys in ${dir} already; nothing was changed.\n`,
  );
  for (const [name, kid] of Object.entries(kids)) process.stdout.write(`  ${name.padEnd(8)} ${kid}\n`);
  process.stdout.write("Keep a copy offline: cards signed by a lost key can still be verified, but no more be made.\n");
}
