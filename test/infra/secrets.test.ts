import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { inspect } from "node:util";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { ConfigError, loadConfig } from "../../infra/config.ts";
import { createEvmRail } from "../../infra/rails/evm.ts";
import { createLocalWallets } from "../../infra/rails/wallets.ts";
import { addAddressSecrets, addSecrets, redact, redactError } from "../../infra/secrets.ts";
import { runs } from "../helpers/programs.ts";
import { payOnce } from "../pipelines/1-observe/day.ts";
import { ASSET, fakeWorld, honest, NETWORK } from "../pipelines/1-observe/world.ts";

/** A node of a chain that fails in the ways of real ones, asked by an address with a key wherever one can stand. */
const KEYS = ["k3y1nThePath", "k3y1nTheQuery", "aUser0fTheNode", "p4ss/w@rd"];
const [PATH, QUERY, USER, PASSWORD] = KEYS as [string, string, string, string];
/** As they stand in an address and in a header. */
const TEXTS = [...KEYS, encodeURIComponent(PASSWORD), Buffer.from(`${USER}:${PASSWORD}`).toString("base64")];

const seen = (text: string): string[] => TEXTS.filter((one) => text.includes(one));

type Answer = (asked: IncomingMessage, body: { id: number; method: string }, answer: ServerResponse) => void;
const echoOf = ({ url, headers }: IncomingMessage): string =>
  `no account ${url} ${headers.authorization} ${KEYS.join(" ")}`;
const json = (answer: ServerResponse, status: number, value: unknown): void => {
  answer.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
};
const NODES: Record<string, Answer> = {
  "500 and a page": (asked, _, answer) => answer.writeHead(500).end(`<h1>${echoOf(asked)}</h1>`),
  "401 and JSON": (asked, _, answer) => json(answer, 401, { error: echoOf(asked) }),
  "an error of JSON-RPC": (asked, { id }, answer) =>
    json(answer, 200, { id, error: { code: -32000, message: echoOf(asked), data: { for: echoOf(asked) } } }),
  // Balances are told, so that a mint is sent, and refused again and again.
  "a clash of nonces": (asked, { id, method }, answer) =>
    method === "eth_call"
      ? json(answer, 200, { id, result: `0x${"0".repeat(64)}` })
      : json(answer, 200, { id, error: { code: -32003, message: `nonce too low: ${echoOf(asked)}` } }),
  "no JSON": (asked, _, answer) => answer.writeHead(200).end(echoOf(asked)),
  "a connection that breaks": (_, __, answer) => void answer.destroy(),
};

let node: Server;
let fails: Answer;
let rpcUrl: string;
let dir: string;
let asked: number;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "secrets-"));
  node = createServer((request, answer) => {
    asked++;
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.once("end", () => fails(request, JSON.parse(Buffer.concat(chunks).toString()), answer));
  });
  await new Promise<void>((done) => node.listen(0, "127.0.0.1", done));
  const { port } = node.address() as { port: number };
  rpcUrl = `http://${USER}:${encodeURIComponent(PASSWORD)}@127.0.0.1:${port}/v2/${PATH}?apikey=${QUERY}`;
});
beforeEach(() => {
  asked = 0;
});
afterAll(() => {
  node.close();
  node.closeAllConnections();
  rmSync(dir, { recursive: true, force: true });
});

const thrown = async (work: Promise<unknown>): Promise<Error> =>
  work.then(
    () => expect.unreachable("the node answered"),
    (error: Error) => error,
  );

describe.each(Object.entries(NODES))("a node that answers %s", (_, answer) => {
  const from = "0x00000000000000000000000000000000000000a1";

  test("no error of the rail or of the wallets has the key in it, however deep one looks", async () => {
    fails = answer;
    const rail = createEvmRail({ rpcUrl, network: NETWORK, asset: ASSET, confirmations: 1 });
    const wallets = createLocalWallets({ rpcUrl, seed: Buffer.alloc(32, 1), asset: ASSET });
    const nonce = `0x${"ab".repeat(32)}`;
    for (const work of [
      () => rail.head(),
      ...(answer === NODES["a clash of nonces"] ? [] : [() => rail.balance(from)]),
      () => rail.settlementOf({ from, nonce, sinceBlock: 1 }),
      () => wallets.known(),
      () => wallets.blind("cap", "2026-11-02", 1n),
    ]) {
      const error = await thrown(work());
      const told = [error.message, String(error), error.stack, inspect(error, { depth: 12, showHidden: true })].join(
        "\n",
      );
      expect([seen(told), told]).toEqual([[], told]);
    }
    expect(asked).toBeGreaterThan(4);
  });

  test("no record of a paid call that failed by it has", async () => {
    fails = answer;
    const world = fakeWorld();
    const rail = createEvmRail({ rpcUrl, network: NETWORK, asset: ASSET, confirmations: 1 });
    const wallets = createLocalWallets({ rpcUrl, seed: Buffer.alloc(32, 1), asset: ASSET });
    world.wallets.known = () => wallets.known();
    world.wallets.blind = (cap, day) => wallets.blind(cap, day, 1n);
    world.rail.head = () => rail.head();
    expect(await payOnce(world, honest(world.rail))).toMatchObject({ paid: 0, unpaid: 1 });
    const rows = world.log.records.map(({ value }) => Buffer.from(value).toString()).join("\n");
    expect(rows).toContain("not paid, by our own fault: ");
    expect([seen(rows), asked > 0]).toEqual([[], true]);
  });
});

describe("a process", () => {
  /** Its words on both streams, and every byte that it left in its folder. */
  async function run(
    command: string[],
    env: Record<string, string>,
    data = mkdtempSync(join(dir, "data-")),
  ): Promise<{ said: string; left: string }> {
    const all = { PATH: process.env.PATH, TOUCHSTONE_DATA_DIR: data, TOUCHSTONE_LOG_LEVEL: "trace", ...env };
    const child = spawn(process.execPath, [...runs("touchstone.ts"), ...command], {
      cwd: resolve(import.meta.dirname, "../.."),
      env: all as NodeJS.ProcessEnv,
    });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (chunk: Buffer) => {
        said += chunk.toString();
      });
    }
    await new Promise((done) => child.once("close", done));
    const files = readdirSync(data, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
    return { said, left: files.map((one) => readFileSync(join(one.parentPath, one.name), "latin1")).join("\n") };
  }

  test.each(["publish", "observe"])("%s: neither what it says nor what it writes has the key in it", async (role) => {
    fails = NODES["an error of JSON-RPC"]!;
    const { said, left } = await run([role, "--once"], {
      TOUCHSTONE_CHAIN_RPC_URL: rpcUrl,
      TOUCHSTONE_CONTROL_URLS: '["https://control.example/"]',
    });
    expect(said).toMatch(/chain/);
    expect([seen(said), said]).toEqual([[], said]);
    expect([seen(left), left.length > 0]).toEqual([[], true]);
  });

  test("passwords of settings: not in its last words", async () => {
    const secret = "s3cr3t-of-kafka";
    const env = { TOUCHSTONE_KAFKA_PASSWORD: secret, TOUCHSTONE_KAFKA_USERNAME: "u" };
    const data = mkdtempSync(join(dir, "data-"));
    await run(["keygen"], {}, data);
    // A place where nobody should write it, in words that say what was given.
    const { said } = await run(
      ["publish", "--once"],
      { ...env, TOUCHSTONE_LOG: `kafka://127.0.0.1:1/${secret} ` },
      data,
    );
    expect(said).toMatch(/^touchstone: .*\[hidden\] .* is not kafka:\/\//m);
    expect(said).not.toContain(secret);
  });
});

test("a file of settings that is no JSON is not shown", () => {
  const file = join(dir, "broken.json");
  writeFileSync(file, '{"kafka":{"password":hunter2hunter2}}');
  const fault = () => loadConfig(file, {});
  expect(fault).toThrow(ConfigError);
  expect(fault).toThrow(/broken\.json: Unexpected token/);
  expect(fault).not.toThrow(/hunter|password/);
});

describe("redact", () => {
  test("takes out what was kept, the longest first, also as JSON has it", () => {
    addSecrets('quo"ted-secret', "secret-and-more", "secret-and", null, undefined, "", "short");
    expect(redact('a secret-and-more b secret-and c short quo"ted-secret')).toBe(
      "a [hidden] b [hidden] c short [hidden]",
    );
    expect(redact(JSON.stringify({ a: 'quo"ted-secret' }))).toBe('{"a":"[hidden]"}');
  });

  test("of an address: user, password, query; the path where it may be a key; and words that are none stay", () => {
    addAddressSecrets("https://some-user:some-pw%21@node.example/rpc/openSesame1?k=a1&token=longer-token", true);
    for (const text of [
      "some-user",
      "some-pw%21",
      "some-pw!",
      "openSesame1",
      "longer-token",
      "k=a1&token=longer-token",
    ]) {
      expect(redact(`<${text}>`)).toBe("<[hidden]>");
    }
    expect(redact("https://node.example/rpc/openSesame1?k=a1&token=longer-token")).toBe("https://node.example[hidden]");
    expect(redact("rpc node.example a1")).toBe("rpc node.example a1");
    addAddressSecrets("https://open.example/well-known-path");
    addAddressSecrets(null, true);
    addAddressSecrets("no address", true);
    expect(redact("https://open.example/well-known-path")).toBe("https://open.example/well-known-path");
  });

  test("an error stays what it is, with its causes, and without the text", () => {
    addSecrets("deep-secret");
    const cause = Object.assign(new TypeError("deep-secret"), { data: { list: ["deep-secret"] }, n: 1 });
    const error = Object.assign(new RangeError("of deep-secret", { cause }), { url: "x/deep-secret" });
    error.stack = "deep-secret";
    expect(redactError(error)).toBe(error);
    expect(inspect(error, { depth: 9 })).not.toContain("deep-secret");
    expect([error.message, error.url, cause.message, cause.data, cause.n]).toEqual([
      ...["of [hidden]", "x/[hidden]", "[hidden]", { list: ["[hidden]"] }, 1],
    ]);
    const round: Error & { cause?: unknown } = new Error("deep-secret");
    round.cause = round;
    expect(redactError(round).message).toBe("[hidden]");
    expect(redactError("no error")).toBe("no error");
  });
});
