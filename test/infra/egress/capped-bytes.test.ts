import { expect, test, vi } from "vitest";
import { CappedBytes } from "../../../infra/egress/reading.ts";
import { fc } from "../../helpers/histories.ts";

test("keeps what comes up to its cap, in whatever pieces, and says when that was not all", () => {
  const pieces = fc.array(fc.uint8Array({ maxLength: 9_000 }), { maxLength: 40 });
  fc.assert(
    fc.property(pieces, fc.nat(150_000), (all, cap) => {
      const kept = new CappedBytes(cap);
      let size = 0;
      for (const piece of all) {
        size += piece.length;
        // What is past it stays past it.
        expect(kept.push(piece)).toBe(size <= cap || piece.length === 0);
      }
      const whole = Buffer.concat(all).subarray(0, cap);
      expect(Buffer.from(kept.bytes()).equals(whole)).toBe(true);
    }),
  );
});

test("takes the memory of what it keeps once: nothing grows by being copied", () => {
  const cap = 1_048_576;
  let taken = 0;
  const spies = (["alloc", "allocUnsafe", "allocUnsafeSlow"] as const).map((name) => {
    const real = Buffer[name].bind(Buffer);
    return vi.spyOn(Buffer, name).mockImplementation((bytes: number) => {
      taken += bytes;
      return real(bytes);
    });
  });
  try {
    const kept = new CappedBytes(cap);
    for (const piece = new Uint8Array(16_384); kept.push(piece); );
    expect(kept.bytes().length).toBe(cap);
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
  expect(taken).toBeLessThanOrEqual(cap + 65_536);
});
