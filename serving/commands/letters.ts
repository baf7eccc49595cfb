import type { H3 } from "h3";
import type { CheckAnswer } from "../schemas/check.ts";

/** What the demo found: one row a seller, from the same answers that anybody gets. */
export interface SellerLetter {
  seller: string;
  url: string;
  capability_id: string | null;
  band: string;
  tier: string | null;
  composite: number | null;
  why: string;
  flags: string[];
  /** Codes of what its listing or its 402 gets wrong. */
  defects: string[];
  samples: number;
}

export interface MarketLetters {
  /** Span of record time that was lived through in `took_s` seconds. */
  lapsed: { from: string; until: string };
  took_s: number;
  tree_size: number;
  market: SellerLetter[];
}

/** Ask `/v1/check` about every seller of the market, by its own app. */
export async function lettersOf(
  app: H3,
  sellers: readonly { name: string; urls: string[] }[],
): Promise<SellerLetter[]> {
  const letters: SellerLetter[] = [];
  for (const seller of sellers) {
    for (const url of seller.urls) {
      const response = await app.request(`/v1/check?url=${encodeURIComponent(url)}`);
      if (response.status !== 200)
        throw new Error(`check of ${url} answered ${response.status}: ${await response.text()}`);
      const answer = (await response.json()) as CheckAnswer;
      letters.push({
        seller: seller.name,
        url,
        capability_id: answer.capabilityId ?? null,
        band: answer.band,
        tier: answer.tier,
        composite: answer.composite,
        why: answer.why,
        flags: answer.flags ?? [],
        defects: answer.defects.map(({ defect }) => defect),
        samples: answer.sampleCount ?? 0,
      });
    }
  }
  return letters;
}

/** The same as a table for people, and where to look next. */
export function letterTable(result: MarketLetters, baseUrl: string): string {
  const rows = result.market.map((one) => [
    one.band,
    one.seller,
    one.tier?.replace("_VERIFIED", "").toLowerCase() ?? "-",
    one.composite === null ? "-" : one.composite.toFixed(3),
  ]);
  const widths = [0, 1, 2, 3].map((i) => Math.max(...rows.map((row) => row[i]!.length)));
  const lines = result.market.map((one, i) => {
    const cells = rows[i]!.map((cell, c) => cell.padEnd(widths[c]!)).join("  ");
    return `${cells}  ${one.why}${one.flags.length ? `\n${" ".repeat(widths[0]! + 2)}flags: ${one.flags.join(", ")}` : ""}`;
  });
  const first = result.market[0];
  return [
    "",
    ...lines,
    "",
    `Record time ${result.lapsed.from} to ${result.lapsed.until} was lapsed in ${result.took_s} s; ${result.tree_size} leaves are published.`,
    first ? `Ask: curl '${baseUrl}/v1/check?url=${encodeURIComponent(first.url)}'` : "",
    "",
  ].join("\n");
}
