import { Failure } from "../errors.ts";

/**
 * Reads the text of a trust policy (c2sp.org/tlog-policy) without Node's modules, for browsers and clients; `policy.ts`
 * reads it on Node. The caller passes the function that parses keys, since checking a key's id needs a hash function.
 */

/** A key under its name: 32 bytes of Ed25519. */
export interface PolicyKey {
  name: string;
  publicKey: Uint8Array;
}

/** The cosignatures that a checkpoint must have: that of one witness, or those of at least `k` members of a group. */
export type Rule<K> = { witness: K } | { k: number; of: readonly Rule<K>[] };

/** Known logs, known witnesses, and the quorum of these that must have cosigned a checkpoint. */
export interface PolicyText<K> {
  /** Keys of the accepted logs; empty: the reader has the log's key from elsewhere. */
  logs: readonly K[];
  /** Keys of the witnesses, by the names that the policy gives them. */
  witnesses: ReadonlyMap<string, K>;
  /** Name in the `quorum` line of the policy: that of a witness or a group, or `none`. */
  quorum: string;
  /** The cosignatures that the quorum requires; null for `none`. */
  rule: Rule<K> | null;
}

/** Parses the verifier key of a `log` or `witness` line. @throws the error that `wrong` creates for a reason */
export type ReadKey<K> = (vkey: string, kind: "log" | "witness", wrong: (says: string) => Failure) => K;

/** Thrown for a text that is not a policy. The message names the line. */
class BadPolicy extends Failure {
  constructor(line: number, says: string) {
    super("usage", `witness policy, line ${line}: ${says}`);
  }
}

/** Thrown for a checkpoint that too few of the policy's witnesses cosigned. The reader must not trust its tree. */
export class Unwitnessed extends Failure {
  constructor(says: string) {
    super("unwitnessed", says);
  }
}

/** Longest policy, bytes. */
const MAX_POLICY_BYTES = 256 * 1024;
/** Largest number of logs, witnesses and groups together; the specification requires at least 32 of each. */
const MAX_NAMES = 256;

/** Reads a policy line by line, and holds the logs, witnesses, groups and the quorum that were defined so far. */
class PolicyReader<K extends PolicyKey> {
  readonly logs: K[] = [];
  readonly witnesses = new Map<string, K>();
  readonly rules = new Map<string, Rule<K>>();
  /** Names that are members of a group; a name may be a member of one group only. */
  readonly #members = new Set<string>();
  quorum: string | null = null;

  constructor(private readonly readKey: ReadKey<K>) {}

  /** Reads the words of one line. @throws BadPolicy */
  readLine(line: number, [word, ...rest]: readonly string[]): void {
    const badPolicy = (says: string) => new BadPolicy(line, says);
    if (this.rules.size + this.logs.length >= MAX_NAMES) throw badPolicy(`more than ${MAX_NAMES} names`);
    if (word === "log" && (rest.length === 1 || rest.length === 2)) {
      const log = this.readKey(rest[0]!, "log", badPolicy);
      if (this.logs.some((one) => isSameKey(one, log))) throw badPolicy("this log's key stands in the policy already");
      this.logs.push(log);
    } else if (word === "witness" && (rest.length === 2 || rest.length === 3)) {
      const witness = this.readKey(rest[1]!, "witness", badPolicy);
      if ([...this.witnesses.values()].some((one) => isSameKey(one, witness))) {
        throw badPolicy("this witness's key stands in the policy already");
      }
      this.#define(rest[0]!, { witness }, badPolicy);
      this.witnesses.set(rest[0]!, witness);
    } else if (word === "group" && rest.length >= 3) this.#group(rest, badPolicy);
    else if (word === "quorum" && rest.length === 1) {
      if (this.quorum !== null) throw badPolicy("a second quorum");
      if (rest[0] !== "none" && !this.rules.has(rest[0]!)) throw badPolicy(`${rest[0]} is not defined above this line`);
      this.quorum = rest[0]!;
    } else throw badPolicy("expected log, witness, group or quorum with its parts");
  }

  #define(name: string, rule: Rule<K>, wrong: (says: string) => BadPolicy): void {
    if (name === "none" || this.rules.has(name)) throw wrong(`the name ${name} is taken`);
    this.rules.set(name, rule);
  }

  #group([name, threshold, ...members]: readonly string[], wrong: (says: string) => BadPolicy): void {
    const k =
      threshold === "all"
        ? members.length
        : threshold === "any"
          ? 1
          : /^[1-9]\d{0,3}$/.test(threshold!)
            ? Number(threshold)
            : 0;
    if (k < 1 || k > members.length) throw wrong(`expected any, all or a number from 1 to ${members.length}`);
    const of = members.map((member) => {
      const rule = this.rules.get(member);
      if (!rule) throw wrong(`${member} is not defined above this line`);
      if (this.#members.has(member)) throw wrong(`${member} is a member of a group already`);
      this.#members.add(member);
      return rule;
    });
    this.#define(name!, { k, of }, wrong);
  }
}

const isSameKey = (a: PolicyKey, b: PolicyKey): boolean =>
  a.publicKey.length === b.publicKey.length && a.publicKey.every((byte, i) => byte === b.publicKey[i]);

/** Reads a policy. Only its ASCII characters have a meaning. @throws Failure `usage` naming the line */
export function readPolicyText<K extends PolicyKey>(bytes: Uint8Array, readKey: ReadKey<K>): PolicyText<K> {
  if (bytes.length > MAX_POLICY_BYTES) throw new BadPolicy(1, `longer than ${MAX_POLICY_BYTES} bytes`);
  const lines = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes).split("\n");
  const reader = new PolicyReader(readKey);
  if (lines.pop() !== "") throw new BadPolicy(lines.length + 1, "no newline at the end");
  for (const [i, line] of lines.entries()) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: a policy with one is no policy.
    if (/[\x00-\x08\x0b-\x1f\x7f]/.test(line)) throw new BadPolicy(i + 1, "a control character");
    const words = line.split(/[ \t]+/).filter(Boolean);
    if (words.length > 0 && !words[0]!.startsWith("#")) reader.readLine(i + 1, words);
  }
  const { logs, witnesses, quorum, rules } = reader;
  if (quorum === null) throw new BadPolicy(lines.length, "no quorum line");
  return { logs, witnesses, quorum, rule: quorum === "none" ? null : rules.get(quorum)! };
}

/** Returns since when the rule is met, ms; for a group, when its k-th newest member signed. -Infinity: it is not met. */
const ruleMetAt = <K>(rule: Rule<K>, times: ReadonlyMap<K, number>): number =>
  "witness" in rule
    ? (times.get(rule.witness) ?? Number.NEGATIVE_INFINITY)
    : rule.of.map((one) => ruleMetAt(one, times)).sort((a, b) => b - a)[rule.k - 1]!;

/**
 * Returns the time since which the quorum has cosigned a note: every witness that the rule needs cosigned then or
 * later. Null when the policy requires no cosignature.
 * @param times when each witness cosigned, ms since 1970; witnesses that did not cosign are absent
 * @param latestMs later cosignatures do not count, ms since 1970
 * @throws Unwitnessed below the quorum
 */
export function quorumAt<K>(
  { witnesses, rule, quorum }: PolicyText<K>,
  times: ReadonlyMap<K, number>,
  latestMs = Number.POSITIVE_INFINITY,
): Date | null {
  if (!rule) return null;
  const metMs = ruleMetAt(rule, new Map([...times].filter(([, at]) => at <= latestMs)));
  if (metMs !== Number.NEGATIVE_INFINITY) return new Date(metMs);
  const missingWitnesses = [...witnesses].flatMap(([name, key]) => {
    const at = times.get(key);
    return at === undefined ? [name] : at > latestMs ? [`${name} (signed in our future)`] : [];
  });
  throw new Unwitnessed(
    `the checkpoint is below the quorum ${quorum}: no cosignature of ${missingWitnesses.join(", ")}`,
  );
}
