import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, extname } from "node:path";
import { fileURLToPath } from "node:url";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import { sha256hexAsync } from "../../../infra/canonical.ts";
import { systemClock } from "../../../infra/clock.ts";
import { Failure } from "../../../infra/errors.ts";
import { type Holder, Places } from "../../../infra/shares.ts";
import { Extracted } from "../../schemas/extract.ts";
import { EXTRACT_LIMITS, type ExtractLimits } from "./limits.ts";

/** Formats of documents. */
export type DocumentKind = Extracted["kind"];

/** A document to extract. */
export interface ExtractionRequest<Kind extends DocumentKind = DocumentKind> {
  bytes: Uint8Array;
  /** Media type as the document is declared. */
  type?: string | undefined;
  /** Address of the document, the base of relative links. */
  url?: string | null;
  part?: Extracted["part"];
  /** Accepted formats; others are refused. */
  kinds: readonly Kind[];
  /** Overrides of the limits. */
  limits?: Partial<ExtractLimits>;
  /** The holder whose share of extractions it uses; default: this service. */
  holder?: Holder;
  signal?: AbortSignal;
}

/**
 * Thrown for a document that cannot be extracted. `why` is "bound" when it exceeds a limit, which `bound` names;
 * "unreadable" when it is damaged, locked, without text, or crashes the reader; "kind" when its format is not accepted.
 */
export class NotExtracted extends Failure {
  constructor(
    readonly why: "bound" | "unreadable" | "kind",
    says: string,
    readonly bound: string | null = null,
  ) {
    super("unreadable", says);
  }
}

/**
 * Thrown when a document was not extracted for a reason that is not the document's: too many wait, no child could be
 * started, it took long while others waited, or it was aborted.
 */
export class ExtractorUnavailable extends Failure {
  constructor(why: string) {
    super("busy", why, { retriable: true });
  }
}

/** Extracts text and structure from documents. */
export interface Extractor {
  /** Extracts a document. @throws NotExtracted, ExtractorUnavailable */
  read<Kind extends DocumentKind>(asked: ExtractionRequest<Kind>): Promise<Extracted & { kind: Kind }>;
  /** Ends all children; waiting documents are refused. */
  close(): Promise<void>;
}

export interface ExtractorOptions {
  limits?: Partial<ExtractLimits>;
  /** Most children at once. */
  atOnce?: number;
  /** Most documents that wait for a child. */
  maxWaiting?: number;
  /** Longest wait for a child, ms. */
  waitMs?: number;
}

const OWN_FOLDER = fileURLToPath(new URL(".", import.meta.url));
const CHILD_SCRIPT = fileURLToPath(new URL("./child.mjs", import.meta.url));
const CLOSED_MODULE = new URL("./closed.mjs", import.meta.url).href;
/** Folders of packages: in this project in a clone, above it when the project is itself an installed package. */
const PACKAGE_FOLDERS = (createRequire(import.meta.url).resolve.paths("unpdf") ?? []).filter(
  (folder) => OWN_FOLDER.startsWith(dirname(folder)) && existsSync(folder),
);

/**
 * Folders that the child may read: its own code and the packages, also by their real paths if they are links. Each is named
 * once, because Node 20 aborts when a folder is named twice.
 */
const READABLE_PATTERNS = [
  ...new Set(
    [OWN_FOLDER, ...PACKAGE_FOLDERS, ...PACKAGE_FOLDERS.map((one) => realpathSync(one))].map(
      (one) => `${one.replace(/\/$/, "")}/*`,
    ),
  ),
];

/** The flag of Node's permission model in this version. It forbids writing files and starting processes and threads. */
const PERMISSION_FLAG = process.allowedNodeEnvironmentFlags.has("--permission")
  ? "--permission"
  : "--experimental-permission";

/** Returns the flags of Node for a child that reads untrusted documents. @param heapMib size of its heap, MiB */
export const childFlags = (heapMib: number): string[] => [
  PERMISSION_FLAG,
  ...READABLE_PATTERNS.map((pattern) => `--allow-fs-read=${pattern}`),
  "--disallow-code-generation-from-strings",
  "--disable-proto=throw",
  `--max-old-space-size=${heapMib}`,
  "--no-warnings",
  `--import=${CLOSED_MODULE}`,
];

/** Seconds by which the kernel's limit exceeds ours. The kernel's limit still applies when this process has died. */
const KERNEL_SLACK_S = 2;
/**
 * A shell script that sets limits of the kernel and executes the child: no core file, no written files, and a number of
 * seconds of processor time. At the soft limit the kernel sends SIGXCPU, at the hard one SIGKILL. The child runs with a low
 * priority, so that payments come before documents.
 */
const LIMITING_SCRIPT =
  'ulimit -c 0; ulimit -f 0; ulimit -H -t "$(($1 + 1))"; ulimit -S -t "$1"; shift; exec nice -n 10 "$@"';

/** Returns a command that runs Node with these arguments under limits of the kernel. @param seconds processor time */
export const withKernelLimits = (seconds: number, node: readonly string[]): [string, string[]] => [
  "/bin/sh",
  ["-c", LIMITING_SCRIPT, "sh", String(seconds), process.execPath, ...node],
];

const MEASURE_INTERVAL_MS = 20;
/** The page size and the clock tick of Linux as /proc counts them (proc(5): USER_HZ is 100 on every platform of Node). */
const PAGE_BYTES = 4_096;
const TICK_MS = 10;
const MAX_ERROR_BYTES = 16_384;

/** Returns the memory and processor time of a process, or null on systems without /proc, where other limits apply. */
function measureProcess(pid: number): { rssBytes: number; cpuMs: number } | null {
  try {
    // The process name may contain anything; the other fields come after its last bracket.
    const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = Number(fields[11]) + Number(fields[12]);
    return { rssBytes: Number(fields[21]) * PAGE_BYTES, cpuMs: ticks * TICK_MS };
  } catch {
    return null;
  }
}

const boundFault = (bound: string, says: string): NotExtracted => new NotExtracted("bound", says, bound);
const formatMib = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`;

/** The answer of a child, or why it gave none. */
type ChildAnswer = { ok: true; value: unknown } | { ok: false; why: NotExtracted["why"]; bound?: string; says: string };

/** One child process, which extracts one document. */
class ExtractionJob {
  readonly #child: ChildProcess;
  readonly #outChunks: Buffer[] = [];
  #outBytes = 0;
  #errorText = "";
  #fault: Error | null = null;
  readonly #measureTimer: NodeJS.Timeout;
  readonly #timeoutTimer: NodeJS.Timeout;
  readonly result: Promise<Extracted>;

  /** Processor time of the child at the last measurement, ms. */
  cpuMs = 0;
  /** Whether the limit of real time ended it, which may be due to a busy machine. */
  isLate = false;

  /** @param isWanted reports whether others wait for its place */
  constructor(
    private readonly request: ExtractionRequest,
    private readonly limits: ExtractLimits,
    private readonly isWanted: () => boolean,
  ) {
    const seconds = Math.ceil(limits.cpuMs / 1_000) + KERNEL_SLACK_S;
    this.#child = spawn(...withKernelLimits(seconds, [...childFlags(limits.heapMib), CHILD_SCRIPT]), {
      stdio: ["pipe", "pipe", "pipe"],
      cwd: "/",
      env: {},
    });
    this.#measureTimer = setInterval(() => this.#measure(), MEASURE_INTERVAL_MS);
    const timeoutText = `not read within ${limits.wallMs} ms`;
    this.#timeoutTimer = setTimeout(() => {
      this.isLate = true;
      this.end(boundFault("time", timeoutText));
    }, limits.wallMs);
    this.result = this.#run();
  }

  /** Kills the child. `done` rejects with the first `fault`. */
  end(fault: Error): void {
    this.#fault ??= fault;
    this.#child.kill("SIGKILL");
  }

  async #run(): Promise<Extracted> {
    const child = this.#child;
    child.stdout!.on("data", (chunk: Buffer) => this.#takeOutput(chunk));
    child.stderr!.on("data", (chunk: Buffer) => {
      if (this.#errorText.length < MAX_ERROR_BYTES) this.#errorText += chunk.toString("latin1");
    });
    // A write to a dead child fails; its exit is handled below.
    child.stdin!.on("error", () => {});
    const exited = new Promise<void>((resolve) => {
      child.once("error", (error) => {
        this.#fault ??= new ExtractorUnavailable(`no reader can be begun: ${error.message}`);
        resolve();
      });
      child.once("close", () => resolve());
    });
    const { type, url = null, part = "whole", kinds, bytes } = this.request;
    child.stdin!.write(`${JSON.stringify({ type, url, part, kinds, limits: this.limits })}\n`);
    child.stdin!.end(bytes);
    await exited;
    clearInterval(this.#measureTimer);
    clearTimeout(this.#timeoutTimer);
    if (this.#fault) throw this.#fault;
    return this.#parseResult();
  }

  #measure(): void {
    const usage = this.#child.pid === undefined ? null : measureProcess(this.#child.pid);
    if (!usage) return;
    const { rssBytes, cpuMs, sharedCpuMs } = this.limits;
    this.cpuMs = usage.cpuMs;
    if (usage.rssBytes > rssBytes)
      this.end(boundFault("memory", `reading it takes more than ${formatMib(rssBytes)} of memory`));
    if (usage.cpuMs > cpuMs) this.end(boundFault("time", `reading it takes more than ${cpuMs} ms of processor time`));
    else if (usage.cpuMs > sharedCpuMs && this.isWanted()) {
      this.end(
        new ExtractorUnavailable(`others wait, and reading it takes more than ${sharedCpuMs} ms of processor time`),
      );
    }
  }

  #takeOutput(chunk: Buffer): void {
    this.#outBytes += chunk.length;
    const maxBytes = this.limits.outputBytes;
    if (this.#outBytes > maxBytes) this.end(boundFault("output", `what was read of it is more than ${maxBytes} bytes`));
    else this.#outChunks.push(chunk);
  }

  #parseResult(): Extracted {
    const answer = this.#readAnswer();
    if (!answer.ok) throw new NotExtracted(answer.why, answer.says, answer.bound ?? null);
    const parsed = Extracted.safeParse(answer.value);
    if (!parsed.success) throw new NotExtracted("unreadable", "the reader gave an answer of the wrong form");
    return parsed.data;
  }

  /** Returns the child's answer. A child without one ran out of heap, was killed by the kernel, or crashed. */
  #readAnswer(): ChildAnswer {
    try {
      if (this.#outBytes > 0) return JSON.parse(Buffer.concat(this.#outChunks).toString("utf8")) as ChildAnswer;
    } catch {
      return { ok: false, why: "unreadable", says: "the reader ended in the middle of its answer" };
    }
    const { heapMib, cpuMs } = this.limits;
    if (/heap|allocation|out of memory/i.test(this.#errorText)) {
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
    return { ok: false, why: "unreadable", says: "the reader crashed" };
  }
}

/** Defaults of the options. */
const DEFAULT_OPTIONS = { atOnce: 2, maxWaiting: 64, waitMs: 15_000 };
/** How long failed documents are remembered, ms, and how many of them. */
const FAILURE_MEMORY_MS = 3_600_000;
const MAX_REMEMBERED = 1_000;

/** The failure of a document under a limit of processor time. */
interface FailedRead {
  fault: NotExtracted;
  cpuMs: number;
  failedAtMs: number;
}

class ChildExtractor implements Extractor {
  readonly #places: Places;
  readonly #jobs = new Set<ExtractionJob>();
  readonly #closing = new AbortController();
  readonly #failed = new BoundedMap<string, FailedRead>(MAX_REMEMBERED);

  constructor(private readonly options: ExtractorOptions) {
    const { atOnce: size, maxWaiting: waiting } = { ...DEFAULT_OPTIONS, ...options };
    this.#places = new Places({ name: "documents", size, waiting });
  }

  async read<Kind extends DocumentKind>(asked: ExtractionRequest<Kind>): Promise<Extracted & { kind: Kind }> {
    const limits = { ...EXTRACT_LIMITS, ...this.options.limits, ...asked.limits };
    const stopSignals = asked.signal ? [asked.signal, this.#closing.signal] : [this.#closing.signal];
    const { kinds, type, part, limits: overrides } = asked;
    const extension = extname(asked.url ?? "").slice(0, 12);
    const documentKey = JSON.stringify([await sha256hexAsync(asked.bytes), kinds, type, extension, part, overrides]);
    this.#refuseFailedBefore(documentKey, limits);
    const timeout = AbortSignal.timeout(this.options.waitMs ?? DEFAULT_OPTIONS.waitMs);
    const place = await this.#places.take(asked.holder ?? {}, AbortSignal.any([...stopSignals, timeout]));
    if (!place) throw new ExtractorUnavailable("too many documents are being read");
    try {
      this.#refuseFailedBefore(documentKey, limits);
      // The child refuses other kinds.
      return (await this.#readInChild(asked, limits, documentKey, AbortSignal.any(stopSignals))) as Extracted & {
        kind: Kind;
      };
    } finally {
      place.leave();
    }
  }

  /** Refuses a document that failed before under at least these limits. @throws NotExtracted */
  #refuseFailedBefore(document: string, { cpuMs }: ExtractLimits): void {
    const failedRead = this.#failed.get(document);
    if (!failedRead || failedRead.cpuMs < cpuMs || systemClock.monotonic() - failedRead.failedAtMs > FAILURE_MEMORY_MS)
      return;
    throw failedRead.fault;
  }

  /** Extracts a document in a child. Failed work is not paid for, so its processor time becomes a debt of its holder. */
  async #readInChild(
    asked: ExtractionRequest,
    limits: ExtractLimits,
    document: string,
    signal: AbortSignal,
  ): Promise<Extracted> {
    if (signal.aborted) throw new ExtractorUnavailable("called off");
    const { holder = {} } = asked;
    const job = new ExtractionJob(asked, limits, () => this.#places.isWantedBeside(holder));
    const stopJob = () => job.end(new ExtractorUnavailable("called off"));
    signal.addEventListener("abort", stopJob, { once: true });
    this.#jobs.add(job);
    try {
      return await job.result;
    } catch (error) {
      this.#places.addDebt(holder, job.cpuMs / limits.cpuMs);
      if (error instanceof NotExtracted && !job.isLate) {
        this.#failed.set(document, { fault: error, cpuMs: limits.cpuMs, failedAtMs: systemClock.monotonic() });
      }
      throw error;
    } finally {
      signal.removeEventListener("abort", stopJob);
      this.#jobs.delete(job);
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled([...this.#jobs].map(({ result: done }) => done));
  }
}

/**
 * Creates an extractor of untrusted documents. Each document is parsed in a process of its own, whose memory and
 * processor time are measured from outside and also bounded by its heap size and the kernel. The process has an empty
 * environment and no network, reads only its own code, starts no process or thread, and its output is bounded. A crash fails
 * only its document.
 */
export const createExtractor = (options: ExtractorOptions = {}): Extractor => new ChildExtractor(options);
