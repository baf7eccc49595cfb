import { Failure } from "../errors.ts";
import { cosignatureTime, MAX_SKEW_MS } from "./cosignature.ts";
import { BadNote, COSIGNATURE, ED25519, type Note, type NoteKey, parseVkey } from "./note.ts";

/** Which of its cosigners make a checkpoint valid: one witness, or at least `k` of the members. */
type Rule = { witness: NoteKey } | { k: number; of: readonly Rule[] };

/**
 * A trust policy (c2sp.org/tlog-policy), the text format that Go's torchwood and Sigsum's tools read: known logs, known
 * witnesses, and the quorum of these that must have cosigned a checkpoint.
 */
export interface WitnessPolicy {
  /** Logs that are accepted; empty: the log's key is known from elsewhere. */
  logs: readonly NoteKey[];
  /** By the names that the policy gives them. */
  witnesses: ReadonlyMap<string, NoteKey>;
  /** Name of the witness or group that the quorum names, or `none`. */
  quorum: string;
  rule: Rule | null;
}

/** Not a policy. The message names the line. */
class BadPolicy extends Failure {
  constructor(line: number, says: string) {
    super("usage", `witness policy, line ${line}: ${says}`);
  }
}

/** A checkpoint that too few of the policy's witnesses cosigned. Nothing below it is believed. */
export class Unwitnessed extends Failure {
  constructor(says: string) {
    super("unwitnessed", says);
  }
}

/** Bounds of a policy: the specification asks for 32 of each at least. */
const MAX_BYTES = 256 * 1024;
const MAX_NAMES = 256;

/** What a key of each kind of line begins with. */
const TYPES = { [ED25519]: "of a log with type 1", [COSIGNATURE]: "of a witness with type 4" } as const;

/** What is defined while a policy is read. */
class Reading {
  readonly logs: NoteKey[] = [];
  readonly witnesses = new Map<string, NoteKey>();
  readonly rules = new Map<string, Rule>();
  readonly #members = new Set<string>();
  quorum: string | null = null;

  /** @throws BadPolicy */
  take(line: number, [word, ...rest]: readonly string[]): void {
    const wrong = (says: string) => new BadPolicy(line, says);
    const key = (vkey: string | undefined, type: typeof ED25519 | typeof COSIGNATURE): NoteKey => {
      try {
        return parseVkey(vkey ?? "", type);
      } catch (error) {
        if (!(error instanceof BadNote)) throw error;
        throw wrong(`${error.message}; only Ed25519 keys are read: ${TYPES[type]}`);
      }
    };
    if (this.rules.size + this.logs.length >= MAX_NAMES) throw wrong(`more than ${MAX_NAMES} names`);
    if (word === "log" && (rest.length === 1 || rest.length === 2)) {
      const log = key(rest[0], ED25519);
      if (this.logs.some((one) => same(one, log))) throw wrong("this log's key stands in the policy already");
      this.logs.push(log);
    } else if (word === "witness" && (rest.length === 2 || rest.length === 3)) {
      const witness = key(rest[1], COSIGNATURE);
      if ([...this.witnesses.values()].some((one) => same(one, witness))) {
        throw wrong("this witness's key stands in the policy already");
      }
      this.#define(rest[0]!, { witness }, wrong);
      this.witnesses.set(rest[0]!, witness);
    } else if (word === "group" && rest.length >= 3) this.#group(rest, wrong);
    else if (word === "quorum" && rest.length === 1) {
      if (this.quorum !== null) throw wrong("a second quorum");
      if (rest[0] !== "none" && !this.rules.has(rest[0]!)) throw wrong(`${rest[0]} is not defined above this line`);
      this.quorum = rest[0]!;
    } else throw wrong("expected log, witness, group or quorum with its parts");
  }

  #define(name: string, rule: Rule, wrong: (says: string) => BadPolicy): void {
    if (name === "none" || this.rules.has(name)) throw wrong(`the name ${name} is taken`);
    this.rules.set(name, rule);
  }

  #group([name, least, ...members]: readonly string[], wrong: (says: string) => BadPolicy): void {
    const k =
      least === "all" ? members.length : least === "any" ? 1 : /^[1-9]\d{0,3}$/.test(least!) ? Number(least) : 0;
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

const same = (a: NoteKey, b: NoteKey): boolean => Buffer.compare(a.publicKey, b.publicKey) === 0;

/** Reads a policy. Its bytes are text of which only ASCII has a meaning. @throws Failure `usage` naming the line */
export function readPolicy(bytes: Uint8Array): WitnessPolicy {
  if (bytes.length > MAX_BYTES) throw new BadPolicy(1, `longer than ${MAX_BYTES} bytes`);
  const text = Buffer.from(bytes).toString("latin1");
  const reading = new Reading();
  const lines = text.split("\n");
  if (lines.pop() !== "") throw new BadPolicy(lines.length + 1, "no newline at the end");
  for (const [i, line] of lines.entries()) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: a policy with one is no policy.
    if (/[\x00-\x08\x0b-\x1f\x7f]/.test(line)) throw new BadPolicy(i + 1, "a control character");
    const words = Buffer.from(line, "latin1")
      .toString("utf8")
      .split(/[ \t]+/)
      .filter(Boolean);
    if (words.length > 0 && !words[0]!.startsWith("#")) reading.take(i + 1, words);
  }
  const { logs, witnesses, quorum, rules } = reading;
  if (quorum === null) throw new BadPolicy(lines.length, "no quorum line");
  return { logs, witnesses, quorum, rule: quorum === "none" ? null : rules.get(quorum)! };
}

/** The newest moment since which the rule is met: of a group, when the k-th newest of its members signed. -Infinity: not met. */
const metAt = (rule: Rule, times: ReadonlyMap<NoteKey, number>): number =>
  "witness" in rule
    ? (times.get(rule.witness) ?? Number.NEGATIVE_INFINITY)
    : rule.of.map((one) => metAt(one, times)).sort((a, b) => b - a)[rule.k - 1]!;

/**
 * When the quorum last saw this note: every witness that it needs cosigned then or later. null where the policy asks for
 * nobody. A cosignature that lies more than MAX_SKEW_MS ahead of `now` does not count.
 * @param now the verifier's clock; without it no time is checked
 * @throws Unwitnessed below the quorum, BadNote when a line of a witness of the policy does not hold
 */
export function witnessedAt(note: Note, { witnesses, rule, quorum }: WitnessPolicy, now?: Date): Date | null {
  if (!rule) return null;
  const times = new Map<NoteKey, number>();
  const lacking: string[] = [];
  for (const [name, key] of witnesses) {
    const at = cosignatureTime(note, key);
    if (at === null) lacking.push(name);
    else if (now && at > now.getTime() + MAX_SKEW_MS) lacking.push(`${name} (signed in our future)`);
    else times.set(key, at);
  }
  const met = metAt(rule, times);
  if (met === Number.NEGATIVE_INFINITY) {
    throw new Unwitnessed(`the checkpoint is below the quorum ${quorum}: no cosignature of ${lacking.join(", ")}`);
  }
  return new Date(met);
}
