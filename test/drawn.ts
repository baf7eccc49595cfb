import { spawnSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/**
 * `npm run test:drawn [-- ROUNDS [FILTER]]`: every test whose histories are drawn, round by round with another seed. `npm
 * test` draws the same ones each time, so that a commit is right or wrong wherever it is tested; this looks for what they
 * miss. The seed of a round that failed is printed: `SEED=n npx vitest run FILE` has it again. RUNS=n draws n times as many
 * histories of each property: the time that a test may take stays, so not of slow ones.
 */
const rounds = Number(process.argv[2] ?? 5);
const filter = process.argv[3] ?? "";
const DRAWS = /helpers\/(?:histories|drawn)\.ts"/;
const files = readdirSync("test", { recursive: true, encoding: "utf8" })
  .map((file) => join("test", file))
  .filter((file) => file.endsWith(".test.ts") && !/^test.(?:browser|cluster|bench)/.test(file) && file.includes(filter))
  .filter((file) => DRAWS.test(readFileSync(file, "utf8")));

if (files.length === 0) {
  // Without a name the runner would take every test for meant.
  process.stderr.write(`no test whose histories are drawn has ${JSON.stringify(filter)} in its name\n`);
  process.exit(2);
}

const failed: number[] = [];
for (let round = 1; round <= rounds; round++) {
  const seed = randomInt(2 ** 31);
  process.stdout.write(`round ${round} of ${rounds}: SEED=${seed}, ${files.length} files\n`);
  const env = { ...process.env, SEED: String(seed) };
  if (spawnSync("npx", ["vitest", "run", ...files], { stdio: "inherit", env }).status !== 0) failed.push(seed);
}
process.stdout.write(failed.length ? `failed with SEED=${failed.join(", ")}\n` : `${rounds} rounds, none failed\n`);
process.exit(failed.length ? 1 : 0);
