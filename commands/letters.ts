import type { H3 } from "h3";
import type { CheckAnswer } from "../serving/schemas/check.ts";
import { columns } from "./report.ts";

/** One row of the demo's table: the grade of one url of a seller, as GET /v1/check returns it. */
export interface SellerLetter {
  seller: string;
  url: string;
  /** Id of the endpoint in the record (a hash of url, method and tool); null if the record lacks it. */
  capability_id: string | null;
  /** The letter, A to F or UNRATED. */
  band: string;
  /**
   * The evidence for the letter: probes (LIVENESS_VERIFIED), also paid calls (DELIVERY_VERIFIED), or also checked
   * answers (OUTCOME_VERIFIED); null without a grade.
   */
  tier: string | null;
  /**
   * Weighted sum of the lower bounds of all measured rates, from which the letter follows, 0 to 1; null without a
   * grade.
   */
  composite: number | null;
  /** Sentence that explains the letter. */
  why: string;
  flags: string[];
  /** Codes of the defects in the endpoint's listing or 402. */
  defects: string[];
  /** Number of records that the grade counts. */
  samples: number;
}

/** The letters of the demo, and how they came about. */
export interface MarketLetters {
  /** First simulated day (YYYY-MM-DD), and end of the simulated time (RFC 3339). */
  simulated: { from: string; until: string };
  /** Real seconds that the simulation took. */
  took_s: number;
  /** Number of entries (leaves) of the public log. */
  tree_size: number;
  /** The letter of each url of the demo's sellers. */
  market: SellerLetter[];
}

/** Requests `/v1/check` for every url of the demo's sellers, in this process, without the network. */
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

/** Formats a composite with three decimals, rounded down as in the sentence `why`. */
const formatComposite = (figure: number): string => (Math.floor(Math.round(figure * 1e6) / 1e3) / 1e3).toFixed(3);

const shortTier = (one: SellerLetter): string => one.tier?.replace("_VERIFIED", "").toLowerCase() ?? "-";

/**
 * Formats the letters as a table: one line for each url of a seller, with its address and the reasons below it, and at
 * the end a command to try.
 */
export function letterLines(result: MarketLetters, baseUrl: string): string[] {
  const [head, ...lines] = columns([
    ["letter", "seller", "tier", "composite", "records"],
    ...result.market.map((one) => {
      const composite = one.composite === null ? "-" : formatComposite(one.composite);
      return [one.band, one.seller, shortTier(one), composite, String(one.samples)];
    }),
  ]);
  const market = result.market.flatMap((one, i) => [
    lines[i]!,
    INDENT + one.url,
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
