import type { Holder, Place } from "../../infra/shares.ts";
import { Places } from "../../infra/shares.ts";
import { PRICES_AT_ONCE, VIA_AT_ONCE, WORK_AT_ONCE } from "../../pipelines/1-observe/queue.ts";
import { Problem } from "../http/problem.ts";

/** Places for prices that only requests which bring a payment may have. */
const PRICES_KEPT = 4;
/** Longest wait for a place of a call or of work, and of a price, ms. A payment is verified before, and must still hold. */
const WAIT_MS = 5_000;
const PRICE_WAIT_MS = 2_000;
/**
 * A place is given back after so long, ms, whatever became of its work: a log that never answers would hold it for ever.
 * The longest leg is 90 s, and each leg of an execution begins it anew.
 */
const LAPSES_MS = 150_000;
/** Seconds after which a place is likely free: a seller has 30 to 90 for its answer, most take a few. */
const RETRY_S = "5";

/**
 * Places of everything that is sold: bought calls, prices that are asked of sellers for them, and work of our own. A
 * place is held before the claim is written and before anything is signed, so that whoever gets none has lost nothing:
 * the same payment may be sent again. Each is given by shares of payer, client network and seller's platform.
 */
export class SalePlaces {
  readonly #calls = new Places({ name: "bought calls", size: VIA_AT_ONCE });
  readonly #prices = new Places({ name: "prices", size: PRICES_AT_ONCE, kept: PRICES_KEPT });
  readonly #works = new Places({ name: "own work", size: WORK_AT_ONCE });

  /**
   * A place for a call; it may move to another seller, and is given back once the order has ended.
   * @param withinMs what is left of the request's deadline @throws Problem too_many_requests, unavailable
   */
  forCall(holder: Holder, withinMs = WAIT_MS): Promise<Place> {
    return placeIn(this.#calls, holder, Math.min(withinMs, WAIT_MS));
  }

  /** A place to ask a seller for its price. @throws Problem as {@link forCall} */
  forPrice(holder: Holder): Promise<Place> {
    return placeIn(this.#prices, holder, PRICE_WAIT_MS);
  }

  /** A place for work of our own. @throws Problem as {@link forCall} */
  forWork(holder: Holder): Promise<Place> {
    return placeIn(this.#works, holder, WAIT_MS);
  }
}

/** @throws Problem too_many_requests where this holder has some already, unavailable where others have all */
async function placeIn(places: Places, holder: Holder, withinMs: number): Promise<Place> {
  const place = await places.take(holder, AbortSignal.timeout(Math.max(0, Math.ceil(withinMs))));
  if (place) return lapsing(place);
  const headers = { "retry-after": RETRY_S };
  const had = places.heldBy(holder);
  if (had === 0)
    throw new Problem("unavailable", `all places for ${places.name} are taken; nothing was done`, { headers });
  const detail = `${had} ${places.name} of one buyer, network or seller are under way, which is its share now; nothing was done`;
  throw new Problem("too_many_requests", detail, { headers });
}

function lapsing(place: Place): Place {
  const timer = setTimeout(() => place.leave(), LAPSES_MS).unref();
  return {
    leave() {
      clearTimeout(timer);
      place.leave();
    },
    move(holder) {
      const moved = place.move(holder);
      if (moved) timer.refresh();
      return moved;
    },
  };
}
