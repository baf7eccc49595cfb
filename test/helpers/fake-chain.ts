import { randomBytes } from "node:crypto";
import type { Authorizations } from "../../infra/rails/authorization.ts";
import { type AsOf, type Block, mapAsOf, type Rail, type Settlement } from "../../infra/rails/rails.ts";
import { ChainDown } from "../../infra/rails/rpc.ts";
import type { Outcome } from "../../infra/rails/sender.ts";
import { SEARCH_MARGIN_BLOCKS } from "../../infra/rails/settlement.ts";

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

type Soon<T> = T | Promise<T>;

/** How a rail's node is at the moment: a test may change it while the rail is in use. */
export interface FakeNode {
  /** Chain seconds that it is behind: it has no newer block, and says nothing of one. */
  lagS?: number;
  /** The same of {@link Rail.head} alone, where another node answers that; default: `lagS`. */
  headLagS?: number;
  /** It answers nothing. */
  down?: boolean;
  /** Nothing ever happened, it says, and the chain is a day further. */
  lies?: boolean;
}

const DAY_S = 86_400;

/** A rail that also says what became of an authorization. */
export type TestRail = Rail & Pick<Authorizations, "stateOf">;

/** The one chain that a history is lived on: in memory, or a node's. Wallets have names there, `0xbuyer1`. */
export interface TestChain {
  readonly confirmations: number;
  /** Unix seconds of the newest block. */
  readonly time: number;
  balance(address: string): Soon<bigint>;
  mint(to: string, amount: bigint): void;
  transfer(from: string, to: string, amount: bigint): Soon<string | null>;
  isUsed(auth: Pick<FakeAuthorization, "from" | "nonce">): Soon<boolean>;
  submit(auth: FakeAuthorization): Soon<string | null>;
  /** The same by the facilitator that charges buyers. */
  charge(auth: FakeAuthorization): Soon<Outcome>;
  cancel(auth: Pick<FakeAuthorization, "from" | "nonce">): Soon<void>;
  settlementOf(query: { from: string; nonce: string; sinceBlock: number }): Soon<Settlement | null>;
  movements(): Soon<readonly Settlement[]>;
  pass(seconds: number): Soon<void>;
  reorg(depth: number, again: boolean): Soon<void>;
  /** @param node default: one that is up to date and honest; a chain on a real node has no other */
  rail(node?: FakeNode): TestRail;
  /** Lets whatever is under way go on for a moment. */
  turn(): Promise<void>;
}

/** A nonce that nobody used. */
export const newNonce = (): string => `0x${randomBytes(32).toString("hex")}`;

/** A transaction in a block, as a chain can lose it and take it in again. */
interface Mined {
  block: number;
  undo(): void;
  again(): void;
}

const SECONDS_A_BLOCK = 2;

/**
 * A chain with one token, in memory: balances, nonces of EIP-3009 that move money once or are cancelled, validity by
 * the block's time, and events in their order. A block a transaction, and one every two seconds.
 */
export class FakeChain implements TestChain {
  time = 1_000_000;
  block = 1_000;
  readonly moved: Settlement[] = [];
  readonly #mined: Mined[] = [];
  /** Since which block it is how late. */
  readonly #times = [{ number: 0, time: this.time }];
  readonly #balances = new Map<string, bigint>();
  /** By `from nonce`: the transfer that used it, or null for one that was cancelled. */
  readonly #nonces = new Map<string, Settlement | null>();

  /** @param confirmations as the rail's: a block under so many, itself counted, no longer vanishes */
  constructor(readonly confirmations = 1) {}

  movements = (): readonly Settlement[] => this.moved;

  async turn(): Promise<void> {
    for (let n = 0; n < 6; n++) await new Promise((resolve) => setImmediate(resolve));
  }

  balance = (address: string): bigint => this.#balances.get(address) ?? 0n;

  mint(to: string, amount: bigint): void {
    this.#balances.set(to, this.balance(to) + amount);
  }

  /** @returns why it reverts, or null once it is in a block */
  transfer(from: string, to: string, amount: bigint): string | null {
    if (this.balance(from) < amount) return "insufficient_funds";
    const move = (micro: bigint) => {
      this.mint(from, -micro);
      this.mint(to, micro);
    };
    move(amount);
    this.block++;
    const at = { blockNumber: this.block, blockTime: this.time, final: false };
    const moved = { tx: `0x${this.block}`, from, to, amountAtomic: amount, asset: ASSET, network: NETWORK, ...at };
    this.moved.push(moved);
    this.#mined.push({
      block: this.block,
      undo: () => {
        move(-amount);
        this.moved.splice(this.moved.indexOf(moved), 1);
      },
      again: () => void this.transfer(from, to, amount),
    });
    return null;
  }

  /** Time passes, with its blocks. */
  pass(seconds: number): void {
    this.time += seconds;
    this.block += Math.max(1, Math.floor(seconds / SECONDS_A_BLOCK));
    this.#times.push({ number: this.block, time: this.time });
  }

  /**
   * The newest blocks vanish, as far as they can, and others take their place. @param again whether what stood in them
   * is taken in once more, where it still holds
   */
  reorg(depth: number, again: boolean): void {
    const from = this.block - Math.min(depth, this.confirmations - 1);
    const gone = this.#mined.splice(this.#mined.findLastIndex(({ block }) => block <= from) + 1);
    for (const one of [...gone].reverse()) one.undo();
    this.block++;
    if (again) for (const one of gone) one.again();
  }

  isUsed = ({ from, nonce }: Pick<FakeAuthorization, "from" | "nonce">): boolean =>
    this.#nonces.has(`${from} ${nonce}`);

  /** `transferWithAuthorization`. @returns why it reverts, or null once it is in a block */
  submit(auth: FakeAuthorization): string | null {
    if (this.isUsed(auth)) return "authorization_used";
    if (this.time <= auth.validAfter || this.time >= auth.validBefore) return "authorization_time";
    const reverts = this.transfer(auth.from, auth.to, auth.value);
    if (reverts === null) this.#use(auth, this.moved.at(-1)!, () => void this.submit(auth));
    return reverts;
  }

  charge(auth: FakeAuthorization): Outcome {
    const refused = this.submit(auth);
    return refused === null ? { outcome: "sent", tx: `0x${this.block}` } : { outcome: "refused", reason: refused };
  }

  /** `cancelAuthorization`. */
  cancel(auth: Pick<FakeAuthorization, "from" | "nonce">): void {
    this.block++;
    if (this.isUsed(auth)) return;
    this.#mined.push({ block: this.block, undo() {}, again() {} });
    this.#use(auth, null, () => this.cancel(auth));
  }

  /** What the newest transaction did to a nonce goes and comes with it. */
  #use({ from, nonce }: Pick<FakeAuthorization, "from" | "nonce">, by: Settlement | null, again: () => void): void {
    this.#nonces.set(`${from} ${nonce}`, by);
    const mined = this.#mined.pop()!;
    const undo = () => {
      this.#nonces.delete(`${from} ${nonce}`);
      mined.undo();
    };
    this.#mined.push({ block: mined.block, undo, again });
  }

  /** What became of a nonce up to a block: nothing, a cancellation (null too), or the Transfer. */
  #settled({ from, nonce }: Pick<FakeAuthorization, "from" | "nonce">, head: Block): Settlement | null {
    const found = this.#nonces.get(`${from} ${nonce}`) ?? null;
    return found && found.blockNumber <= head.number ? found : null;
  }

  settlementOf(query: { from: string; nonce: string; sinceBlock: number }): Settlement | null {
    const { value, final } = this.#read({}, (head) => this.#settled(query, head));
    if (!value || value.blockNumber < query.sinceBlock - SEARCH_MARGIN_BLOCKS) return null;
    return { ...value, final: value.blockNumber <= final.number };
  }

  /** The newest block that was made so long ago. */
  #headOf({ lagS = 0, lies = false }: FakeNode): Block {
    if (lies) return { number: this.block + DAY_S / SECONDS_A_BLOCK, time: this.time + DAY_S };
    if (lagS <= 0) return { number: this.block, time: this.time };
    const late = this.#times.findLast(({ time }) => time <= this.time - lagS) ?? this.#times[0]!;
    return { number: Math.max(late.number, 1), time: late.time };
  }

  #finalOf(head: Block): Block {
    if (this.confirmations === 1) return head;
    const number = head.number - this.confirmations + 1;
    return { number, time: Math.min(head.time, this.#times.findLast((one) => one.number <= number)!.time) };
  }

  #read<T>(node: FakeNode, read: (head: Block) => T): AsOf<T> {
    if (node.down) throw new ChainDown("the node is down");
    const head = this.#headOf(node);
    return { value: read(node.lies ? { number: -1, time: 0 } : head), head, final: this.#finalOf(head) };
  }

  #listed(node: FakeNode, isAsked: (one: Settlement) => boolean): AsOf<Settlement[]> {
    const read = this.#read(node, ({ number }) =>
      this.moved.filter((one) => one.blockNumber <= number && isAsked(one)),
    );
    return mapAsOf(read, (all, { final }) => all.map((one) => ({ ...one, final: one.blockNumber <= final.number })));
  }

  /** What it held at a block: what came and went since is taken off again. */
  #heldAt(address: string, { number }: Block): bigint {
    const since = this.moved.filter((one) => one.blockNumber > number);
    const sum = (all: Settlement[]) => all.reduce((micro, one) => micro + one.amountAtomic, 0n);
    const [came, went] = [since.filter(({ to }) => to === address), since.filter(({ from }) => from === address)];
    return this.balance(address) - sum(came) + sum(went);
  }

  /** What a rail over one node reads of it, and how it signs: the header is the authorization itself. */
  rail(node: FakeNode = {}): TestRail {
    return {
      network: NETWORK,
      asset: ASSET,
      canPay: () => true,
      sign: async ({ payTo, amountAtomic, maxTimeoutSeconds }, { address: from }) => {
        const nonce = newNonce();
        const times = { validAfter: 0, validBefore: this.time + maxTimeoutSeconds };
        const auth = { from, to: payTo, value: amountAtomic, nonce, ...times };
        return { headerName: "PAYMENT-SIGNATURE", headerValue: written(auth), from, nonce, amountAtomic, ...times };
      },
      settlementOf: async (query) => {
        const read = this.#read(node, (head) => this.#settled(query, head));
        const { value } = read;
        if (value && value.blockNumber < query.sinceBlock - SEARCH_MARGIN_BLOCKS) return { ...read, value: null };
        return mapAsOf(read, (one, { final }) => one && { ...one, final: one.blockNumber <= final.number });
      },
      stateOf: async (query) => {
        const isCancelled = !node.lies && this.#nonces.get(`${query.from} ${query.nonce}`) === null;
        const read = this.#read(node, (head) => this.#settled(query, head));
        return mapAsOf(read, (settled, { final }) => {
          if (isCancelled) return { state: "cancelled", tx: "0x", final: true };
          if (settled === null) return { state: "unused" };
          if (settled.blockNumber < query.sinceBlock - SEARCH_MARGIN_BLOCKS) return { state: "used_before" };
          return { state: "used", settlement: { ...settled, final: settled.blockNumber <= final.number } };
        });
      },
      transfers: async ({ from, to, sinceBlock }) =>
        this.#listed(node, (one) => one.from === from && one.to === to && one.blockNumber >= sinceBlock),
      transfersIn: async (tx) => this.#listed(node, (one) => one.tx === tx),
      payersOf: async () => null,
      head: async () => this.#read({ ...node, lagS: node.headLagS ?? node.lagS }, () => null).head,
      balance: async (address) => this.#read(node, (head) => this.#heldAt(address, head)),
    };
  }
}

/** As a payment header is: base64 of JSON, which a tool gets as JSON. */
export const written = (auth: FakeAuthorization): string =>
  Buffer.from(JSON.stringify({ ...auth, value: auth.value.toString() })).toString("base64");

export function readAuth(text: string): FakeAuthorization {
  const auth = JSON.parse(Buffer.from(text, "base64").toString()) as FakeAuthorization;
  return { ...auth, value: BigInt(auth.value) };
}
