import { randomBytes } from "node:crypto";
import { closeSync, existsSync, fstatSync, fsyncSync, openSync, readdirSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { isAddress } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { Failure } from "../errors.ts";
import { createPrivate, privateFolder, readPrivate, refuseSharedFolder } from "../keys/files.ts";
import { parseUrl } from "../url.ts";
import type { Wallet } from "./rails.ts";
import { walletOf } from "./wallets.ts";

/** A blind wallet was given to an endpoint for one UTC day: from then on it pays on that day alone. */
export interface WalletUse {
  address: string;
  day: string;
  cap: string;
  network: string;
}

/** What a folder of wallets holds, as it stands in its files. */
export interface WalletsHeld {
  /** null: there is none. */
  known: Wallet | null;
  /** Pays the gas of sweeps and of what is sold, never the token; null: there is none. */
  gas: Wallet | null;
  /** Buyers pay it, and refunds leave from it; null: there is none. */
  till: Wallet | null;
  /** Sellers are paid from it for buyers; null: there is none. */
  float: Wallet | null;
  blind: readonly Wallet[];
  uses: readonly WalletUse[];
}

const SEED = "seed.key";
/** Wallets of which there is one: each has a key file of its own, or follows from the seed. */
const SINGLE = ["known", "gas", "till", "float"] as const;
type Single = (typeof SINGLE)[number];
const FILES: readonly string[] = [SEED, ...SINGLE.map((role) => `${role}.key`)];
/** What was derived from the seed, and which wallet was used when: one JSON object a line, only ever appended to. */
const JOURNAL = "journal.ndjson";
const MAX_BLIND = 10_000;

type Line = { made: Single } | { made: "blind"; n: number } | ({ used: true } & WalletUse);

/** A key, or who has it: `https://signer.example 0x…`. */
const keyIn = (path: string): Wallet => {
  const text = readPrivate(path).toString("utf8").trim();
  const [signer, address = "", ...more] = text.split(/\s+/);
  if (/^https?:/.test(signer!)) {
    if (parseUrl(signer!) && isAddress(address, { strict: false }) && more.length === 0)
      return { address: address.toLowerCase(), signer: signer! };
    throw new Failure("keys", `${path} names no signer: its address and that of the wallet are expected`);
  }
  const privateKey = (text.startsWith("0x") ? text : `0x${text}`) as `0x${string}`;
  if (!/^0x[0-9a-f]{64}$/i.test(privateKey)) throw new Failure("keys", `${path} is no key: 64 hex digits are expected`);
  try {
    return { address: privateKeyToAddress(privateKey).toLowerCase(), privateKey };
  } catch {
    throw new Failure("keys", `${path} is no key of secp256k1`);
  }
};

/**
 * Wallets in a folder of their own, mode 0700, files 0600. They are derived from one seed (`seed.key`), or lie there as
 * key files: `known.key`, `gas.key`, `till.key`, `float.key`, and any other `*.key` is a blind one. A key file may name
 * an outside signer in the place of a key. A journal beside
 * them says which were derived and which blind wallet was given to whom on which day. It is on the disk before the wallet pays.
 */
export class WalletFolder {
  readonly #journal: string;
  readonly #derived = new Map<string, Wallet>();

  /** @throws Failure `keys` when others may write in the folder */
  constructor(readonly dir: string) {
    this.#journal = join(dir, JOURNAL);
    if (existsSync(dir)) refuseSharedFolder(dir);
  }

  /** Everything as it stands now: another process may have made wallets since. @throws Failure `keys` */
  read(): WalletsHeld {
    if (!existsSync(this.dir)) return { known: null, gas: null, till: null, float: null, blind: [], uses: [] };
    const files = readdirSync(this.dir).filter((name) => name.endsWith(".key"));
    const seed = files.includes(SEED) ? this.#seed() : null;
    const lines = this.#lines();
    const made = (what: string): boolean => lines.some((line) => "made" in line && line.made === what);
    const single = (role: Single): Wallet | null => {
      const file = `${role}.key`;
      if (files.includes(file)) return keyIn(join(this.dir, file));
      return seed && made(role) ? this.#walletOf(seed, role) : null;
    };
    const own = files.filter((name) => !FILES.includes(name)).sort();
    const derived = lines.flatMap((line) => ("made" in line && line.made === "blind" ? [line.n] : []));
    if (derived.length > 0 && !seed)
      throw new Failure("keys", `${join(this.dir, SEED)} is missing: wallets hang on it`);
    return {
      ...{ known: single("known"), gas: single("gas"), till: single("till"), float: single("float") },
      blind: [
        ...own.map((name) => keyIn(join(this.dir, name))),
        ...[...new Set(derived)].map((n) => this.#walletOf(seed!, `blind|${n}`)),
      ],
      uses: lines.flatMap((line) => ("used" in line ? [line] : [])),
    };
  }

  /**
   * Make the known wallet and the one for gas where there is none, and so many further blind ones. Nothing is replaced.
   * @param sells those too that buyers pay and sellers are paid from
   * @returns the blind ones that are new
   */
  make(blind: number, sells = false): Wallet[] {
    if (!Number.isSafeInteger(blind) || blind < 0) throw new RangeError(`no number of wallets: ${blind}`);
    privateFolder(this.dir);
    if (!existsSync(join(this.dir, SEED))) createPrivate(join(this.dir, SEED), `${randomBytes(32).toString("hex")}\n`);
    const held = this.read();
    if (held.blind.length + blind > MAX_BLIND) throw new RangeError(`at most ${MAX_BLIND} blind wallets`);
    const numbers = this.#lines().flatMap((line) => ("made" in line && line.made === "blind" ? [line.n] : []));
    const first = Math.max(0, ...numbers) + 1;
    const lines: Line[] = [];
    for (const role of sells ? SINGLE : SINGLE.slice(0, 2)) if (!held[role]) lines.push({ made: role });
    for (let n = first; n < first + blind; n++) lines.push({ made: "blind", n });
    this.#append(lines);
    const seed = this.#seed();
    return Array.from({ length: blind }, (_, i) => this.#walletOf(seed, `blind|${first + i}`));
  }

  /** Written down, and on the disk when this returns. */
  use(use: WalletUse): void {
    this.#append([{ used: true, ...use }]);
  }

  /** Kept: an address costs a multiplication on the curve, and a folder may hold thousands. */
  #walletOf(seed: Buffer, label: string): Wallet {
    const key = `${seed.toString("hex").slice(0, 8)} ${label}`;
    const wallet = this.#derived.get(key) ?? walletOf(seed, label);
    this.#derived.set(key, wallet);
    return wallet;
  }

  #seed(): Buffer {
    const path = join(this.dir, SEED);
    const text = readPrivate(path).toString("utf8").trim();
    if (!/^[0-9a-f]{64}$/i.test(text)) throw new Failure("keys", `${path} is no seed: 64 hex digits are expected`);
    return Buffer.from(text, "hex");
  }

  #lines(): Line[] {
    if (!existsSync(this.#journal)) return [];
    const text = readPrivate(this.#journal).toString("utf8");
    // A line that a crash cut off was never acted on: a wallet is used only once its line is on the disk.
    const whole = text
      .slice(0, text.lastIndexOf("\n") + 1)
      .split("\n")
      .filter(Boolean);
    return whole.flatMap((line) => {
      try {
        return [JSON.parse(line) as Line];
      } catch {
        return [];
      }
    });
  }

  /** One write, so that two processes' lines do not mix; what a crash cut off is ended first. */
  #append(lines: readonly Line[]): void {
    if (lines.length === 0) return;
    if (!existsSync(this.#journal)) createPrivate(this.#journal, "");
    const fd = openSync(this.#journal, "a+", 0o600);
    try {
      const { size } = fstatSync(fd);
      const last = Buffer.alloc(1);
      if (size > 0) readSync(fd, last, 0, 1, size - 1);
      const ending = size > 0 && last[0] !== 0x0a ? "\n" : "";
      writeSync(fd, ending + lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  }
}
