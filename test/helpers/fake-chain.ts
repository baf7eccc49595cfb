import type { Rail, Settlement } from "../../infra/rails/rails.ts";

/** A signed transfer of EIP-3009: whoever holds it may submit it. */
export interface FakeAuthorization {
  from: string;
  to: string;
  value: bigint;
  validAfter: number;
  validBefore: number;
  nonce: string;
}

export const NETWORK = "eip155:84532";
export const ASSET = "0x036cbd53842c5426634e7929541ec2318f3dcf7e";

/**
 * A chain with one token, in memory: balances, nonces of EIP-3009 that move money once or are cancelled, validity by
 * the block's time, and events in their order. A block a transaction.
 */
export class FakeChain {
  time = 1_000_000;
  block = 1_000;
  readonly moved: Settlement[] = [];
  readonly #balances = new Map<string, bigint>();
  /** By `from nonce`: the transfer that used it, or null for one that was cancelled. */
  readonly #nonces = new Map<string, Settlement | null>();

  balance = (address: string): bigint => this.#balances.get(address) ?? 0n;

  mint(to: string, amount: bigint): void {
    this.#balances.set(to, this.balance(to) + amount);
  }

  /** @returns why it reverts, or null once it is in a block */
  transfer(from: string, to: string, amount: bigint): string | null {
    if (this.balance(from) < amount) return "insufficient_funds";
    this.mint(from, -amount);
    this.mint(to, amount);
    this.block++;
    const at = { blockNumber: this.block, blockTime: this.time, final: true };
    this.moved.push({ tx: `0x${this.block}`, from, to, amountAtomic: amount, asset: ASSET, network: NETWORK, ...at });
    return null;
  }

  isUsed = ({ from, nonce }: Pick<FakeAuthorization, "from" | "nonce">): boolean =>
    this.#nonces.has(`${from} ${nonce}`);

  /** `transferWithAuthorization`. @returns why it reverts, or null once it is in a block */
  submit(auth: FakeAuthorization): string | null {
    if (this.isUsed(auth)) return "authorization_used";
    if (this.time <= auth.validAfter || this.time >= auth.validBefore) return "authorization_time";
    const reverts = this.transfer(auth.from, auth.to, auth.value);
    if (reverts === null) this.#nonces.set(`${auth.from} ${auth.nonce}`, this.moved.at(-1)!);
    return reverts;
  }

  /** `cancelAuthorization`. */
  cancel(auth: Pick<FakeAuthorization, "from" | "nonce">): void {
    this.block++;
    if (!this.isUsed(auth)) this.#nonces.set(`${auth.from} ${auth.nonce}`, null);
  }

  settlementOf({ from, nonce, sinceBlock }: { from: string; nonce: string; sinceBlock: number }): Settlement | null {
    const found = this.#nonces.get(`${from} ${nonce}`) ?? null;
    return found && found.blockNumber >= sinceBlock ? found : null;
  }

  /** What a rail reads of it, and how it signs: the header is the authorization itself. */
  rail(): Rail {
    let drawn = 0;
    return {
      network: NETWORK,
      asset: ASSET,
      canPay: () => true,
      sign: async ({ payTo, amountAtomic, maxTimeoutSeconds }, { address: from }) => {
        const nonce = `0xleg${this.block}.${this.time}.${drawn++}.${Math.random()}`;
        const times = { validAfter: 0, validBefore: this.time + maxTimeoutSeconds };
        const auth = { from, to: payTo, value: amountAtomic, nonce, ...times };
        return { headerName: "PAYMENT-SIGNATURE", headerValue: written(auth), from, nonce, amountAtomic, ...times };
      },
      settlementOf: async (query) => this.settlementOf(query),
      transfers: async ({ from, to, sinceBlock }) =>
        this.moved.filter((one) => one.from === from && one.to === to && one.blockNumber >= sinceBlock),
      head: async () => ({ number: this.block, time: this.time }),
      balance: async (address) => this.balance(address),
      close: async () => {},
    };
  }
}

export const written = (auth: FakeAuthorization): string => JSON.stringify({ ...auth, value: auth.value.toString() });

export function readAuth(text: string): FakeAuthorization {
  const auth = JSON.parse(text) as FakeAuthorization;
  return { ...auth, value: BigInt(auth.value) };
}
