import type { H3 } from "h3";
import type { CheckAnswer } from "../serving/schemas/check.ts";
import { columns } from "./report.ts";

/** One row of the demo's table: the letter of one seller, from the public check. */
export interface SellerLetter {
  seller: string;
  url: string;
  capability_id: string | null;
  band: string;
  tier: string | null;
  composite: number | null;
  why: string;
  flags: string[];
  /** Codes of the defects of its listing or its 402. */
  defects: string[];
  samples: number;
}

export interface MarketLetters {
  /** The simulated time span, and the real seconds that it took. */
  simulated: { from: string; until: string };
  took_s: number;
  tree_size: number;
  market: SellerLetter[];
}

/** Requests `/v1/check` for every url of the demo's sellers. */
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

const WIDTH = 110;
const INDENT = " ".repeat(4);

/** Breaks a text into indented lines of at most `WIDTH` characters. */
function wrapText(text: string): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= WIDTH) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(INDENT + word);
  }
  return lines;
}

/** Formats a bound with three decimals, rounded down as in the card's sentence. */
const formatBound = (figure: number): string => (Math.floor(Math.round(figure * 1e6) / 1e3) / 1e3).toFixed(3);

const shortTier = (one: SellerLetter): string => one.tier?.replace("_VERIFIED", "").toLowerCase() ?? "-";

/**
 * Formats the letters as a table: one line for each seller with its reasons below it, and at the end a command to try.
 */
export function letterLines(result: MarketLetters, baseUrl: string): string[] {
  const [head, ...lines] = columns([
    ["letter", "seller", "tier", "composite", "records"],
    ...result.market.map((one) => {
      const composite = one.composite === null ? "-" : formatBound(one.composite);
      return [one.band, one.seller, shortTier(one), composite, String(one.samples)];
    }),
  ]);
  const market = result.market.flatMap((one, i) => [
    lines[i]!,
    ...wrapText(one.why),
    ...(one.flags.length ? wrapText(`flags: ${one.flags.join(", ")}`) : []),
    ...(one.defects.length ? wrapText(`defects: ${one.defects.join(", ")}`) : []),
  ]);
  const first = result.market[0];
  const { from, until } = result.simulated;
  return [
    "",
    head!,
    ...market,
    "",
    `Record time ${from} to ${until} was simulated in ${result.took_s} s; ${result.tree_size} leaves are published.`,
    first ? `next: curl '${baseUrl}/v1/check?url=${encodeURIComponent(first.url)}'` : "",
  ];
}
