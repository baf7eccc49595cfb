import type { Holder, Place } from "../../infra/shares.ts";
import { Places } from "../../infra/shares.ts";
import { OWN_FETCHES_AT_ONCE, PRICES_AT_ONCE, VIA_AT_ONCE } from "../../pipelines/1-observe/queue.ts";
import { Problem } from "../http/problem.ts";

/**
 * Number of places for price requests that are reserved for buyers' requests with a payment. A place allows one piece
 * of work to run.
 */
const RESERVED_PRICE_PLACES = 4;
/** Longest wait for a place for a call or for our own work, ms. The buyer's payment must stay valid during the wait. */
const WAIT_MS = 5_000;
/** Longest wait for a place for a price request, ms. */
const PRICE_WAIT_MS = 2_000;
/**
 * Time after which a place is released even if its work has not ended, ms, so that a log that never answers does not
 * occupy it for ever. A call of one seller takes at most 90 s, and each call of an execution restarts this time.
 */
const PLACE_LIFETIME_MS = 150_000;
/** Value of Retry-After, seconds. A seller has 30 to 90 s for its answer, and most sellers need a few seconds. */
const RETRY_S = "5";

/**
 * Limits how many bought calls, requests for sellers' prices, and pieces of our own work run at once. A place is taken
 * before the order is written to the log and before we sign a payment, so a buyer that gets no place can send its
 * payment again. Places are shared fairly by payer, client network and seller's platform.
 */
export class SalePlaces {
  readonly #calls = new Places({ name: "bought calls", size: VIA_AT_ONCE });
  readonly #prices = new Places({ name: "prices", size: PRICES_AT_ONCE, kept: RESERVED_PRICE_PLACES });
  readonly #ownWork = new Places({ name: "own work", size: OWN_FETCHES_AT_ONCE });

  /**
   * Takes a place for a call. The caller may move the place to another seller, and releases it when the order has
   * ended.
   * @param withinMs time until the request's deadline
   * @throws Problem too_many_requests, unavailable
   */
  forCall(holder: Holder, withinMs = WAIT_MS): Promise<Place> {
    return takePlace(this.#calls, holder, Math.min(withinMs, WAIT_MS));
  }

  /** Takes a place to ask a seller for its price. @throws Problem as {@link forCall} */
  forPrice(holder: Holder): Promise<Place> {
    return takePlace(this.#prices, holder, PRICE_WAIT_MS);
  }

  /** Takes a place for our own work. @throws Problem as {@link forCall} */
  forWork(holder: Holder): Promise<Place> {
    return takePlace(this.#ownWork, holder, WAIT_MS);
  }
}

/**
 * Takes a place. @throws Problem too_many_requests if this holder has its share, unavailable if all places are taken
 */
async function takePlace(places: Places, holder: Holder, withinMs: number): Promise<Place> {
  const place = await places.take(holder, AbortSignal.timeout(Math.max(0, Math.ceil(withinMs))));
  if (place) return withLifetime(place);
  const headers = { "retry-after": RETRY_S };
  const heldCount = places.heldCountOf(holder);
  if (heldCount === 0)
    throw new Problem("unavailable", `all places for ${places.name} are taken; nothing was done`, { headers });
  const detail = `${heldCount} ${places.name} of one buyer, network or seller are under way, which is its share now; nothing was done`;
  throw new Problem("too_many_requests", detail, { headers });
}

/** Wraps a place so that it is released after {@link PLACE_LIFETIME_MS}. */
function withLifetime(place: Place): Place {
  const timer = setTimeout(() => place.leave(), PLACE_LIFETIME_MS).unref();
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
