/** Verifier keys of a log, of two witnesses that cosigned its checkpoint, and of one that did not. */
export interface PolicyKeys {
  log: string;
  lite: string;
  own: string;
  nobody: string;
}

/**
 * Policies, and whether such a checkpoint has what they ask for; null: no policy at all. Torchwood's reader (Go) has judged
 * each (`npm run test:outside`), and every reader of ours has to say the same.
 */
export const POLICIES: [name: string, text: (keys: PolicyKeys) => string, holds: boolean | null][] = (
  [
    ["one witness", "quorum lite\n", true],
    ["one that did not cosign", "quorum nobody\n", false],
    ["any of three", "group g any lite own nobody\nquorum g\n", true],
    ["two of three", "group g 2 lite own nobody\nquorum g\n", true],
    ["all of three", "group g all lite own nobody\nquorum g\n", false],
    ["a group in a group", "group g all lite own\ngroup h any g nobody\nquorum h\n", true],
    ["no witness needed", "quorum none\n", true],
    ["an unknown name", "quorum somebody\n", null],
    ["comments and tabs", "# ours\nquorum\tlite\n", true],
    ["no quorum", "", null],
    ["a group before its members", null, null],
    ["more than there are", "group g 4 lite own nobody\nquorum g\n", null],
    ["a name twice", "witness lite OWN\nquorum lite\n", null],
    ["an unknown word", "trust lite\nquorum lite\n", null],
  ] as const
).map(([name, rest, holds]) => [
  name,
  ({ log, lite, own, nobody }) => {
    const witnesses = `witness lite ${lite}\nwitness own ${own}\nwitness nobody ${nobody}\n`;
    if (rest === null) return `log ${log}\ngroup g any lite\n${witnesses}quorum g\n`;
    return `log ${log}\n${witnesses}${rest.replace("OWN", own)}`;
  },
  holds,
]);
