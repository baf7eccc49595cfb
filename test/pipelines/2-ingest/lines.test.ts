import { expect, test } from "vitest";
import { Lines } from "../../../pipelines/2-ingest/lines.ts";
import { fc } from "../../helpers/histories.ts";

test("lines come out as the bytes of their text, page after page, however long they are", () => {
  const line = fc.oneof(fc.string({ unit: "grapheme" }), fc.string({ unit: "binary" }), fc.constant("x".repeat(300)));
  fc.assert(
    fc.property(fc.array(fc.array(line)), fc.integer({ min: 1, max: 64 }), (pages, bytes) => {
      const lines = new Lines(bytes);
      for (const page of pages) {
        for (const one of page) lines.add(one);
        const text = page.map((one) => `${one}\n`).join("");
        expect(Buffer.from(lines.take())).toEqual(Buffer.from(text));
      }
    }),
  );
});
