import { expect, it } from "vitest";
import { canonicalBytes, canonicalText } from "../../../infra/canonical.ts";
import { signTextSoon } from "../../../infra/keys/signer.ts";
import { BadLeaf, CARD_TEXT, type Draft, sealLeaf } from "../../../pipelines/4-publish/leaves.ts";
import { fc } from "../../helpers/histories.ts";
import { line, SIGNERS } from "./world.ts";

const AT = "2026-11-21T04:00:00.000Z";
const { card: plain } = line("a", AT, ["B"]).cards[0]!;

it("a leaf whose card was printed for its signature has the bytes of one that is printed whole", async () => {
  const text = fc.string({ unit: "grapheme" });
  const figure = fc.double({ noNaN: true, min: -1e9, max: 1e9 });
  await fc.assert(
    fc.asyncProperty(
      text,
      fc.dictionary(text, figure),
      fc.array(text),
      async (why, weights_applied, evidence_sample) => {
        const signed = await signTextSoon(SIGNERS.cards, { ...plain, weights_applied, evidence_sample });
        const inputs = { positions: {}, digest: why, kin: "" };
        const draft: Draft = {
          kind: "grade",
          day: AT.slice(0, 10),
          raw_band: "B",
          headline: true,
          why,
          inputs,
          card: signed.object,
        };
        const whole = sealLeaf(draft, 7, 3, AT);
        const carried = sealLeaf({ ...draft, [CARD_TEXT]: signed.text }, 7, 3, AT);
        expect(carried.bytes.toString()).toBe(whole.bytes.toString());
        expect(carried.bytes).toEqual(canonicalBytes({ ...draft, index: 7, seq: 3, at: AT }));
        expect(canonicalText(carried.leaf)).toBe(carried.bytes.toString());
      },
    ),
  );
});

it.each([2 ** 53, -(2 ** 53)])(
  "the integer %d, which is two numbers of a text, comes into no card and no leaf",
  async (n) => {
    const weights_applied = { liveness: n };
    expect(() => signTextSoon(SIGNERS.cards, { ...plain, weights_applied })).toThrow(
      /integer past .* \/weights_applied\//,
    );
    const inputs = { positions: {}, digest: "", kin: "" };
    const facts = {
      kind: "grade" as const,
      day: AT.slice(0, 10),
      raw_band: "B" as const,
      headline: true,
      why: "",
      inputs,
    };
    const signed = await signTextSoon(SIGNERS.cards, plain);
    const draft = (more: object): Draft => ({ ...facts, card: { ...signed.object, ...more } });
    expect(() => sealLeaf(draft({}), 7, 3, AT)).not.toThrow();
    expect(() => sealLeaf(draft({ weights_applied }), 7, 3, AT)).toThrow(BadLeaf);
    // Beside a card that is printed already.
    const carried = { ...draft({}), inputs: { ...inputs, positions: { asks: n } }, [CARD_TEXT]: signed.text };
    expect(() => sealLeaf(carried, 7, 3, AT)).toThrow(BadLeaf);
  },
);
