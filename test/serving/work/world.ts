import { generateKeyPairSync } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FixedClock } from "../../../infra/clock.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import type { Egress } from "../../../infra/egress/egress.ts";
import { type Signer, signerOf } from "../../../infra/keys/signer.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { Register } from "../../../pipelines/register/register.ts";
import { PROBLEMS, Problem, validate } from "../../../serving/http/problem.ts";
import { createDocsCorpus } from "../../../serving/work/brief/corpus.ts";
import { extractive } from "../../../serving/work/brief/summariser.ts";
import { EvidenceBodies } from "../../../serving/work/evidence-bodies.ts";
import { createExtractor, type Extractor } from "../../../serving/work/extract/extractor.ts";
import { Receipts } from "../../../serving/work/receipts.ts";
import type { Work, WorkDeps } from "../../../serving/work/work.ts";
import { AppendOnly } from "../../helpers/serving.ts";

/** What paid work is done with, all of it real, and a server to do it on. */
export interface World extends WorkDeps {
  origin: string;
  signer: Signer;
  /** What receipts are told to, where bodies are kept, and on which clock. */
  log: AppendOnly;
  store: Store;
  bodies: EvidenceBodies;
  clock: FixedClock;
  /** The keys document, as it is published. */
  keys: object;
  close(): Promise<void>;
}

export const NOW = "2026-11-23T10:00:00.000Z";

/** What stands at each path of the server; a path that is not there is a 404. */
export type Site = Readonly<Record<string, RequestListener>>;

/** An answer with this body. */
export const page =
  (body: string | Buffer, headers: Record<string, string> = { "content-type": "text/html" }, status = 200) =>
  (_: unknown, response: Parameters<RequestListener>[1]): void => {
    response.writeHead(status, headers).end(body);
  };

export async function worldOf(site: Site, more: Partial<Omit<WorkDeps, "clock">> = {}): Promise<World> {
  const server: Server = createServer((request, response) => {
    const at = site[new URL(request.url!, "http://site").pathname];
    (at ?? page("nothing here", { "content-type": "text/plain" }, 404))(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const signer = signerOf(privateKey, "answers");
  const { x } = publicKey.export({ format: "jwk" });
  const key = { kty: "OKP", crv: "Ed25519", x, kid: signer.kid, use: "sig", alg: "EdDSA", purpose: "answers" };
  const clock = new FixedClock(NOW);
  const egress: Egress = createEgress({ allowLoopback: true, userAgent: "touchstone-test" });
  const extractor: Extractor = createExtractor({ limits: { wallMs: 300_000, cpuMs: 100_000 }, waitMs: 300_000 });
  const corpus = createDocsCorpus({ docs: new Map(), baseUrl: "https://us.example", extractor, clock });
  const bodiesDir = await mkdtemp(join(tmpdir(), "bodies-"));
  const store = await openDirectoryStore(bodiesDir);
  const log = new AppendOnly();
  const bodies = new EvidenceBodies({ store, clock, logger: createLogger("silent"), metrics: createMetrics() });
  return {
    log,
    bodies,
    store,
    receipts: new Receipts({ log, bodies, clock, baseUrl: "https://us.example" }),
    egress,
    extractor,
    clock,
    corpus,
    summariser: extractive,
    // No work done here asks it.
    register: new Register({ path: "/nowhere/register.duckdb", clock }),
    ...more,
    signer,
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    keys: { keys: [{ ...key, valid_from: "2026-01-01T00:00:00.000Z" }] },
    async close() {
      await extractor.close();
      await egress.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await store.close();
      await rm(bodiesDir, { recursive: true, force: true });
    },
  };
}

/** What the work gives, held against its own schema. */
export async function did<I, A extends object>(work: Work<I, A>, body: unknown, deps: WorkDeps): Promise<A> {
  return work.answer.parse(JSON.parse(JSON.stringify(await work.run(validate(work.body, body), deps))));
}

/** How it was refused: [code, status, pointers, words]. @throws what is no Problem, and when it was not refused */
export async function refusal<I>(
  work: Work<I>,
  body: unknown,
  deps: WorkDeps,
): Promise<[string, number, string[], string]> {
  try {
    await work.run(validate(work.body, body), deps);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const pointers = (error.extra.errors ?? []).map(({ pointer }) => pointer);
    return [error.code, PROBLEMS[error.code].status, pointers, error.message];
  }
  throw new Error("it was not refused");
}
