import byByte from "kafkajs/src/protocol/recordBatch/crc32C/crc32C.js";
import { expect, test } from "vitest";
import { crc32c } from "../../../../infra/log/kafka/crc32c.ts";
import { fc } from "../../../helpers/histories.ts";

test.each([
  // RFC 3720, B.4, and the check value of the catalogue of CRCs.
  ["nothing", "", 0],
  ["123456789", Buffer.from("123456789").toString("hex"), 0xe3069283],
  ["32 zeros", "00".repeat(32), 0x8a9136aa],
  ["32 ones", "ff".repeat(32), 0x62a8ab43],
  ["0 to 31", Buffer.from(Array.from({ length: 32 }, (_, i) => i)).toString("hex"), 0x46dd794e],
])("the checksum of %s", (_, hex, sum) => {
  expect(crc32c(Buffer.from(hex, "hex"))).toBe(sum);
});

test("is what it is byte by byte, of any bytes, wherever they lie", () => {
  const bytes = fc.uint8Array({ maxLength: 200 });
  fc.assert(
    fc.property(bytes, fc.nat({ max: 9 }), (all, from) => {
      expect(crc32c(all.subarray(from))).toBe(byByte(all.subarray(from)));
    }),
    { numRuns: 1_000 },
  );
});
