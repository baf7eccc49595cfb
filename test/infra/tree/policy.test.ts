import { describe, expect, test } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import { EXIT, Failure } from "../../../infra/errors.ts";
import { openCheckpoint, signCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { cosignatureLine } from "../../../infra/tree/cosignature.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../../infra/tree/note.ts";
import { readPolicy, Unwitnessed } from "../../../infra/tree/policy.ts";
import { noteSigner } from "../../helpers/witnessed.ts";

const log = noteSigner("log.example", 1);
const own = noteSigner("log.example/witness", 2);
const keys = [3, 4, 5].map((seed) => noteSigner(`w${seed}.example`, seed));
const vkeys = keys.map((key) => formatVkey(key, COSIGNATURE));
const NAMED = vkeys.map((vkey, i) => `witness W${i} ${vkey}\n`).join("");
const LOG = `log ${formatVkey(log, ED25519)} https://log.example/\n`;
const at = (minute: number) => new Date(Date.UTC(2026, 10, 21, 4, minute));
/** A verifier key of the newer kind of cosignatures (c2sp.org/tlog-cosignature): type 6, 1,312 bytes. */
const mlDsa = (() => {
  const key = Buffer.concat([Buffer.of(6), Buffer.alloc(1312, 7)]);
  return `pq.example/w1+${sha256hex(Buffer.concat([Buffer.from("pq.example/w1\n"), key])).slice(0, 8)}+${key.toString("base64")}`;
})();
const read = (text: string) => readPolicy(Buffer.from(text));

/** A checkpoint that these witnesses cosigned, by minute; null: not. */
function note(minutes: readonly (number | null)[]): Buffer {
  const head = { origin: log.name, size: 3, root: Buffer.alloc(32, 7) };
  const text = `${signCheckpoint(head, log, own, at(0)).toString().split("\n\n")[0]!}\n`;
  const lines = minutes.flatMap((minute, i) => (minute === null ? [] : [cosignatureLine(text, keys[i]!, at(minute))]));
  return signCheckpoint(head, log, own, at(0), undefined, lines);
}
const opened = (text: string, minutes: readonly (number | null)[], now?: Date) =>
  openCheckpoint(note(minutes), { log, policy: read(text) }, now).cosignedAt?.getUTCMinutes();

describe("a quorum is met by so many, and is as new as the oldest that it needs", () => {
  const two = `${NAMED}group G 2 W0 W1 W2\nquorum G\n`;
  const nested = `${NAMED}group A any W0 W1\ngroup B all A W2\nquorum B\n`;
  test.each([
    [`${NAMED}quorum W1\n`, [null, 9, null], 9],
    [two, [1, 2, 3], 2],
    [two, [1, null, 3], 1],
    [nested, [1, 8, 5], 5],
    [nested, [1, 8, 9], 8],
    [`# all\n\n \t${LOG}${NAMED}group\tG all W0 W1 W2 \nquorum G\n`, [1, 2, 3], 1],
  ] as const)("%#", (text, minutes, newest) => expect(opened(text, minutes)).toBe(newest));

  test.each([
    [`${NAMED}quorum W1\n`, [1, null, 3]],
    [two, [1, null, null]],
    [nested, [1, 2, null]],
  ] as const)("below it nothing is believed: %#", (text, minutes) =>
    expect(() => opened(text, minutes)).toThrow(Unwitnessed),
  );

  test("a cosignature in the verifier's future does not count, and none asks for nobody", () => {
    expect(opened(two, [1, 2, 30], at(10))).toBe(1);
    expect(() => opened(two, [1, null, 30], at(10))).toThrow("W2 (signed in our future)");
    expect(opened("quorum none\n", [])).toBeUndefined();
  });

  test("the log has to be one of the policy's", () => {
    const other = `log ${formatVkey(noteSigner(log.name, 9), ED25519)}\nquorum none\n`;
    expect(() => opened(other, [])).toThrow("no log of the policy signed");
    expect(opened(`${LOG}quorum none\n`, [])).toBeUndefined();
  });
});

/** From the specification (c2sp.org/tlog-policy): what a policy may not say. */
test.each([
  ["", "no quorum line"],
  ["quorum none", "no newline at the end"],
  ["quorum none\r\n", "a control character"],
  ["quorum none\nquorum none\n", "line 2: a second quorum"],
  ["quorum W0\n", "not defined above"],
  [`quorum W0\n${NAMED}`, "not defined above"],
  [`witness none ${vkeys[0]}\nquorum none\n`, "the name none is taken"],
  [`${NAMED}witness W0 ${formatVkey(own, COSIGNATURE)}\nquorum none\n`, "the name W0 is taken"],
  [`${NAMED}witness X ${formatVkey({ ...keys[0]!, name: "x" }, COSIGNATURE)}\nquorum none\n`, "stands in the policy"],
  [`${LOG}${LOG}quorum none\n`, "stands in the policy"],
  [`${NAMED}group G 0 W0\nquorum G\n`, "from 1 to 1"],
  [`${NAMED}group G 3 W0 W1\nquorum G\n`, "from 1 to 2"],
  [`${NAMED}group G any\nquorum G\n`, "expected log, witness, group or quorum"],
  [`${NAMED}group G any none\nquorum G\n`, "none is not defined"],
  [`${NAMED}group G any W0\ngroup H any W0\nquorum G\n`, "W0 is a member of a group already"],
  [`${NAMED}group G any W0 W0\nquorum G\n`, "W0 is a member of a group already"],
  [`witness W ${formatVkey(keys[0]!, ED25519)}\nquorum W\n`, "not a verifier key"],
  [`log ${vkeys[0]}\nquorum none\n`, "not a verifier key"],
  [
    `witness W ${mlDsa}\nquorum W\n`,
    'line 1: note: an ML-DSA-44 key, which is not read here: "pq.example/w1"; only Ed25519',
  ],
  ["trust everybody\nquorum none\n", "line 1: expected log, witness"],
])("not a policy: %j", (text, says) => {
  const thrown = (() => {
    try {
      read(text);
    } catch (error) {
      return error as Failure;
    }
  })();
  expect(thrown).toBeInstanceOf(Failure);
  expect([thrown!.message.includes(says), EXIT[thrown!.code]]).toEqual([true, 2]);
});
