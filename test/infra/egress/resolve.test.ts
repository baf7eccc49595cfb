import { createSocket } from "node:dgram";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createSystemResolver, type Resolve } from "../../../infra/egress/address.ts";

const A = 1;
const AAAA = 28;
/** A name server of a few names: the answers by name and type; none at all is NXDOMAIN (3), SERVFAIL is a number. */
const ZONE: Record<string, Partial<Record<number, string[] | number>>> = {
  "both.example": { [A]: ["01020304", "05060708"], [AAAA]: ["2a000000000000000000000000000001"] },
  "old.example": { [A]: ["01020304"] },
  "new.example": { [AAAA]: ["2a000000000000000000000000000001"] },
  "half.example": { [A]: ["01020304"], [AAAA]: 2 },
  "empty.example": {},
  "broken.example": { [A]: 2, [AAAA]: 2 },
};

function answer(query: Buffer): Buffer {
  const labels: string[] = [];
  let at = 12;
  for (; query[at]! > 0; at += query[at]! + 1) labels.push(query.toString("ascii", at + 1, at + 1 + query[at]!));
  const type = query.readUInt16BE(at + 1);
  const question = query.subarray(12, at + 5);
  const zone = ZONE[labels.join(".").toLowerCase()];
  const found = zone?.[type] ?? [];
  const records = typeof found === "number" ? [] : found;
  const head = Buffer.alloc(12);
  query.copy(head, 0, 0, 2);
  head.writeUInt16BE(0x8180 | (zone ? (typeof found === "number" ? found : 0) : 3), 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(records.length, 6);
  const lines = records.map((hex) => {
    const fixed = Buffer.from("c00c0000000100000000000000", "hex").subarray(0, 12);
    fixed.writeUInt16BE(type, 2);
    fixed.writeUInt16BE(hex.length / 2, 10);
    return Buffer.concat([fixed, Buffer.from(hex, "hex")]);
  });
  return Buffer.concat([head, question, ...lines]);
}

const server = createSocket("udp4");
let resolve: Resolve;
beforeAll(async () => {
  server.on("message", (query, peer) => server.send(answer(query), peer.port, peer.address));
  await new Promise<void>((done) => server.bind(0, "127.0.0.1", done));
  resolve = createSystemResolver([`127.0.0.1:${server.address().port}`]);
});
afterAll(() => new Promise<void>((done) => server.close(() => done())));

describe("the machine's resolver", () => {
  it.each([
    ["both.example", ["1.2.3.4", "5.6.7.8", "2a00::1"]],
    ["old.example", ["1.2.3.4"]],
    ["new.example", ["2a00::1"]],
    ["half.example", ["1.2.3.4"]],
    ["localhost", ["127.0.0.1", "::1"]],
    ["a.localhost", ["127.0.0.1", "::1"]],
  ])("%s is %j", async (name, addresses) => expect(await resolve(name)).toEqual(addresses));

  it.each([
    ["gone.example", "ENOTFOUND"],
    ["empty.example", "ENODATA"],
    ["broken.example", "ESERVFAIL"],
  ])("%s: %s", async (name, code) => expect(resolve(name)).rejects.toMatchObject({ code }));

  it("a name server that is not there says so with a code of its own", async () => {
    const gone = createSocket("udp4");
    await new Promise<void>((done) => gone.bind(0, "127.0.0.1", done));
    const { port } = gone.address();
    await new Promise<void>((done) => gone.close(() => done()));
    await expect(createSystemResolver([`127.0.0.1:${port}`])("x.example")).rejects.toMatchObject({
      code: "ECONNREFUSED",
    });
  });
});
