import { lower, round6 } from "./bounds.ts";
import { params } from "./params.ts";

const { block_weight, budget_share_of_own, worst_blocks_per_payer } = params.buyers;

/** The worst blocks of one payer. */
export const worstOf = (xs: readonly number[]): number[] =>
  [...xs].sort((a, b) => a - b).slice(0, worst_blocks_per_payer);

/** Point and lower bound before rounding, and whether any published call lies below our own bound. */
export interface Lowered {
  point: number;
  lower: number;
  below: boolean;
}

/**
 * Published calls lower a figure and never raise it (method, section 3): those below our own bound enter, worst first,
 * until they weigh 5 % of ours, and the lowest figure on the way counts, so the order of arrival cannot matter.
 * @param s own weighted successes @param w own weight, above 0 @param xs values of the payers' worst blocks, any order
 */
export function withBuyers(s: number, w: number, deff: number, xs: readonly number[]): Lowered {
  const own = lower(s / deff, w / deff) ?? 0;
  const bar = round6(own);
  const entering = xs.filter((x) => round6(x) < bar).sort((a, b) => a - b);
  let weight = 0;
  let sum = 0;
  let point = s / w;
  let low = own;
  for (const [i, x] of entering.entries()) {
    const take = Math.max(0, Math.min(block_weight, budget_share_of_own * w - i * block_weight));
    if (take === 0) break;
    weight += take;
    sum += take * x;
    point = Math.min(point, (s + sum) / (w + weight));
    low = Math.min(low, lower((s + sum) / deff, (w + weight) / deff) ?? 0);
  }
  return { point, lower: low, below: entering.length > 0 };
}
