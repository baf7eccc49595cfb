import { createHash } from "node:crypto";
import { type Address, encodeFunctionData, getAddress, type Hex, parseAbi } from "viem";
import { type PrivateKeyAccount, privateKeyToAccount } from "viem/accounts";
import { type LocalChain, startLocalChain } from "../../fixtures/chain/local-chain.ts";
import { createAuthorizations, TRANSFER_TYPES } from "../../infra/rails/authorization.ts";
import { createEvmRail } from "../../infra/rails/evm.ts";
import { createFacilitator } from "../../infra/rails/facilitator.ts";
import { type AsOf, mapAsOf, type Rail, type Settlement } from "../../infra/rails/rails.ts";
import { createReader, type Reader } from "../../infra/rails/rpc.ts";
import { createSender, type Outcome } from "../../infra/rails/sender.ts";
import { tokenOnChain } from "../../infra/rails/settlement.ts";
import { createTill } from "../../infra/rails/till.ts";
import { LOCAL_MINTER } from "../../infra/rails/wallets.ts";
import { type FakeAuthorization, newNonce, type TestChain, type TestRail, written } from "./fake-chain.ts";

const TOKEN = parseAbi([
  "function topUp(address[] accounts, uint256[] floors)",
  "function authorizationState(address authorizer, bytes32 nonce) view returns (bool)",
]);
const TRANSFER = parseAbi(["event Transfer(address indexed from, address indexed to, uint256 value)"])[0];
const SECONDS_A_BLOCK = 2;
/** However long it is that passes: enough for whatever is in a block to be final. */
const MOST_BLOCKS = 12;
/** More than any history takes back. */
const DEEP = 20;

const keyOf = (label: string): Hex => `0x${createHash("sha256").update(`wallet ${label}`).digest("hex")}`;

/**
 * A local node for many histories: each has wallets of its own, which hold what they are given, and its own part of the
 * chain's time. What reads it, signs for it and charges on it is what a service has.
 */
export class RealNode {
  #histories = 0;
  #everySecond: NodeJS.Timeout | undefined;
  #last: Promise<unknown> = Promise.resolve();

  private constructor(
    readonly chain: LocalChain,
    readonly reader: Reader,
    private readonly holdings: Readonly<Record<string, bigint>>,
    private readonly others: readonly string[],
  ) {}

  /** @param holdings atomic units by name @param others names of wallets that hold nothing */
  static async open(holdings: Readonly<Record<string, bigint>>, others: readonly string[]): Promise<RealNode> {
    const chain = await startLocalChain();
    const node = new RealNode(chain, createReader(chain.rpcUrl), holdings, others);
    // The node goes back to a state without waiting for a block that it is mining: one of its blocks of every second
    // that fell in between left a chain without one of its numbers. So those blocks are asked for here, one by one.
    await node.ask("evm_setAutomine", true);
    node.#everySecond = setInterval(() => void node.alone(() => node.ask("anvil_mine", "0x1")).catch(() => {}), 1_000);
    for (const gas of [GAS, STRANGERS_GAS]) await chain.giveGas(privateKeyToAccount(gas).address);
    return node;
  }

  ask<T = string>(method: string, ...params: unknown[]): Promise<T> {
    return this.reader.request({ method, params } as never) as Promise<T>;
  }

  /** Acts between two blocks of the node's every second, after what was asked for before. */
  alone<T>(act: () => Promise<T>): Promise<T> {
    const acted = this.#last.then(act);
    this.#last = acted.catch(() => {});
    return acted;
  }

  /** A chain where nothing but the holdings is. */
  async fresh(confirmations: number): Promise<RealChain> {
    const history = this.#histories++;
    const keys = new Map(
      [...Object.keys(this.holdings), ...this.others].map((name) => [name, keyOf(`${history} ${name}`)]),
    );
    const addresses = Object.keys(this.holdings).map((name) => privateKeyToAccount(keys.get(name)!).address);
    const args = [addresses, Object.values(this.holdings)] as const;
    const data = encodeFunctionData({ abi: TOKEN, functionName: "topUp", args });
    await this.ask("eth_sendTransactionSync", { from: LOCAL_MINTER, to: this.chain.asset, data, gas: "0x200000" });
    await this.ask("anvil_mine", `0x${DEEP.toString(16)}`);
    const chain = new RealChain(this, keys, confirmations, Number(await this.ask("eth_blockNumber")));
    await chain.look();
    return chain;
  }

  close = async (): Promise<void> => {
    clearInterval(this.#everySecond);
    await this.#last;
    await this.chain.stop();
  };
}

const GAS = keyOf("gas");
const STRANGERS_GAS = keyOf("strangers' gas");

/** One history's chain. */
export class RealChain implements TestChain {
  time = 0;
  readonly #rail: Rail;
  /** What was begun and has not ended. */
  readonly #busy = new Set<Promise<unknown>>();
  /** Transactions between their sending and their block, and who waits until none is. */
  readonly #moving = new Set<Promise<unknown>>();
  #still: Promise<unknown> = Promise.resolve();
  #senders: ReturnType<RealChain["sendersNow"]>;
  #isOver = false;
  /** Blocks that it has forgotten. */
  vanished = 0;
  #turns = 0;
  /** States to go back to, and the newest block of each. */
  readonly #kept: { id: string; block: number }[] = [];

  /** Names by lower-case address. */
  readonly #names: ReadonlyMap<string, string>;

  /** @param keys of all wallets, by name @param since block in which the history begins */
  constructor(
    private readonly node: RealNode,
    private readonly keys: ReadonlyMap<string, Hex>,
    readonly confirmations: number,
    readonly since: number,
  ) {
    const { rpcUrl, network, asset } = node.chain;
    this.#rail = createEvmRail({ rpcUrl, network, asset, confirmations });
    this.#senders = this.sendersNow();
    this.#names = new Map([...keys.keys()].map((name) => [this.#addressOf(name).toLowerCase(), name]));
  }

  /** Made once each: a public key takes a millisecond, and is asked for with every balance and every event. */
  readonly #accounts = new Map<string, PrivateKeyAccount>();
  #accountOf(name: string): PrivateKeyAccount {
    const account = this.#accounts.get(name) ?? privateKeyToAccount(this.keys.get(name)!);
    this.#accounts.set(name, account);
    return account;
  }
  #addressOf = (name: string): Address => this.#accountOf(name).address;

  /** Of a node that forgot blocks a sender's own count of its transactions is wrong: whoever sends begins anew. */
  sendersNow() {
    const { node, confirmations } = this;
    const { rpcUrl, network, chainId, asset } = node.chain;
    const money = tokenOnChain({ rpcUrl, network, asset, confirmations });
    const facilitator = createFacilitator({ rpcUrl, network, sender: GAS });
    const sender = createSender(node.reader, chainId, STRANGERS_GAS);
    return { till: createTill("real", facilitator), authorizations: createAuthorizations(money, sender) };
  }

  #during<T>(work: () => Promise<T>): Promise<T> {
    const begun = this.#isOver ? Promise.reject(new Error("this history is over")) : work();
    this.#busy.add(begun);
    return begun.finally(() => this.#busy.delete(begun));
  }

  /** What sends a transaction, and ends once it stands in a block. */
  #moves<T>(send: () => Promise<T>): Promise<T> {
    return this.#during(async () => {
      for (let waited: unknown; waited !== this.#still; ) {
        waited = this.#still;
        await waited;
      }
      const sent = send();
      this.#moving.add(sent);
      return sent.finally(() => this.#moving.delete(sent));
    });
  }

  /**
   * Acts while no transaction is on its way into a block. The node writes a block's balances before its events: a state
   * kept in between has money gone that no event tells of, for whoever goes back to it.
   */
  #standingStill<T>(act: () => Promise<T>): Promise<T> {
    const acted = this.#still.then(async () => {
      while (this.#moving.size > 0) await Promise.allSettled(this.#moving);
      return this.node.alone(async () => {
        // A receipt comes before its block is written whole; the node begins the next block after that.
        await this.node.ask("anvil_mine", "0x1");
        return act();
      });
    });
    this.#still = acted.catch(() => {});
    return acted;
  }

  /** Nothing more is done on it, and nothing is under way. */
  async over(): Promise<void> {
    this.#isOver = true;
    while (this.#busy.size > 0) await Promise.allSettled(this.#busy);
  }

  /** Whatever time it is there. */
  async look(): Promise<void> {
    this.time = (await this.#rail.head()).time;
  }

  async turn(): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, (this.#turns++ * 7) % 31));
    await this.#standingStill(async () => {
      const id = await this.node.ask("evm_snapshot");
      const { number, time } = await this.#rail.head();
      this.#kept.push({ id, block: number });
      this.time = time;
    });
  }

  mint(): void {}
  balance = async (name: string): Promise<bigint> => (await this.#balance(name)).value;
  #balance = (name: string) => this.#during(() => this.#rail.balance(this.#addressOf(name)));

  transfer(from: string, to: string, amount: bigint): Promise<string | null> {
    const times = { validAfter: 0, validBefore: this.time + 3_600 };
    return this.submit({ from, to, value: amount, nonce: newNonce(), ...times });
  }

  isUsed = ({ from, nonce }: Pick<FakeAuthorization, "from" | "nonce">): Promise<boolean> =>
    this.#during(() =>
      this.node.reader.readContract({
        ...{ address: this.node.chain.asset as Address, abi: TOKEN, functionName: "authorizationState" },
        args: [this.#addressOf(from), nonce as Hex],
      }),
    );

  async #signed(auth: FakeAuthorization) {
    const { from, to, value, validAfter, validBefore, nonce } = auth;
    const { chainId, asset } = this.node.chain;
    const message = {
      ...{ from: this.#addressOf(from), to: this.#addressOf(to), value, nonce: nonce as Hex },
      ...{ validAfter: BigInt(validAfter), validBefore: BigInt(validBefore) },
    };
    const signature = await this.#accountOf(from).signTypedData({
      domain: { name: "USDC", version: "2", chainId, verifyingContract: getAddress(asset) },
      types: TRANSFER_TYPES,
      primaryType: "TransferWithAuthorization",
      message,
    });
    const text = { value: String(value), validAfter: String(validAfter), validBefore: String(validBefore), nonce };
    return { signature, authorization: { from: message.from, to: message.to, ...text } };
  }

  submit(auth: FakeAuthorization): Promise<string | null> {
    return this.#moves(async () => {
      const said = await this.#senders.authorizations.submitTransfer(await this.#signed(auth));
      return said.outcome === "sent" ? null : said.outcome;
    });
  }

  charge(auth: FakeAuthorization): Promise<Outcome> {
    return this.#moves(async () => {
      const { network, asset } = this.node.chain;
      const requirements = {
        ...{ scheme: "exact", network: network as `eip155:${number}`, asset, amount: String(auth.value) },
        ...{ payTo: this.#addressOf(auth.to), maxTimeoutSeconds: 300, extra: { name: "USDC", version: "2" } },
      };
      const payment = { x402Version: 2, accepted: requirements, payload: await this.#signed(auth) };
      return this.#senders.till.settle(payment, requirements);
    });
  }

  cancel({ from, nonce }: Pick<FakeAuthorization, "from" | "nonce">): Promise<void> {
    return this.#moves(async () => {
      const { authorizations } = this.#senders;
      const wallet = { address: this.#addressOf(from), privateKey: this.keys.get(from)! };
      await authorizations.submitCancel(await authorizations.signCancel(wallet, nonce));
    });
  }

  #named = (one: Settlement): Settlement => ({
    ...one,
    from: this.#names.get(one.from) ?? one.from,
    to: this.#names.get(one.to) ?? one.to,
  });

  settlementOf = async (query: { from: string; nonce: string; sinceBlock: number }): Promise<Settlement | null> =>
    (await this.#settlementOf(query)).value;

  #settlementOf(query: { from: string; nonce: string; sinceBlock: number }): Promise<AsOf<Settlement | null>> {
    const { from, nonce } = query;
    const sinceBlock = Math.max(query.sinceBlock, this.since);
    return this.#during(async () => {
      const read = await this.#rail.settlementOf({ from: this.#addressOf(from).toLowerCase(), nonce, sinceBlock });
      return mapAsOf(read, (seen) => seen && this.#named(seen));
    });
  }

  movements(): Promise<readonly Settlement[]> {
    return this.#during(async () => {
      const { asset, network } = this.node.chain;
      const fromBlock = BigInt(this.since);
      const logs = await this.node.reader.getLogs({
        address: asset as Address,
        event: TRANSFER,
        strict: true,
        fromBlock,
      });
      return logs.map(({ transactionHash: tx, blockNumber, args: { from, to, value } }) =>
        this.#named({
          ...{ tx, blockNumber: Number(blockNumber), blockTime: 0, from: from.toLowerCase(), to: to.toLowerCase() },
          ...{ amountAtomic: value, asset, network, final: true },
        }),
      );
    });
  }

  async pass(seconds: number): Promise<void> {
    const blocks = Math.min(MOST_BLOCKS, Math.max(1, Math.floor(seconds / SECONDS_A_BLOCK)));
    const hex = (n: number) => `0x${n.toString(16)}`;
    await this.node.ask("evm_increaseTime", seconds - Math.min(seconds, blocks));
    await this.node.ask("anvil_mine", hex(blocks), hex(1));
    await this.look();
  }

  /**
   * Back to a state of before, and on from there with other blocks. The node's own reorganisation loses the states of
   * some blocks and keeps their logs, so it is a snapshot that is gone back to.
   */
  reorg(depth: number, again: boolean): Promise<void> {
    return this.#standingStill(() => this.#goneBack(depth, again));
  }

  async #goneBack(depth: number, again: boolean): Promise<void> {
    const deep = Math.min(depth, this.confirmations - 1);
    const head = Number(await this.node.ask("eth_blockNumber"));
    const at = this.#kept.findIndex(({ block }) => block >= head - deep && block < head);
    if (at === -1) return;
    const { id, block } = this.#kept[at]!;
    this.#kept.splice(at);
    const raw = again ? await this.#transactionsOf(block + 1, head) : [];
    await this.node.ask("evm_revert", id);
    this.#senders = this.sendersNow();
    // What took part in another block and no longer holds is not taken in.
    for (const one of raw) await this.node.ask("eth_sendRawTransactionSync", one).catch(() => {});
    await this.node.ask("anvil_mine", `0x${(head - block + 1).toString(16)}`);
    this.vanished += head - block;
    await this.look();
  }

  async #transactionsOf(from: number, to: number): Promise<string[]> {
    const raw: string[] = [];
    for (let number = from; number <= to; number++) {
      const asked = [`0x${number.toString(16)}`, false] as const;
      const { transactions } = await this.node.ask<{ transactions: string[] }>("eth_getBlockByNumber", ...asked);
      for (const tx of transactions) raw.push(await this.node.ask("eth_getRawTransactionByHash", tx));
    }
    return raw;
  }

  rail(): TestRail {
    const rail = this.#rail;
    return {
      ...rail,
      canPay: () => true,
      sign: async ({ payTo, amountAtomic, maxTimeoutSeconds }, { address: from }) => {
        const times = { validAfter: 0, validBefore: this.time + maxTimeoutSeconds };
        const auth = { from, to: payTo, value: amountAtomic, nonce: newNonce(), ...times };
        return {
          ...{ headerName: "PAYMENT-SIGNATURE", headerValue: written(auth), from, nonce: auth.nonce, amountAtomic },
          ...times,
        };
      },
      settlementOf: (query) => this.#settlementOf(query),
      stateOf: ({ from, nonce, sinceBlock }) =>
        this.#during(async () => {
          const query = { from: this.#addressOf(from), nonce, sinceBlock: Math.max(sinceBlock, this.since) };
          return mapAsOf(await this.#senders.authorizations.stateOf(query), (value) =>
            value.state === "used" ? { ...value, settlement: this.#named(value.settlement) } : value,
          );
        }),
      transfers: ({ from, to, sinceBlock }) =>
        this.#during(async () => {
          const query = {
            from: this.#addressOf(from),
            to: this.#addressOf(to),
            sinceBlock: Math.max(sinceBlock, this.since),
          };
          return mapAsOf(await rail.transfers(query), (all) => all.map(this.#named));
        }),
      transfersIn: (tx) => this.#during(async () => mapAsOf(await rail.transfersIn(tx), (all) => all.map(this.#named))),
      balance: (name) => this.#balance(name),
    };
  }
}
