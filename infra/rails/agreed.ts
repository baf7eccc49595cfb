import type { Settlement } from "./rails.ts";
import { ChainDown, Resting } from "./rpc.ts";
import type { Money } from "./settlement.ts";

type Ask<T> = (node: Money) => Promise<T>;
interface Head {
  number: number;
  time: number;
}

const resting = new Resting<Money>();

/** Is it the trouble of one node, so that another one may know better? */
const isDown = (error: unknown): error is ChainDown => error instanceof ChainDown;

/**
 * What nodes say, each of a whole question: half an answer of one and half of another, which lags behind, would be an
 * answer that no node gave. One that does not answer is passed over.
 * @param wanted stop when so many have answered, and ask no more at once than that needs; null asks all
 * @throws ChainDown when fewer than `least` answered
 */
async function answersOf<T>(nodes: readonly Money[], least: number, wanted: number | null, ask: Ask<T>): Promise<T[]> {
  const answers: T[] = [];
  const failed: ChainDown[] = [];
  const one = async (node: Money) => {
    try {
      answers.push(await ask(node));
    } catch (error) {
      if (!isDown(error)) throw error;
      resting.fell(node);
      failed.push(error);
    }
  };
  if (wanted === null) await Promise.all(nodes.map(one));
  else for (const node of resting.order(nodes)) if (answers.length < wanted) await one(node);
  if (answers.length >= least) return answers;
  const why = failed[0]?.message ?? "no node was asked";
  if (least === 1) throw failed[0] ?? new ChainDown(why);
  throw new ChainDown(`${answers.length} of ${nodes.length} nodes answered, and ${least} have to agree: ${why}`);
}

const keyOf = ({ tx, from, to, amountAtomic, blockNumber }: Settlement): string =>
  [tx, from, to, amountAtomic, blockNumber].join(" ");

/** The transfers that at least `agree` lists have, as often as they have them; final where so many say so. */
function inCommon(lists: readonly (readonly Settlement[])[], agree: number): Settlement[] {
  const votes = new Map<string, { first: Settlement; seen: number; final: number; senders: (string | undefined)[] }>();
  for (const list of lists) {
    const times = new Map<string, number>();
    for (const one of list) {
      const nth = (times.get(keyOf(one)) ?? 0) + 1;
      times.set(keyOf(one), nth);
      const vote = votes.get(`${nth} ${keyOf(one)}`) ?? { first: one, seen: 0, final: 0, senders: [] };
      votes.set(`${nth} ${keyOf(one)}`, {
        ...{ first: vote.first, seen: vote.seen + 1 },
        final: vote.final + (one.final ? 1 : 0),
        senders: [...vote.senders, one.sender],
      });
    }
  }
  const believed = [...votes.values()].filter(({ seen }) => seen >= agree);
  return believed
    .map(({ first: { sender, ...first }, final, senders }) => ({
      ...{ ...first, final: final >= agree },
      ...(sender !== undefined && senders.every((one) => one === sender) ? { sender } : {}),
    }))
    .sort((a, b) => a.blockNumber - b.blockNumber);
}

/**
 * One answer of several nodes of a chain. Where one node is enough, it is the first that answers; where `agree` have to
 * say the same, all are asked, and a settlement that fewer tell of is neither there nor missing: the chain is down, and
 * whoever asked asks again. A node that lies, or lags, accuses nobody and excuses nobody.
 */
export const agreed = {
  async settlement(nodes: readonly Money[], agree: number, ask: Ask<Settlement | null>): Promise<Settlement | null> {
    if (agree === 1) return (await answersOf(nodes, 1, 1, ask))[0]!;
    const said = await answersOf(nodes, agree, null, ask);
    const [settled] = inCommon(
      said.map((one) => (one ? [one] : [])),
      agree,
    );
    if (settled) return settled;
    const none = said.filter((one) => one === null).length;
    if (none >= agree) return null;
    throw new ChainDown(`the nodes do not agree whether a payment settled: ${none} of ${said.length} say it did not`);
  },
  async transfers(nodes: readonly Money[], agree: number, ask: Ask<Settlement[]>): Promise<Settlement[]> {
    if (agree === 1) return (await answersOf(nodes, 1, 1, ask))[0]!;
    return inCommon(await answersOf(nodes, agree, null, ask), agree);
  },
  /** What at least `agree` nodes say alike. @param textOf the same for answers that are the same */
  async same<T>(nodes: readonly Money[], agree: number, ask: Ask<T>, textOf: (answer: T) => string): Promise<T> {
    if (agree === 1) return (await answersOf(nodes, 1, 1, ask))[0]!;
    const said = (await answersOf(nodes, agree, null, ask)).map((answer) => ({ answer, text: textOf(answer) }));
    const found = said.find(({ text }) => said.filter((one) => one.text === text).length >= agree);
    if (!found) throw new ChainDown(`no ${agree} of ${said.length} nodes that answered say the same`);
    return found.answer;
  },
  /** The newest block that `agree` nodes have: later than none of them has it, so nothing is called over too soon. */
  async head(nodes: readonly Money[], agree: number, ask: Ask<Head>): Promise<Head> {
    if (agree === 1) return (await answersOf(nodes, 1, 1, ask))[0]!;
    const heads = await answersOf(nodes, agree, null, ask);
    return heads.sort((a, b) => b.number - a.number)[agree - 1]!;
  },
};
