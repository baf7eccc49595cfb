import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import { sha256Soon } from "../../../infra/canonical.ts";
import { systemClock } from "../../../infra/clock.ts";
import { type Holder, Places } from "../../../infra/shares.ts";
import { Extracted } from "../../schemas/extract.ts";
import { EXTRACT_LIMITS, type ExtractLimits } from "./limits.ts";

export type DocumentKind = Extracted["kind"];

/** A document to be read. */
export interface ExtractionRequest {
  bytes: Uint8Array;
  /** Media type that it was sent with. */
  type?: string | undefined;
  /** Where it was read: relative links count from there. */
  url?: string | null;
  part?: Extracted["part"];
  /** What it may be; anything else is refused. */
  kinds: readonly DocumentKind[];
  /** Changes to what an answer holds. */
  most?: Partial<ExtractLimits>;
  /** Who wants it read; default: we do. */
  holder?: Holder;
  signal?: AbortSignal;
}

/**
 * A document that gave nothing. bound: it went past one, which `bound` names; unreadable: damaged, locked, without text, or
 * our reader crashed on it; kind: it is something else than was asked for.
 */
export class NotExtracted extends Error {
  override readonly name = "NotExtracted";
  constructor(
    readonly why: "bound" | "unreadable" | "kind",
    says: string,
    readonly bound: string | null = null,
  ) {
    super(says);
  }
}

/**
 * Nobody can read now: too many wait, no child could be begun, it took long while others waited, or it was called off. It
 * says nothing of the document.
 */
export class ExtractorUnavailable extends Error {
  override readonly name = "NobodyReads";
}

/** The way to what reads documents. */
export interface Extractor {
  /** @throws NotExtracted, NobodyReads */
  read(asked: ExtractionRequest): Promise<Extracted>;
  /** Ends every child; what waits is refused. */
  close(): Promise<void>;
}

export interface ExtractorOptions {
  limits?: Partial<ExtractLimits>;
  /** Children at once, and documents that may wait for one. */
  atOnce?: number;
  maxWaiting?: number;
  /** Longest wait for a child, ms. */
  waitMs?: number;
}

const HERE = fileURLToPath(new URL(".", import.meta.url));
const CHILD = fileURLToPath(new URL("./child.mjs", import.meta.url));
const CLOSED = new URL("./closed.mjs", import.meta.url).href;
/** Where Node looks for our packages from here: beside us in a clone, above us where we are a package ourselves. */
const PACKAGES = (createRequire(import.meta.url).resolve.paths("unpdf") ?? []).filter(
  (folder) => HERE.startsWith(dirname(folder)) && existsSync(folder),
);

/**
 * Files that the child may read: its own code and the packages, by both names where they are a link. Each once: Node 20 aborts
 * over a folder that is named twice.
 */
const READABLE = [
  ...new Set(
    [HERE, ...PACKAGES, ...PACKAGES.map((one) => realpathSync(one))].map((one) => `${one.replace(/\/$/, "")}/*`),
  ),
];

/** Node's permission model by the name that this version has for it: no file is written, no process or thread begun. */
const PERMISSION = process.allowedNodeEnvironmentFlags.has("--permission")
  ? "--permission"
  : "--experimental-permission";

/** Flags of Node under which a child reads strangers' documents. @param heapMib its heap */
export const childFlags = (heapMib: number): string[] => [
  PERMISSION,
  ...READABLE.map((pattern) => `--allow-fs-read=${pattern}`),
  "--disallow-code-generation-from-strings",
  "--disable-proto=throw",
  `--max-old-space-size=${heapMib}`,
  "--no-warnings",
  `--import=${CLOSED}`,
];

/** Seconds that the kernel gives a child beyond what we watch for: it holds where we are gone ourselves. */
const KERNEL_SLACK_S = 2;
/**
 * Sets limits of the kernel on itself and becomes the child: no core file, no file at all, so many seconds of processor; past
 * the soft limit it is told which one ended it (SIGXCPU), past the hard one it is killed. It is nice to whatever else wants
 * a processor: a stranger's document comes after payments.
 */
const LIMITED = 'ulimit -c 0; ulimit -f 0; ulimit -H -t "$(($1 + 1))"; ulimit -S -t "$1"; shift; exec nice -n 10 "$@"';

/** A command that runs Node with these arguments under limits of the kernel. @param seconds of a processor */
export const withKernelLimits = (seconds: number, node: readonly string[]): [string, string[]] => [
  "/bin/sh",
  ["-c", LIMITED, "sh", String(seconds), process.execPath, ...node],
];

const WATCH_MS = 20;
/** The page size and the clock tick of Linux as /proc counts them (proc(5): USER_HZ is 100 on every platform of Node). */
const PAGE_BYTES = 4_096;
const TICK_MS = 10;
const MAX_ERROR_BYTES = 16_384;

/** What a process has used, or null where the system does not tell: then the heap, the kernel and the clock bound it. */
function usedBy(pid: number): { rssBytes: number; cpuMs: number } | null {
  try {
    // The name in the middle may hold anything; what counts comes behind its last bracket.
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = Number(fields[11]) + Number(fields[12]);
    return { rssBytes: Number(fields[21]) * PAGE_BYTES, cpuMs: ticks * TICK_MS };
  } catch {
    return null;
  }
}

const pastBound = (bound: string, says: string): NotExtracted => new NotExtracted("bound", says, bound);
const mib = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`;

/** What a child answered, or how it ended. */
type ChildAnswer = { ok: true; value: unknown } | { ok: false; why: NotExtracted["why"]; bound?: string; says: string };

/** One child and its one document. */
class Job {
  readonly #child: ChildProcess;
  readonly #out: Buffer[] = [];
  #outBytes = 0;
  #errors = "";
  #fault: Error | null = null;
  readonly #watch: NodeJS.Timeout;
  readonly #wall: NodeJS.Timeout;
  readonly done: Promise<Extracted>;

  /** Processor time of the child at the last look, ms. */
  cpuMs = 0;
  /** The clock ended it, which says as much of this machine as of the document. */
  isLate = false;

  /** @param isWanted do others wait for its place? */
  constructor(
    private readonly asked: ExtractionRequest,
    private readonly limits: ExtractLimits,
    private readonly isWanted: () => boolean,
  ) {
    const seconds = Math.ceil(limits.cpuMs / 1_000) + KERNEL_SLACK_S;
    this.#child = spawn(...withKernelLimits(seconds, [...childFlags(limits.heapMib), CHILD]), {
      stdio: ["pipe", "pipe", "pipe"],
      cwd: "/",
      env: {},
    });
    this.#watch = setInterval(() => this.#look(), WATCH_MS);
    const late = `not read within ${limits.wallMs} ms`;
    this.#wall = setTimeout(() => {
      this.isLate = true;
      this.end(pastBound("time", late));
    }, limits.wallMs);
    this.done = this.#run();
  }

  /** Kills the child; whoever waits is told `fault`, the first one. */
  end(fault: Error): void {
    this.#fault ??= fault;
    this.#child.kill("SIGKILL");
  }

  async #run(): Promise<Extracted> {
    const child = this.#child;
    child.stdout!.on("data", (chunk: Buffer) => this.#take(chunk));
    child.stderr!.on("data", (chunk: Buffer) => {
      if (this.#errors.length < MAX_ERROR_BYTES) this.#errors += chunk.toString("latin1");
    });
    // A write to a child that has died fails: its exit is what counts, and is handled as its answer.
    child.stdin!.on("error", () => {});
    const ended = new Promise<void>((resolve) => {
      child.once("error", (error) => {
        this.#fault ??= new ExtractorUnavailable(`no reader can be begun: ${error.message}`);
        resolve();
      });
      child.once("close", () => resolve());
    });
    const { type, url = null, part = "whole", kinds, bytes } = this.asked;
    child.stdin!.write(`${JSON.stringify({ type, url, part, kinds, limits: this.limits })}\n`);
    child.stdin!.end(bytes);
    await ended;
    clearInterval(this.#watch);
    clearTimeout(this.#wall);
    if (this.#fault) throw this.#fault;
    return this.#answer();
  }

  #look(): void {
    const used = this.#child.pid === undefined ? null : usedBy(this.#child.pid);
    if (!used) return;
    const { rssBytes, cpuMs, sharedCpuMs } = this.limits;
    this.cpuMs = used.cpuMs;
    if (used.rssBytes > rssBytes)
      this.end(pastBound("memory", `reading it takes more than ${mib(rssBytes)} of memory`));
    if (used.cpuMs > cpuMs) this.end(pastBound("time", `reading it takes more than ${cpuMs} ms of processor time`));
    else if (used.cpuMs > sharedCpuMs && this.isWanted()) {
      this.end(
        new ExtractorUnavailable(`others wait, and reading it takes more than ${sharedCpuMs} ms of processor time`),
      );
    }
  }

  #take(chunk: Buffer): void {
    this.#outBytes += chunk.length;
    const most = this.limits.outputBytes;
    if (this.#outBytes > most) this.end(pastBound("output", `what was read of it is more than ${most} bytes`));
    else this.#out.push(chunk);
  }

  #answer(): Extracted {
    const answer = this.#childAnswer();
    if (!answer.ok) throw new NotExtracted(answer.why, answer.says, answer.bound ?? null);
    const checked = Extracted.safeParse(answer.value);
    if (!checked.success) throw new NotExtracted("unreadable", "the reader gave an answer of the wrong form");
    return checked.data;
  }

  /** The child's answer; one that died without any ran out of heap, was killed by the kernel, or crashed. */
  #childAnswer(): ChildAnswer {
    try {
      if (this.#outBytes > 0) return JSON.parse(Buffer.concat(this.#out).toString("utf8")) as ChildAnswer;
    } catch {
      return { ok: false, why: "unreadable", says: "the reader ended in the middle of its answer" };
    }
    const { heapMib, cpuMs } = this.limits;
    if (/heap|allocation|out of memory/i.test(this.#errors)) {
      return { ok: false, why: "bound", bound: "memory", says: `reading it takes more than ${heapMib} MiB of memory` };
    }
    if (this.#child.signalCode === "SIGXCPU") {
      return {
        ok: false,
        why: "bound",
        bound: "time",
        says: `reading it takes more than ${cpuMs} ms of processor time`,
      };
    }
    return { ok: false, why: "unreadable", says: "the reader died of it" };
  }
}

/** Wait for a child, ms, children at once and documents that wait, unless said otherwise. */
const DEFAULTS = { atOnce: 2, maxWaiting: 64, waitMs: 15_000 };
/** Documents that gave nothing are remembered for so long, ms, and so many of them. */
const REMEMBERED_MS = 3_600_000;
const MAX_REMEMBERED = 1_000;

/** What a document gave nothing for, under this bound of processor time. */
interface Failure {
  fault: NotExtracted;
  cpuMs: number;
  at: number;
}

class ChildExtractor implements Extractor {
  readonly #places: Places;
  readonly #jobs = new Set<Job>();
  readonly #closing = new AbortController();
  readonly #failed = new BoundedMap<string, Failure>(MAX_REMEMBERED);

  constructor(private readonly options: ExtractorOptions) {
    const { atOnce: size, maxWaiting: waiting } = { ...DEFAULTS, ...options };
    this.#places = new Places({ name: "documents", size, waiting });
  }

  async read(asked: ExtractionRequest): Promise<Extracted> {
    const limits = { ...EXTRACT_LIMITS, ...this.options.limits, ...asked.most };
    const off = asked.signal ? [asked.signal, this.#closing.signal] : [this.#closing.signal];
    const { kinds, type, part, most } = asked;
    const document = JSON.stringify([await sha256Soon(asked.bytes), kinds, type, part, most]);
    this.#refuseKnown(document, limits);
    const patience = AbortSignal.timeout(this.options.waitMs ?? DEFAULTS.waitMs);
    const place = await this.#places.take(asked.holder ?? {}, AbortSignal.any([...off, patience]));
    if (!place) throw new ExtractorUnavailable("too many documents are being read");
    try {
      this.#refuseKnown(document, limits);
      return await this.#inChild(asked, limits, document, AbortSignal.any(off));
    } finally {
      place.leave();
    }
  }

  /** The same bytes would end as they did. @throws NotExtracted */
  #refuseKnown(document: string, { cpuMs }: ExtractLimits): void {
    const known = this.#failed.get(document);
    if (!known || known.cpuMs < cpuMs || systemClock.monotonic() - known.at > REMEMBERED_MS) return;
    throw known.fault;
  }

  /** Work that gave nothing is not paid for: what it took is remembered of whoever sent it. */
  async #inChild(
    asked: ExtractionRequest,
    limits: ExtractLimits,
    document: string,
    signal: AbortSignal,
  ): Promise<Extracted> {
    if (signal.aborted) throw new ExtractorUnavailable("called off");
    const { holder = {} } = asked;
    const job = new Job(asked, limits, () => this.#places.isWantedBeside(holder));
    const off = () => job.end(new ExtractorUnavailable("called off"));
    signal.addEventListener("abort", off, { once: true });
    this.#jobs.add(job);
    try {
      return await job.done;
    } catch (error) {
      this.#places.remember(holder, job.cpuMs / limits.cpuMs);
      if (error instanceof NotExtracted && !job.isLate) {
        this.#failed.set(document, { fault: error, cpuMs: limits.cpuMs, at: systemClock.monotonic() });
      }
      throw error;
    } finally {
      signal.removeEventListener("abort", off);
      this.#jobs.delete(job);
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled([...this.#jobs].map(({ done }) => done));
  }
}

/**
 * Reads PDF and HTML of strangers, each document in a process of its own that is killed when it takes too much: memory and
 * processor time are watched from outside (and bounded by the heap's size and the kernel as well), it is begun with an empty
 * environment, may read no file but its own code, begin nothing and reach no network, and what it writes is counted. What
 * becomes of a child is an error of its document alone.
 */
export const createExtractor = (options: ExtractorOptions = {}): Extractor => new ChildExtractor(options);
