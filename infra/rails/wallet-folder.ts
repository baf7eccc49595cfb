import { randomBytes } from "node:crypto";
import { closeSync, existsSync, fstatSync, fsyncSync, openSync, readdirSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { isAddress } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { Failure } from "../errors.ts";
import { createPrivateFile, ensurePrivateFolder, readPrivateFile, refuseSharedFolder } from "../keys/files.ts";
import { parseUrl } from "../url.ts";
import type { Wallet } from "./rails.ts";
import { walletOf } from "./wallets.ts";

/**
 * Records that a blind wallet (one that sellers do not know) was assigned to an endpoint (`cap`, its capability id)
 * for one UTC day, the only day on which the wallet pays.
 */
export interface WalletUse {
  address: string;
  day: string;
  cap: string;
  network: string;
}

/** The wallets of a folder. */
export interface FolderWallets {
  /** Pays calls that sellers may recognise as this service's, since its address is public; null when there is none. */
  known: Wallet | null;
  /**
   * Pays the gas of sales, and of the sweeps that collect what blind wallets have left; holds no token. Null when
   * there is none.
   */
  gas: Wallet | null;
  /** Receives buyers' payments and sends refunds; null when there is none. */
  till: Wallet | null;
  /** Pays sellers for calls that buyers bought; null when there is none. */
  float: Wallet | null;
  /** Wallets that sellers do not know; each pays on one UTC day only. */
  blind: readonly Wallet[];
  /** All uses of the blind wallets so far. */
  uses: readonly WalletUse[];
}

const SEED_FILE = "seed.key";
/** Roles with one wallet each. The wallet's key is in a separate key file, or derived from the seed. */
const SINGLE_ROLES = ["known", "gas", "till", "float"] as const;
type SingleRole = (typeof SINGLE_ROLES)[number];
const RESERVED_FILES: readonly string[] = [SEED_FILE, ...SINGLE_ROLES.map((role) => `${role}.key`)];
/** Append-only NDJSON: which wallets were derived from the seed, and which were used when. */
const JOURNAL_FILE = "journal.ndjson";
const MAX_BLIND_WALLETS = 10_000;

/** `made`: a wallet was derived from the seed, a blind one with the number `n`. `used`: a blind wallet was assigned. */
type JournalLine = { made: SingleRole } | { made: "blind"; n: number } | ({ used: true } & WalletUse);

/**
 * Reads a key file: a private key, or an outside signer and its wallet's address (`https://signer.example 0x…`).
 * @throws Failure `keys` when other users may read the file, or it holds anything else
 */
export const readKeyFile = (path: string): Wallet => {
  const text = readPrivateFile(path).toString("utf8").trim();
  const [signer, address = "", ...otherWords] = text.split(/\s+/);
  if (/^https?:/.test(signer!)) {
    if (parseUrl(signer!) && isAddress(address, { strict: false }) && otherWords.length === 0)
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
 * Wallets in a folder of mode 0700, files of mode 0600. A wallet is derived from the folder's seed (`seed.key`) or
 * has a key file: `known.key`, `gas.key`, `till.key` and `float.key`, and every other `*.key` is a blind wallet. A
 * key file may name an outside signer instead of a key. A journal records which wallets were derived, and which blind
 * wallet was assigned to which endpoint on which day; that line is on disk before the wallet pays.
 */
export class WalletFolder {
  readonly #journalPath: string;
  readonly #derivedWallets = new Map<string, Wallet>();

  /** @throws Failure `keys` when other users may write in the folder */
  constructor(readonly dir: string) {
    this.#journalPath = join(dir, JOURNAL_FILE);
    if (existsSync(dir)) refuseSharedFolder(dir);
  }

  /** Reads all wallets from disk, since another process may have added some. @throws Failure `keys` */
  read(): FolderWallets {
    if (!existsSync(this.dir)) return { known: null, gas: null, till: null, float: null, blind: [], uses: [] };
    const files = readdirSync(this.dir).filter((name) => name.endsWith(".key"));
    const seed = files.includes(SEED_FILE) ? this.#readSeed() : null;
    const lines = this.#readJournal();
    const isDerived = (what: string): boolean => lines.some((line) => "made" in line && line.made === what);
    const walletOfRole = (role: SingleRole): Wallet | null => {
      const file = `${role}.key`;
      if (files.includes(file)) return readKeyFile(join(this.dir, file));
      if (!isDerived(role)) return null;
      if (!seed) throw this.#seedMissing();
      return this.#walletOf(seed, role);
    };
    const blindKeyFiles = files.filter((name) => !RESERVED_FILES.includes(name)).sort();
    const derivedNumbers = lines.flatMap((line) => ("made" in line && line.made === "blind" ? [line.n] : []));
    if (derivedNumbers.length > 0 && !seed) throw this.#seedMissing();
    return {
      ...{
        known: walletOfRole("known"),
        gas: walletOfRole("gas"),
        till: walletOfRole("till"),
        float: walletOfRole("float"),
      },
      blind: [
        ...blindKeyFiles.map((name) => readKeyFile(join(this.dir, name))),
        ...[...new Set(derivedNumbers)].map((n) => this.#walletOf(seed!, `blind|${n}`)),
      ],
      uses: lines.flatMap((line) => ("used" in line ? [line] : [])),
    };
  }

  /**
   * Derives the known and the gas wallet if they are missing, and `blind` more blind wallets. Existing wallets are
   * kept. The seed is made if no wallet was derived yet. Later a missing seed is never replaced, since a new seed would
   * give other wallets.
   * @param sells true to derive the till and the float too
   * @returns the new blind wallets
   * @throws RangeError past 10,000 blind wallets; Failure `keys`, also when the seed is missing
   */
  make(blind: number, sells = false): Wallet[] {
    if (!Number.isSafeInteger(blind) || blind < 0) throw new RangeError(`not a number of wallets: ${blind}`);
    ensurePrivateFolder(this.dir);
    if (!existsSync(join(this.dir, SEED_FILE))) {
      if (this.#readJournal().some((line) => "made" in line)) throw this.#seedMissing();
      createPrivateFile(join(this.dir, SEED_FILE), `${randomBytes(32).toString("hex")}\n`);
    }
    const existing = this.read();
    if (existing.blind.length + blind > MAX_BLIND_WALLETS)
      throw new RangeError(`at most ${MAX_BLIND_WALLETS} blind wallets`);
    const numbers = this.#readJournal().flatMap((line) => ("made" in line && line.made === "blind" ? [line.n] : []));
    const firstNumber = Math.max(0, ...numbers) + 1;
    const lines: JournalLine[] = [];
    for (const role of sells ? SINGLE_ROLES : SINGLE_ROLES.slice(0, 2)) if (!existing[role]) lines.push({ made: role });
    for (let n = firstNumber; n < firstNumber + blind; n++) lines.push({ made: "blind", n });
    this.#appendJournal(lines);
    const seed = this.#readSeed();
    return Array.from({ length: blind }, (_, i) => this.#walletOf(seed, `blind|${firstNumber + i}`));
  }

  /** Records a use of a blind wallet; it is on disk when this returns. */
  use(use: WalletUse): void {
    this.#appendJournal([{ used: true, ...use }]);
  }

  /** Derives a wallet and remembers it: each address costs a curve multiplication, and a folder may hold thousands. */
  #walletOf(seed: Buffer, label: string): Wallet {
    const key = `${seed.toString("hex").slice(0, 8)} ${label}`;
    const wallet = this.#derivedWallets.get(key) ?? walletOf(seed, label);
    this.#derivedWallets.set(key, wallet);
    return wallet;
  }

  #seedMissing(): Failure {
    return new Failure("keys", `${join(this.dir, SEED_FILE)} is missing: wallets were derived from it; put it back`);
  }

  #readSeed(): Buffer {
    const path = join(this.dir, SEED_FILE);
    const text = readPrivateFile(path).toString("utf8").trim();
    if (!/^[0-9a-f]{64}$/i.test(text)) throw new Failure("keys", `${path} is no seed: 64 hex digits are expected`);
    return Buffer.from(text, "hex");
  }

  #readJournal(): JournalLine[] {
    if (!existsSync(this.#journalPath)) return [];
    const text = readPrivateFile(this.#journalPath).toString("utf8");
    // A line that a crash cut off was never acted on: a wallet pays only after its line is on disk.
    const completeLines = text
      .slice(0, text.lastIndexOf("\n") + 1)
      .split("\n")
      .filter(Boolean);
    return completeLines.flatMap((line) => {
      try {
        return [JSON.parse(line) as JournalLine];
      } catch {
        return [];
      }
    });
  }

  /** Appends with one write, so that lines of two processes do not mix. A line that a crash cut off is ended first. */
  #appendJournal(lines: readonly JournalLine[]): void {
    if (lines.length === 0) return;
    if (!existsSync(this.#journalPath)) createPrivateFile(this.#journalPath, "");
    const fd = openSync(this.#journalPath, "a+", 0o600);
    try {
      const { size } = fstatSync(fd);
      const lastByte = Buffer.alloc(1);
      if (size > 0) readSync(fd, lastByte, 0, 1, size - 1);
      const ending = size > 0 && lastByte[0] !== 0x0a ? "\n" : "";
      writeSync(fd, ending + lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  }
}
