import { systemClock } from "../infra/clock.ts";
import { type Config, ConfigError } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { fromBase64url, PURPOSES, type Purpose } from "../infra/keys/jwk.ts";
import { type KeyRecord, loadKeys, readRing, rotateKey } from "../infra/keys/keys.ts";
import { originOf, witnessName } from "../infra/tree/checkpoint.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../infra/tree/note.ts";
import { DAY_MS } from "../pipelines/record/time.ts";
import { foldersOf } from "../pipelines/roles/data-folder.ts";
import { ensureKeysFor } from "../pipelines/roles/record-identity.ts";
import { requireDataFolder } from "./files.ts";
import { print } from "./printer.ts";
import type { OptionsOf } from "./table.ts";

/** `touchstone keygen`: creates the keys if there are none, and prints their ids. */
export async function makeKeysCommand(config: Config, options: OptionsOf<"keygen">): Promise<void> {
  const wereKeysMade = await ensureKeysFor(config, systemClock.now());
  const dir = foldersOf(config.data_dir).keys;
  const keys = loadKeys(dir);
  const kids = Object.fromEntries(PURPOSES.map((name) => [name, keys[name].kid]));
  print(options, { made: wereKeysMade, dir, kids }, [
    wereKeysMade ? `Made four keys in ${dir}.` : `${dir} has keys already; nothing was changed.`,
    ...Object.entries(kids).map(([name, kid]) => `  ${name.padEnd(8)} ${kid}`),
    "Keep a copy offline: without the keys no more cards can be signed. Cards that were signed stay valid.",
  ]);
}

const lineOf = ({ purpose, kid, valid_from, retired_at }: KeyRecord): string =>
  `  ${purpose.padEnd(8)} ${kid} from ${valid_from}${retired_at ? ` to ${retired_at}` : ""}`;

/** `touchstone keys list`: prints every current and retired key, with its validity. */
export function listKeys(config: Config, options: OptionsOf<"keys list">): void {
  requireDataFolder(config);
  const keys = readRing(foldersOf(config.data_dir).keys).keys.map((key) => ({ ...key, ...toOption(key, config) }));
  const lines = keys.flatMap((key) => [lineOf(key), ...(key.option ? [`           ${key.option}`] : [])]);
  print(options, { keys }, lines);
}

/**
 * Formats a log or witness key as a verifier key (C2SP signed-note), and as the option that passes it to mirror,
 * audit, recompute and export. Other keys have neither.
 */
function toOption({ purpose, x }: KeyRecord, { base_url }: Config): { vkey?: string; option?: string } {
  const origin = originOf(base_url);
  const publicKey = fromBase64url(x)!;
  if (purpose === "log") {
    const vkey = formatVkey({ name: origin, publicKey }, ED25519);
    return { vkey, option: `--log-key ${vkey}` };
  }
  if (purpose !== "witness") return {};
  const vkey = formatVkey({ name: witnessName(origin), publicKey }, COSIGNATURE);
  return { vkey, option: `--witness-key ${vkey}` };
}

/**
 * Days for which the old key stays valid after a rotation, by the purpose of the key. Some readers fetch checkpoints,
 * which are signed with the keys for log and witness, only once in some weeks.
 */
const OVERLAP_DAYS: Record<Purpose, number> = { cards: 1, answers: 1, log: 30, witness: 30 };

/** Largest value of --overlap-days: ten years. A larger number is probably a mistake, such as a date. */
const MAX_OVERLAP_DAYS = 3_650;

/**
 * `touchstone keys rotate`: creates a new key; the old one retires after the overlap. Running processes sign with the
 * old key until they restart. A process that restarts within the overlap first publishes the keys document.
 */
export function rotateKeys(config: Config, purposeArgument: string, options: OptionsOf<"keys rotate">): void {
  const purpose = PURPOSES.find((one) => one === purposeArgument);
  if (!purpose) throw new ConfigError([`keys rotate: ${purposeArgument} is not one of ${PURPOSES.join(", ")}`]);
  const days = options.overlapDays ?? OVERLAP_DAYS[purpose];
  if (days > MAX_OVERLAP_DAYS) throw new Failure("usage", `--overlap-days: at most ${MAX_OVERLAP_DAYS}, not ${days}`);
  const now = systemClock.now();
  const ring = rotateKey(foldersOf(config.data_dir).keys, purpose, now, new Date(now.getTime() + days * DAY_MS));
  const within = days === 1 ? "a day" : `${days} days`;
  const [oldKey, newKey] = ring.keys.filter((key) => key.purpose === purpose).slice(-2);
  print(options, { purpose, made: newKey, old: oldKey }, [
    lineOf(oldKey!),
    lineOf(newKey!),
    `Restart publisher and serving within ${within}: each publishes or loads the new keys document when it starts.`,
    ...(purpose === "log" || purpose === "witness"
      ? [
          `On other machines put a copy of keyring.json into the keys folder of every owner and observer within ${within}: without it they refuse every later checkpoint.`,
        ]
      : []),
    "next: touchstone keys list",
  ]);
}
