import { createPrivateKey, createPublicKey, sign } from "node:crypto";
import { gzipSync } from "node:zlib";
import { describe, expect, it, test } from "vitest";
import { verifyBytes } from "../../../infra/keys/verify.ts";
import { BadBundle, decodeEntries, encodeEntries, packBundle, unpackBundle } from "../../../infra/tree/bundle.ts";
import {
  addressOfOrigin,
  logId,
  openCheckpoint,
  originOf,
  signCheckpoint,
  witnessName,
} from "../../../infra/tree/checkpoint.ts";
import { MAX_SKEW_MS } from "../../../infra/tree/cosignature.ts";
import {
  BadNote,
  COSIGNATURE,
  ED25519,
  formatVkey,
  lineOf,
  type NoteSigner,
  parseNote,
  parseVkey,
  signatureLine,
} from "../../../infra/tree/note.ts";
import { edgeOf, entriesPath, levelsOf, tilePath } from "../../../infra/tree/path.ts";
import { fc } from "../../helpers/histories.ts";
import { naiveLeaf } from "./naive.ts";

/** A fixed key per seed byte: signatures of Ed25519 are deterministic, so files made with it never change. */
function signer(name: string, seed: number): NoteSigner {
  const pkcs8 = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), Buffer.alloc(32, seed)]);
  const key = createPrivateKey({ key: pkcs8, format: "der", type: "pkcs8" });
  const publicKey = createPublicKey(key).export({ format: "der", type: "spki" }).subarray(-32);
  return { name, publicKey, sign: (message) => sign(null, message, key) };
}

const ORIGIN = "record.example/tree";
const LOG = signer(ORIGIN, 1);
const WITNESS = signer(witnessName(ORIGIN), 2);
const HEAD = { origin: ORIGIN, size: 70_000, root: naiveLeaf(Buffer.from("root")) };
const AT = new Date("2026-11-21T04:00:00.999Z");
const CHECKPOINT = signCheckpoint(HEAD, LOG, WITNESS, AT);

describe("paths", () => {
  it.each([
    [0, "000"],
    [999, "999"],
    [1000, "x001/000"],
    [1_234_067, "x001/x234/067"],
    [123_456_789_000, "x123/x456/x789/000"],
  ])("%d", (n, text) => {
    expect(tilePath(3, n)).toBe(`tile/3/${text}`);
    expect(entriesPath(n, 7)).toBe(`tile/entries/${text}.p/7`);
  });

  it.each([-1, 0.5, 2 ** 53])("refuses index %d", (n) => expect(() => tilePath(0, n)).toThrow(RangeError));
  it.each([0, 257, 1.5])("refuses width %d", (w) => expect(() => tilePath(0, 0, w)).toThrow(RangeError));

  it("knows the right edge", () => {
    expect(levelsOf(0)).toBe(0);
    expect(levelsOf(256)).toBe(2);
    expect([0, 1, 2].map((level) => edgeOf(70_000, level))).toEqual([
      { full: 273, width: 112 },
      { full: 1, width: 17 },
      { full: 0, width: 1 },
    ]);
  });
});

describe("entry bundles", () => {
  it("come back as they went in", () =>
    fc.assert(
      fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 256 }), async (entries) => {
        const back = await unpackBundle(await packBundle(entries), entries.length);
        expect(back.map((entry) => entry.toString("hex"))).toEqual(
          entries.map((entry) => Buffer.from(entry).toString("hex")),
        );
      }),
      { numRuns: 30 },
    ));

  it("are big-endian uint16 lengths and bytes", () =>
    expect(
      encodeEntries([Buffer.from("ab"), Buffer.alloc(0), Buffer.alloc(258)])
        .subarray(0, 8)
        .toString("hex"),
    ).toBe("0002616200000102"));

  it.each([
    ["a length cut", "00"],
    ["an entry cut", "000361"],
  ])("refuses %s", (_, hex) => expect(() => decodeEntries(Buffer.from(hex, "hex"))).toThrow(BadBundle));

  it("refuses a long entry, another count, no gzip, and a bomb", async () => {
    expect(() => encodeEntries([Buffer.alloc(65_536)])).toThrow(BadBundle);
    await expect(unpackBundle(await packBundle([Buffer.of(1)]), 2)).rejects.toThrow("1 entries instead of 2");
    await expect(unpackBundle(Buffer.from("0001ff", "hex"), 1)).rejects.toThrow(BadBundle);
    await expect(unpackBundle(gzipSync(Buffer.alloc(40_000_000)), 1)).rejects.toThrow(BadBundle);
  });
});

describe("notes", () => {
  it("reads the example of the specification", () => {
    const key = parseVkey("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k", ED25519);
    const note = parseNote(
      Buffer.from(
        "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n",
      ),
    );
    expect(verifyBytes(key.publicKey, Buffer.from(note.text), lineOf(note, key, ED25519)!)).toBe(true);
    expect(verifyBytes(key.publicKey, Buffer.from(`${note.text}x`), lineOf(note, key, ED25519)!)).toBe(false);
    expect(formatVkey(key, ED25519)).toBe("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k");
  });

  it("gives one key another id for each type of signature, and refuses a mixed-up verifier key", () => {
    expect(formatVkey(LOG, ED25519)).not.toBe(formatVkey(LOG, COSIGNATURE));
    expect(() => parseVkey(formatVkey(LOG, ED25519), COSIGNATURE)).toThrow(BadNote);
    expect(() => parseVkey(formatVkey(LOG, ED25519).replace(ORIGIN, "else.example"), ED25519)).toThrow(BadNote);
  });

  const text = CHECKPOINT.toString();
  it.each<[string, Uint8Array]>([
    ["no blank line", Buffer.from(text.replace("\n\n", "\n"))],
    ["no newline at the end", Buffer.from(text.slice(0, -1))],
    ["a control character", Buffer.from(text.replace("record", "rec\rord"))],
    ["bytes that are not UTF-8", Buffer.concat([Buffer.of(0xff), CHECKPOINT])],
    ["a line that is no signature", Buffer.from(`${text}— x\n`)],
    ["a signature shorter than its key id", Buffer.from(`${text}— x AAAA\n`)],
    ["too many signatures", Buffer.from(text + "— x AAAAAAAA\n".repeat(70))],
    ["too many bytes", Buffer.concat([Buffer.alloc(70_000, "x"), CHECKPOINT])],
  ])("refuses %s", (_, bytes) => expect(() => parseNote(bytes)).toThrow(BadNote));
});

describe("checkpoints", () => {
  const trust = { log: LOG, witness: WITNESS };

  it("say origin, size, root and the second at which they were cosigned", () => {
    const opened = openCheckpoint(CHECKPOINT, trust);
    expect(opened).toMatchObject(HEAD);
    expect(opened.cosignedAt).toEqual(new Date("2026-11-21T04:00:00.000Z"));
    expect(openCheckpoint(CHECKPOINT, { log: LOG }).cosignedAt).toBeNull();
  });

  it("carry further lines, which log and witness sign with the rest", () => {
    const more = signCheckpoint({ ...HEAD, extensions: ["one", "another one"] }, LOG, WITNESS, AT);
    expect(openCheckpoint(more, trust)).toMatchObject({ ...HEAD, extensions: ["one", "another one"] });
    expect(openCheckpoint(CHECKPOINT, trust).extensions).toEqual([]);
    const changed = Buffer.from(more.toString().replace("another one", "another two"));
    expect(() => openCheckpoint(changed, trust)).toThrow("does not hold");
  });

  it("ignore lines of keys that we do not know, also one of the same name", () => {
    const other = signCheckpoint(HEAD, signer(ORIGIN, 9), signer("other.example/w", 8), AT).toString();
    const more = Buffer.from(CHECKPOINT.toString() + other.split("\n\n")[1]);
    expect(openCheckpoint(more, trust).size).toBe(70_000);
  });

  const bytes = CHECKPOINT.toString();
  const lines = bytes.split("\n");
  it.each<[string, string, RegExp]>([
    ["another origin", bytes.replace(ORIGIN, "else.example"), /origin is/],
    ["another size", bytes.replace("\n70000\n", "\n70001\n"), /does not hold/],
    ["a leading zero", bytes.replace("\n70000\n", "\n070000\n"), /not a tree size/],
    ["a size past 2^53", bytes.replace("\n70000\n", "\n9007199254740993\n"), /not a tree size/],
    ["a short root", bytes.replace(lines[2]!, "AAAA"), /not a root hash/],
    ["an extension line of our own log, unsigned", bytes.replace(lines[2]!, `${lines[2]}\nmore`), /does not hold/],
    ["no line of the log", [...lines.slice(0, 4), ...lines.slice(5)].join("\n"), /not signed by/],
    ["no line of the witness", [...lines.slice(0, 5), ""].join("\n"), /not cosigned by/],
  ])("refuse %s", (_, changed, says) => expect(() => openCheckpoint(Buffer.from(changed), trust)).toThrow(says));

  it("refuse a cosignature whose time was changed", () => {
    const line = lines[5]!;
    const raw = Buffer.from(line.split(" ")[2]!, "base64");
    raw[11]! ^= 1;
    const changed = bytes.replace(line, `${line.split(" ").slice(0, 2).join(" ")} ${raw.toString("base64")}`);
    expect(() => openCheckpoint(Buffer.from(changed), trust)).toThrow(/cosignature .* does not hold/);
  });

  it("refuse a cosignature of the verifier's future, of any of its witnesses", () => {
    const cosigned = new Date("2026-11-21T04:00:00.000Z").getTime();
    const by = (ms: number, more = {}) => openCheckpoint(CHECKPOINT, { ...trust, ...more }, new Date(ms));
    for (const ahead of [-86_400_000, 0, MAX_SKEW_MS])
      expect(by(cosigned - ahead).cosignedAt?.getTime()).toBe(cosigned);
    expect(() => by(cosigned - MAX_SKEW_MS - 1)).toThrow(
      /at 2026-11-21T04:00:00.000Z, which our clock, at 2026-11-21T03/,
    );
    // Who trusts no witness reads no time.
    expect(by(0, { witness: undefined }).cosignedAt).toBeNull();
    const other = signer(WITNESS.name, 5);
    const later = signCheckpoint(HEAD, LOG, other, new Date(cosigned + 3_600_000)).toString();
    const both = Buffer.from(`${bytes}${later.split("\n").at(-2)}\n`);
    const two = { ...trust, witnesses: [other] };
    expect(openCheckpoint(both, trust, new Date(cosigned)).cosignedAt?.getTime()).toBe(cosigned);
    expect(() => openCheckpoint(both, two, new Date(cosigned))).toThrow(/has not reached yet/);
    // The eight bytes of the time hold more than a Date does.
    const end = 2n ** 64n - 1n;
    const stamp = Buffer.alloc(8);
    stamp.writeBigUInt64BE(end);
    const signature = WITNESS.sign(Buffer.from(`cosignature/v1\ntime ${end}\n${bytes.split("\n\n")[0]}\n`));
    const line = signatureLine(WITNESS, COSIGNATURE, Buffer.concat([stamp, signature]));
    const never = Buffer.from([...lines.slice(0, 5), line].join("\n"));
    expect(() => openCheckpoint(never, trust)).toThrow(/at second 18446744073709551615, which is no date/);
  });

  it("are not signed under a key of another name", () =>
    expect(() => signCheckpoint(HEAD, WITNESS, WITNESS, AT)).toThrow(BadNote));

  it("name the log in a cursor", () => expect(logId(ORIGIN)).toMatch(/^[0-9a-f]{16}$/));
});

test.each([
  ["localhost:8402", "http://localhost:8402"],
  ["127.0.0.1", "http://127.0.0.1"],
  ["[::1]:8402/record", "http://[::1]:8402/record"],
  ["record.example", "https://record.example"],
  ["localhost.example/record", "https://localhost.example/record"],
])("the origin %s is probably at %s", (origin, address) => {
  expect(addressOfOrigin(origin)).toBe(address);
  expect(originOf(address)).toBe(origin);
});
