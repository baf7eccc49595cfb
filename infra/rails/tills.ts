import type { Clock } from "../clock.ts";
import { type Till, TillDown } from "./till.ts";

export interface TillsOptions {
  clock: Pick<Clock, "monotonic">;
  /** How long one that failed is passed over. Default 30 s. */
  rest_ms?: number;
}

/** Several tills as one, and which of them are passed over now. */
export interface Tills extends Till {
  /** In their order. */
  health(): { name: string; resting: boolean }[];
}

/**
 * Several tills in their order of preference. One that could not be asked rests for a while and is then tried again;
 * when all of them rest, they are asked all the same, since a rest is a guess and a buyer waits.
 *
 * Whether a payment is valid is asked of the next one when nobody answers. A settlement goes to one till only: after
 * `unknown` it may be on its way to a block, and whether to send it again is the caller's to decide, who reads the
 * chain. If it does, the till that left it unknown rests, so that another one is asked.
 */
export function createTills(tills: readonly Till[], { clock, rest_ms = 30_000 }: TillsOptions): Tills {
  if (tills.length === 0) throw new RangeError("no till");
  const restsUntil = new Map<Till, number>();
  const resting = (till: Till): boolean => (restsUntil.get(till) ?? 0) > clock.monotonic();
  const rest = (till: Till) => restsUntil.set(till, clock.monotonic() + rest_ms);
  const inOrder = (): Till[] => [...tills.filter((till) => !resting(till)), ...tills.filter(resting)];
  return {
    name: tills.map(({ name }) => name).join(", "),
    async verify(payment, requirements) {
      const said: string[] = [];
      for (const till of inOrder()) {
        try {
          const answer = await till.verify(payment, requirements);
          restsUntil.delete(till);
          return answer;
        } catch (error) {
          if (!(error instanceof TillDown)) throw error;
          rest(till);
          said.push(error.message);
        }
      }
      throw new TillDown(said.join("; "));
    },
    async settle(payment, requirements) {
      const till = inOrder()[0]!;
      const outcome = await till.settle(payment, requirements);
      if (outcome.outcome === "unknown") rest(till);
      else restsUntil.delete(till);
      return outcome;
    },
    health: () => tills.map((till) => ({ name: till.name, resting: resting(till) })),
  };
}
